"""Where the bytes live: the only room that opens, maps, writes and syncs."""
