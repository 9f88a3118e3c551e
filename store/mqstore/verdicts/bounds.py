"""The bounds of the rules: how long, how many."""

from typing import Final

from mqstore.verdicts.rates import COMMIT_MS

WAITING_MS: Final = 60_000
RECENT_MS: Final = 600_000
SOON_MS: Final = 86_400_000
MIN_TRIES: Final = 3
MIN_RECEIVED: Final = 100
TURN_MS: Final = 3 * COMMIT_MS
"""An offset that stands for less tells nothing: consumers commit every 5 s."""
ROUND_MS: Final = 12 * COMMIT_MS
"""A consumer that works queue after queue has come to each again in so long."""
ROUND_MESSAGES: Final = 64
"""Two pulls of a queue: DefaultMQPushConsumer#pullBatchSize."""
