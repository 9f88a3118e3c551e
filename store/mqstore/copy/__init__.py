"""New stores from others: a consistent copy of a whole one, and what a damaged one still has."""
