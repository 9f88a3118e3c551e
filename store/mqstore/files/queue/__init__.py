"""ConsumeQueue files: read, append, find the end, repair."""
