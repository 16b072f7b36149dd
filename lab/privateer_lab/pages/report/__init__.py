"""The report of an experiment: what was asked, what was learned, and what it means, on one page for the team."""
