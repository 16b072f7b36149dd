"""What releases say of values, by normal models: observations, a part common to all arms, and masses."""
