"""What an experiment can be expected to earn, and what would change that, within seconds."""
