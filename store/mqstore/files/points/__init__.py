"""A repository of points: the states of a store at several moments, with shared bytes kept once."""
