"""Conversations with name servers and brokers: bytes, connections, requests, routes, retries."""
