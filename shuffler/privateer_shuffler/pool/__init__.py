"""The held reports of the shuffler, each in a random place, until their batch is full."""
