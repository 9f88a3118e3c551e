"""The grammar of option values and of store paths."""
