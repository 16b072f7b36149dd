"""Paper 1: private partitions. README.md says what it claims, what is wrong with it, and what we do instead."""
