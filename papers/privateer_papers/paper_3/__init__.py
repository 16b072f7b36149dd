"""Paper 3: high-dimensional bandits. README.md has its claims, its errors, and our alternative."""
