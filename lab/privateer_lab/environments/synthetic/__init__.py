"""People by a formula."""
