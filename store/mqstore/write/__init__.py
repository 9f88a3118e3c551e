"""Staged segments to a store: the commit, on the driver, and what recovers one that was cut off."""
