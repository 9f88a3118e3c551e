"""The machine that a command runs on: Python, Java, Spark's session, signals and exit codes."""
