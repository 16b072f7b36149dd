"""Drafts of specs, and of the people whom they are about, from the rows of a file or a data frame."""
