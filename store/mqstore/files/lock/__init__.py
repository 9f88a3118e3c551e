"""The lock that keeps brokers and other writers out of a store."""
