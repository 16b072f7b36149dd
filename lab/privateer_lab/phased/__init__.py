"""Paper 5 in one process: simulations, the figures and the table, and what they claim."""
