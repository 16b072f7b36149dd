"""Promises of privacy, the terms of a round that keep them, and their verification by devices and the public."""
