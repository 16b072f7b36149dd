"""Policies: public and immutable, run by the client. One file an algorithm."""
