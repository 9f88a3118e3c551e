"""Messages that go to a cluster: what is read, where it goes, the map of old to new offsets."""
