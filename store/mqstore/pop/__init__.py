"""POP groups of RocketMQ 5, which acknowledge single messages: what is not acknowledged.

``state`` is arithmetic on checkpoints, acknowledgements and entries; ``look`` reads them,
``revived`` finds copies.
"""
