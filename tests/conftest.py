"""Property tests draw the same examples every time and have no clock, so that a failure is always a failure."""

from hypothesis import settings

settings.register_profile("fixed", derandomize=True, deadline=None, database=None)
settings.load_profile("fixed")
