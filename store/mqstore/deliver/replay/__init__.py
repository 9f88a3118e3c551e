"""Replays: messages of stores and clusters, sent to the topics of a cluster again."""
