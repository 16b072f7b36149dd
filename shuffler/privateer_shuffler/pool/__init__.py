"""The reports that the shuffler holds, each in a random place, until their batch is full."""
