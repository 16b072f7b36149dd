"""What a policy would have earned, from a log of what another one chose."""
