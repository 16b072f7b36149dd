"""The power of a trial, before anybody is asked."""
