"""What the bytes mean: layouts, constants and scalar rules. No I/O, no Arrow."""
