"""Specs: checked sections of a TOML file, and properties derived from them."""
