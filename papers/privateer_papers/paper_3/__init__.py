"""Paper 3: high-dimensional bandits. README.md says what it claims, what is wrong with it, and what we do instead."""
