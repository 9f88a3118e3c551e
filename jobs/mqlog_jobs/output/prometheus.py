"""Backlog as Prometheus text, with the metric names of RocketMQ's own exporters.

rocketmq_group_… and rocketmq_consumer_offset are those of apache/rocketmq-exporter
(RMQMetricsCollector), rocketmq_consumer_lag_messages and _latency those of 5.x brokers
(BrokerMetricsConstant), with the labels that a store has values for: it has no cluster and no
online consumers. Those named mqlog_… have no counterpart there.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final, TypeAlias

BacklogRow: TypeAlias = Mapping[str, object]
Labels: TypeAlias = tuple[tuple[str, str], ...]

RETRY_TOPIC_PREFIX: Final = "%RETRY%"
DLQ_TOPIC_PREFIX: Final = "%DLQ%"
_TIME_COLUMNS: Final = {"broker": "brokerName", "topic": "topic", "group": "group"}
_LABEL_ESCAPES: Final = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})


@dataclass(frozen=True, slots=True)
class Metric:
    """A metric: of the queues with the same labels the sum, or the largest, of ``column``.

    Of a time it is the first one, or the last.
    """

    name: str
    text: str
    column: str
    labels: tuple[str, ...]
    largest: bool = False


_GROUP_LABELS: Final = ("group", "topic")
_BROKER_LABELS: Final = ("broker", "topic", "group")
_NODE: Final = ("node_type", "node_id", "topic", "consumer_group", "is_retry", "is_system")
_DIFF: Final = "Messages behind, as consumerProgress prints it"
METRICS: Final = (
    Metric("rocketmq_group_diff", _DIFF, "diff", _GROUP_LABELS),
    Metric("rocketmq_group_retrydiff", f"{_DIFF}, of retry topics", "diff", _GROUP_LABELS),
    Metric("rocketmq_group_dlqdiff", f"{_DIFF}, of dead letters", "diff", _GROUP_LABELS),
    Metric("rocketmq_consumer_offset", "Offsets committed", "consumerOffset", _BROKER_LABELS),
    Metric("rocketmq_group_get_latency_by_storetime", "Age of the oldest message not consumed, ms",
           "lagMs", _BROKER_LABELS, largest=True),
    Metric("rocketmq_consumer_lag_messages", "Stored messages not consumed that match the "
           "group's tag expression", "lagMatching", _NODE),
    Metric("rocketmq_consumer_lag_latency", "Age of the oldest of them, ms", "lagMs", _NODE,
           largest=True),
    Metric("mqlog_consumer_lag", "Stored messages not consumed, whatever their tags", "lag",
           _BROKER_LABELS),
    Metric("mqlog_consumer_expired", "Messages deleted before they were consumed", "expired",
           _BROKER_LABELS),
    Metric("mqlog_consumer_bytes_behind", "Bytes of the messages not consumed; of a cluster an "
           "estimate", "bytesBehind", _BROKER_LABELS),
)  # fmt: skip
STATUS_METRIC: Final = "mqlog_consumer_queues"
_QUEUES_TEXT: Final = "Queues of the group by the status that each has in the backlog"
TIME_METRICS: Final = (
    Metric("mqlog_consumer_eta_zero_timestamp_seconds", "When the group has consumed what waits, "
           "if the rates stay", "etaZero", _BROKER_LABELS, largest=True),
    Metric("mqlog_consumer_eta_loss_timestamp_seconds", "When the broker deletes the first message "
           "that the group has not consumed", "etaLoss", _BROKER_LABELS),
)  # fmt: skip


def text(rows: Iterable[BacklogRow], is_system: Iterable[str] = ()) -> str:
    """Return rows of ``table=backlog`` as Prometheus text; ``is_system`` are RocketMQ's topics."""
    system, measured = frozenset(is_system), list(rows)
    lines = []
    for metric in METRICS:
        samples: dict[Labels, int] = {}
        for row in measured:
            value = row[metric.column]
            if isinstance(value, int) and _counts(metric.name, str(row["topic"])):
                labels = _labels(metric, row, system)
                before = samples.get(labels)
                together = max if metric.largest else int.__add__
                samples[labels] = value if before is None else together(before, value)
        if samples:
            lines += [f"# HELP {metric.name} {metric.text}", f"# TYPE {metric.name} gauge"]
        lines += [
            f"{metric.name}{{{_pairs(labels)}}} {samples[labels]}" for labels in sorted(samples)
        ]
    return "".join(f"{line}\n" for line in (*lines, *_statuses(measured)))


def _statuses(rows: Iterable[BacklogRow]) -> list[str]:
    """Return how many queues have each status."""
    names = {**_TIME_COLUMNS, "status": "status"}
    queues = Counter(
        tuple((name, str(row[column])) for name, column in names.items()) for row in rows
    )
    if not queues:
        return []
    head = [f"# HELP {STATUS_METRIC} {_QUEUES_TEXT}", f"# TYPE {STATUS_METRIC} gauge"]
    return [
        *head,
        *(f"{STATUS_METRIC}{{{_pairs(labels)}}} {queues[labels]}" for labels in sorted(queues)),
    ]


def times_text(rows: Iterable[BacklogRow]) -> str:
    """Return rows of ``table=forecast`` as Prometheus text: times in seconds since 1970.

    Of the queues of a group and topic on a broker, the first loss, and when the last one has caught
    up; what is not known of one of them has no sample.
    """
    zero: dict[Labels, datetime | None] = {}
    loss: dict[Labels, datetime] = {}
    for row in rows:
        labels = tuple((name, str(row[_TIME_COLUMNS[name]])) for name in _BROKER_LABELS)
        at, lost = row["etaZero"], row["etaLoss"]
        known = zero.get(labels, at) if isinstance(at, datetime) else None
        zero[labels] = max(known, at) if known and isinstance(at, datetime) else None
        if isinstance(lost, datetime):
            loss[labels] = min(lost, loss.get(labels, lost))
    lines = []
    columns: dict[str, Mapping[Labels, datetime | None]] = {"etaZero": zero, "etaLoss": loss}
    for metric in TIME_METRICS:
        samples = {labels: at for labels, at in columns[metric.column].items() if at is not None}
        if samples:
            lines += [f"# HELP {metric.name} {metric.text}", f"# TYPE {metric.name} gauge"]
        lines += [
            f"{metric.name}{{{_pairs(labels)}}} {int(samples[labels].timestamp())}"
            for labels in sorted(samples)
        ]
    return "".join(f"{line}\n" for line in lines)


def _counts(name: str, topic: str) -> bool:
    """Tell whether a metric includes the topic, as RMQMetricsCollector#addGroupDiffMetric does."""
    match name:
        case "rocketmq_group_diff":
            return not topic.startswith((RETRY_TOPIC_PREFIX, DLQ_TOPIC_PREFIX))
        case "rocketmq_group_retrydiff":
            return topic.startswith(RETRY_TOPIC_PREFIX)
        case "rocketmq_group_dlqdiff":
            return topic.startswith(DLQ_TOPIC_PREFIX)
    return True


def _labels(metric: Metric, row: BacklogRow, system: frozenset[str]) -> Labels:
    topic, broker, group = str(row["topic"]), str(row["brokerName"]), str(row["group"])
    known = {
        "group": group,
        "consumer_group": group,
        "topic": topic,
        "broker": broker,
        "node_id": broker,
        "node_type": "broker",
        "is_retry": str(topic.startswith(RETRY_TOPIC_PREFIX)).lower(),
        "is_system": str(topic in system).lower(),
    }
    return tuple((name, known[name]) for name in metric.labels)


def _pairs(labels: Labels) -> str:
    return ",".join(f'{name}="{value.translate(_LABEL_ESCAPES)}"' for name, value in labels)
