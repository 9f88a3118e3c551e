"""What there is to know of a store beside its messages, as tables.

``catalog`` lists them. A module declares one table or a few of one source as ``Table`` values: its
columns with their meaning, the options that it takes, and its plan, which gives parts that pickle;
a part yields Arrow batches in a task.
"""
