"""Store to record batches."""
