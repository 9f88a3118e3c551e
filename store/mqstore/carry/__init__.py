"""Committed offsets of stopped consumer groups, carried to where a replay sent the messages."""
