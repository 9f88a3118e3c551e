"""Stand-in until the connector lands."""
