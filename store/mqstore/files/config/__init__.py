"""The broker's small files: config/*.json, the checkpoint, and ours beside them."""
