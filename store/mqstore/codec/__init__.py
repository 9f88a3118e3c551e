"""Columns and bytes: arrays in, arrays out; no files."""
