"""What notebooks call: each file has a function of `privateer_lab` and what it returns."""
