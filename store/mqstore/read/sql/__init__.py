"""SQL92 expressions of consumers: which messages pass by their properties."""
