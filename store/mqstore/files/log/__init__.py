"""The CommitLog's files: read, append, find the end, clear."""
