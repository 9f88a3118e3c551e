"""Rows to messages of a running cluster: what a job is, and what its tasks do."""
