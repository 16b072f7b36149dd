"""Paper 1's Section 4.2: public data, the methods of Table 2, and the table."""
