"""Paper 2: bandits by reduction. README.md has its claims, its errors, and our alternative."""
