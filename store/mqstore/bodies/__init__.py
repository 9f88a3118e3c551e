"""Bytes of bodies to typed columns; it knows no messages, offsets or places."""
