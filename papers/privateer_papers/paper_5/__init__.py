"""Paper 5: distributed linear bandits. README.md says what it claims, what is wrong with it, and what we do instead."""
