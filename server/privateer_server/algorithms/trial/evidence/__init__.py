"""What a trial's releases add up to."""
