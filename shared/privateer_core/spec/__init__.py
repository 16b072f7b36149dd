"""What a spec says: sections of a TOML file, checked, and what follows from them."""
