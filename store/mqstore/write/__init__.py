"""Record batches to store."""
