"""Backlog as Prometheus text, under the names that dashboards and alerts have already.

rocketmq_group_diff and its like are those of apache/rocketmq-exporter (RMQMetricsCollector),
rocketmq_consumer_lag_messages and _latency those of 5.x brokers (BrokerMetricsConstant). Labels
are theirs as far as a store knows them: it knows no cluster and no consumer that is online.
mqlog_… is what they do not tell.
"""

import os
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeAlias

Row: TypeAlias = Mapping[str, object]
Labels: TypeAlias = tuple[tuple[str, str], ...]

RETRY: Final = "%RETRY%"
DLQ: Final = "%DLQ%"
_ESCAPES: Final = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})
_READABLE: Final = 0o644  # The exporter that picks the file up is another user.


@dataclass(frozen=True, slots=True)
class Metric:
    """A metric: the sum (or the largest) of ``column`` over the queues with the same labels."""

    name: str
    text: str
    column: str
    labels: tuple[str, ...]
    largest: bool = False


_GROUP: Final = ("group", "topic")
_BROKER: Final = ("broker", "topic", "group")
_NODE: Final = ("node_type", "node_id", "topic", "consumer_group", "is_retry", "is_system")
_DIFF: Final = "Messages behind, as consumerProgress prints it"
METRICS: Final = (
    Metric("rocketmq_group_diff", _DIFF, "diff", _GROUP),
    Metric("rocketmq_group_retrydiff", f"{_DIFF}, of retry topics", "diff", _GROUP),
    Metric("rocketmq_group_dlqdiff", f"{_DIFF}, of dead letters", "diff", _GROUP),
    Metric("rocketmq_consumer_offset", "Offsets committed", "consumerOffset", _BROKER),
    Metric("rocketmq_group_get_latency_by_storetime", "Age of the oldest message not consumed, ms",
           "lagMs", _BROKER, largest=True),
    Metric("rocketmq_consumer_lag_messages", "Messages there and not consumed that the group's "
           "tags let through", "lagMatching", _NODE),
    Metric("rocketmq_consumer_lag_latency", "Age of the oldest of them, ms", "lagMs", _NODE,
           largest=True),
    Metric("mqlog_consumer_lag", "Messages there and not consumed, whatever their tags", "lag",
           _BROKER),
    Metric("mqlog_consumer_expired", "Messages deleted before they were consumed", "expired",
           _BROKER),
    Metric("mqlog_consumer_bytes_behind", "Bytes of the messages not consumed", "bytesBehind",
           _BROKER),
)  # fmt: skip


def text(rows: Iterable[Row], is_system: Iterable[str] = ()) -> str:
    """Return rows of ``table=backlog`` as Prometheus text; ``is_system`` are RocketMQ's topics."""
    system = frozenset(is_system)
    held = list(rows)
    lines = []
    for metric in METRICS:
        samples: dict[Labels, int] = {}
        for row in held:
            value = row[metric.column]
            if isinstance(value, int) and _counts(metric.name, str(row["topic"])):
                labels = _labels(metric, row, system)
                before = samples.get(labels)
                together = max if metric.largest else int.__add__
                samples[labels] = value if before is None else together(before, value)
        if samples:
            lines += [f"# HELP {metric.name} {metric.text}", f"# TYPE {metric.name} gauge"]
        lines += [
            f"{metric.name}{{{_told(labels)}}} {samples[labels]}" for labels in sorted(samples)
        ]
    return "".join(f"{line}\n" for line in lines)


def write(path: str, content: str) -> None:
    """Put ``content`` in place of the file at once: who reads it sees the old or the new."""
    target = Path(path).absolute()
    fd, temporary = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
    try:
        with os.fdopen(fd, "w", encoding="utf-8") as file:
            file.write(content)
            os.fchmod(file.fileno(), _READABLE)
        Path(temporary).replace(target)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def _counts(name: str, topic: str) -> bool:
    """Tell whether a metric has that topic: RMQMetricsCollector#addGroupDiffMetric divides them."""
    match name:
        case "rocketmq_group_diff":
            return not topic.startswith((RETRY, DLQ))
        case "rocketmq_group_retrydiff":
            return topic.startswith(RETRY)
        case "rocketmq_group_dlqdiff":
            return topic.startswith(DLQ)
    return True


def _labels(metric: Metric, row: Row, system: frozenset[str]) -> Labels:
    topic, broker, group = str(row["topic"]), str(row["brokerName"]), str(row["group"])
    known = {
        "group": group,
        "consumer_group": group,
        "topic": topic,
        "broker": broker,
        "node_id": broker,
        "node_type": "broker",
        "is_retry": str(topic.startswith(RETRY)).lower(),
        "is_system": str(topic in system).lower(),
    }
    return tuple((name, known[name]) for name in metric.labels)


def _told(labels: Labels) -> str:
    return ",".join(f'{name}="{value.translate(_ESCAPES)}"' for name, value in labels)
