"""Messages of database change producers to change rows: one shape for all producers.

``change`` has the shape: a ``Change`` is one row, ``change_batch`` makes columns of many,
``change_schema`` is their Arrow schema. Each producer is one module with one function that takes a
``ChangeMessage`` and returns its changes; ``formats`` names the producers and recognises a message
by its own marks.

Two values pass through: ``ChangeMessage`` (body, KEYS and properties of one message) and
``Change``. A change has texts of database values; ``values`` has the types of databases, and makes
Arrow columns of the texts.

It must not know stores, queues, options of reads, merges or lakes: the columns that name a message
(topic, brokerName, queueId, queueOffset, storeTimestamp) are copied from the batch that was read.
"""
