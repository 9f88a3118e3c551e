"""Change rows to the rows of a table: any order, any number of times, one result.

``register`` has the state of one key, and what a change does to it; ``table_merge`` applies changes
to many keys; ``pending_text`` writes what a state has beside its row; ``orders`` refuses where a
producer without a sequence gives no order; ``sources`` sees a new source.

Two values pass through: ``KeyChange`` (one change of one key) and ``Register`` (the state of a
key). A value of a column is only referred to, by the row that has it.

It must not know how a table is stored, nor messages, queues of stores, or options of reads.
"""
