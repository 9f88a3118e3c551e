"""IndexFiles: read, append, cut, repair."""
