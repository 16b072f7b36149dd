"""What is promised, how a round keeps it, and how devices and anybody else check it."""
