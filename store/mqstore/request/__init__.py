"""What a user asks of places: the options of reads, the queues they choose, the plan of a table."""
