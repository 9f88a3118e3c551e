"""What the rooms of files stand on: durable writes, what is read, and where a store lies."""
