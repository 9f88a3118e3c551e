"""Rows to staged segments: what each task of a write does, and the store is not touched."""
