"""Commands that calculate, attack and verify what is promised."""
