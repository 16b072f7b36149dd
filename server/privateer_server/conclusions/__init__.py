"""Conclusions from a learner's answer: rules and headlines. All functions use public data alone."""
