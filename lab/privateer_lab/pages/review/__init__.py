"""The review pack: what lawyers and reviewers need to know of an experiment, before it starts or while it runs."""
