"""Paper 4: effects beyond the average. README.md says what it claims, what is wrong with it, and what we do instead."""
