"""A consistent copy of a whole store."""
