"""What a release is made of, and how it is checked: `make release` and `make version`."""
