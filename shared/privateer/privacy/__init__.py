"""What a report costs, and the randomness that pays for it."""
