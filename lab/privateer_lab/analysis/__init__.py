"""Analysis of finished A/B tests from their rows."""
