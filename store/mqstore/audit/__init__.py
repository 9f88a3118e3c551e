"""The proof that two places have the same messages, or the messages in which they differ."""
