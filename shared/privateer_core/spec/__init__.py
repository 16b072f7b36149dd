"""Specs: sections of a TOML file, checked, and what follows from them."""
