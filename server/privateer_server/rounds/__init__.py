"""The life cycle of rounds: opening, closing, misses, and the end."""
