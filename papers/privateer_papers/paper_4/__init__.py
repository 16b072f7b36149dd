"""Paper 4: effects beyond the average. README.md has its claims, its errors, and our alternative."""
