"""What releases say of values, by normal models: observations, and a part common to all arms."""
