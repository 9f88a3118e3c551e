"""A running cluster as an origin of messages: what its brokers hold, and their records."""
