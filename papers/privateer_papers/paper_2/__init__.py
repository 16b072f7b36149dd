"""Paper 2: bandits by reduction. README.md says what it claims, what is wrong with it, and what we do instead."""
