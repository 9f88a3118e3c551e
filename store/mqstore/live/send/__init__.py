"""Sending to a running cluster: requests, what their answers mean, and the sender."""
