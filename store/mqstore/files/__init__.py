"""Files of a store: the only package that opens, maps, writes and syncs them."""
