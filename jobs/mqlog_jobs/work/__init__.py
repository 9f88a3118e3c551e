"""The work of each command: it reads places, and hands rows to ``output``."""
