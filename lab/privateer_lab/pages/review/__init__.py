"""The review pack of an experiment for lawyers and privacy reviewers, before it starts or while it runs."""
