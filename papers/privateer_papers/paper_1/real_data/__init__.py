"""Paper 1's Section 4.2: people of public data, who competes there, and Table 2."""
