"""Commands that ask a server about experiments."""
