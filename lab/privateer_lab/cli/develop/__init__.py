"""Commands for whoever works on algorithms."""
