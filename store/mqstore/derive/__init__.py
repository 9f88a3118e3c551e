"""Derives from the CommitLog what brokers do: its end, ConsumeQueues, IndexFiles."""
