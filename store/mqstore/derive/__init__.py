"""What brokers derive from the CommitLog, made again: its end, ConsumeQueues, IndexFiles."""
