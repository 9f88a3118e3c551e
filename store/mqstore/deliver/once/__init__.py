"""Exactly once into a cluster: tasks hand messages on, one publisher sends them and looks back."""
