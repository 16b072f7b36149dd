"""What learns in the partition bandit (paper 1)."""
