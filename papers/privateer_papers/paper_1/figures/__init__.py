"""Paper 1's figures and its table on census data."""
