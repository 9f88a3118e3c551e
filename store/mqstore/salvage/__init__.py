"""A new, whole store from a damaged one: every whole record, at its place and its queue offset."""
