"""The options of each call as keywords, for editors and checkers of types.

Made of the declared options: CONTRIBUTING.md tells how. A test compares the two.
"""

from collections.abc import Callable, Mapping, Sequence, Set
from datetime import datetime, timedelta
from inspect import Parameter, signature
from os import PathLike
from typing import Any, SupportsIndex, TypeAlias, TypedDict, TypeVar

Flag: TypeAlias = bool | str | None
Whole: TypeAlias = SupportsIndex | str | None
Value: TypeAlias = (
    str
    | SupportsIndex
    | datetime
    | timedelta
    | PathLike[str]
    | Sequence[Any]
    | Set[Any]
    | Mapping[Any, Any]
    | None
)
_Call = TypeVar("_Call", bound=Callable[..., Any])


class PlaceKeywords(TypedDict, total=False):
    """How a place is opened and connected to."""

    access_key: Value
    allow_unclean: Flag
    broker_addresses: Value
    broker_name: Value
    cache_dir: Value
    connect_timeout: Value
    consumer_group: Value
    credentials_file: Value
    endpoint: Value
    fs: Value
    max_frame_bytes: Value
    max_objects: Whole
    max_tasks_per_broker: Whole
    name_servers: Value
    proxies: Value
    pull_batch_size: Whole
    pulls_in_flight: Whole
    queues: Value
    read_from: Value
    read_mode: Value
    read_un_committed: Flag
    request_timeout: Value
    requests_in_flight: Whole
    retry_timeout: Value
    secret_key: Value
    security_token: Value
    store_path_commit_log: Value
    store_path_tiered: Value
    tls: Flag
    tls_ca_file: Value
    tls_cert_file: Value
    tls_key_file: Value
    tls_verify_hostname: Flag


class ScanKeywords(TypedDict, total=False):
    """What a read takes of a place."""

    access_key: Value
    against: Value
    allow_unclean: Flag
    assign: Value
    batch_bytes: Value
    batch_rows: Whole
    body: Value
    body_charset: Value
    body_date_format: Value
    body_framing: Value
    body_mask: Value
    body_mask_secret: Value
    body_message: Value
    body_mode: Value
    body_schema: Value
    body_time_zone: Value
    body_timestamp_format: Value
    body_timestamp_unit: Value
    broker_addresses: Value
    broker_conf: Value
    broker_name: Value
    by_queue: Flag
    by_tag: Flag
    cache_dir: Value
    changes: Value
    changes_schema: Value
    column_name_of_corrupt_record: Value
    columns: Value
    connect_timeout: Value
    consumer_group: Value
    credentials_file: Value
    decompress: Flag
    emit_default_values: Flag
    ending_offsets: Value
    ending_offsets_by_timestamp: Value
    ending_timestamp: Value
    endpoint: Value
    fail_on_data_loss: Flag
    file_reserved_time: Value
    fs: Value
    groups: Value
    identity: Value
    ignored_properties: Value
    include_system_topics: Flag
    interval: Value
    keys: Value
    lag_mode: Value
    late_after: Value
    look_again: Value
    max_bytes_per_partition: Value
    max_decompressed_bytes: Value
    max_frame_bytes: Value
    max_objects: Whole
    max_records_per_partition: Whole
    max_tasks_per_broker: Whole
    min_partitions: Whole
    msg_ids: Value
    name_servers: Value
    offset_map: Value
    on_corrupt: Value
    only_mapped: Flag
    proxies: Value
    pull_batch_size: Whole
    pulls_in_flight: Whole
    queues: Value
    read_from: Value
    read_mode: Value
    read_un_committed: Flag
    request_timeout: Value
    requests_in_flight: Whole
    retry_timeout: Value
    samples: Value
    secret_key: Value
    security_token: Value
    sql: Value
    starting_group: Value
    starting_offsets: Value
    starting_offsets_by_timestamp: Value
    starting_offsets_by_timestamp_strategy: Value
    starting_timestamp: Value
    store_path_commit_log: Value
    store_path_tiered: Value
    sub_expression: Value
    subscribe: Value
    subscribe_pattern: Value
    subscriptions: Value
    tags: Value
    tls: Flag
    tls_ca_file: Value
    tls_cert_file: Value
    tls_key_file: Value
    tls_verify_hostname: Flag
    trace_topic: Value
    unconsumed: Value
    verify_crc: Flag


class FollowKeywords(TypedDict, total=False):
    """What a place is followed by."""

    access_key: Value
    allow_unclean: Flag
    assign: Value
    batch_bytes: Value
    batch_rows: Whole
    body: Value
    body_charset: Value
    body_date_format: Value
    body_framing: Value
    body_mask: Value
    body_mask_secret: Value
    body_message: Value
    body_mode: Value
    body_schema: Value
    body_time_zone: Value
    body_timestamp_format: Value
    body_timestamp_unit: Value
    broker_addresses: Value
    broker_name: Value
    changes: Value
    changes_schema: Value
    column_name_of_corrupt_record: Value
    columns: Value
    commit_group: Value
    connect_timeout: Value
    consumer_group: Value
    credentials_file: Value
    decompress: Flag
    emit_default_values: Flag
    endpoint: Value
    fail_on_data_loss: Flag
    fs: Value
    include_system_topics: Flag
    keys: Value
    max_bytes_per_partition: Value
    max_bytes_per_trigger: Value
    max_decompressed_bytes: Value
    max_frame_bytes: Value
    max_objects: Whole
    max_offsets_per_trigger: Whole
    max_records_per_partition: Whole
    max_tasks_per_broker: Whole
    max_trigger_delay: Value
    min_offsets_per_trigger: Whole
    min_partitions: Whole
    msg_ids: Value
    name_servers: Value
    on_corrupt: Value
    proxies: Value
    pull_batch_size: Whole
    pulls_in_flight: Whole
    read_from: Value
    read_mode: Value
    read_un_committed: Flag
    request_timeout: Value
    requests_in_flight: Whole
    retry_timeout: Value
    secret_key: Value
    security_token: Value
    sql: Value
    starting_group: Value
    starting_offsets: Value
    starting_offsets_by_timestamp: Value
    starting_offsets_by_timestamp_strategy: Value
    starting_timestamp: Value
    store_path_commit_log: Value
    sub_expression: Value
    subscribe: Value
    subscribe_pattern: Value
    table: Value
    tags: Value
    tls: Flag
    tls_ca_file: Value
    tls_cert_file: Value
    tls_key_file: Value
    tls_verify_hostname: Flag
    trace_topic: Value
    verify_crc: Flag


class WriteKeywords(TypedDict, total=False):
    """How rows are written."""

    access_key: Value
    allow_lost_history: Flag
    allow_no_lease: Flag
    allow_system_topics: Flag
    batch_builder: Value
    batch_max_bytes: Value
    batch_max_messages: Whole
    born_host: Value
    broker_addresses: Value
    broker_cluster_name: Value
    build_index: Flag
    compress_over: Value
    compression: Value
    connect_timeout: Value
    consumer_group: Value
    control_topic: Value
    create_store: Flag
    create_topic: Flag
    credentials_file: Value
    delivery: Value
    endpoint: Value
    fence_wait: Value
    fsync: Value
    inline_bytes: Value
    interlock: Flag
    latency_fault_tolerance: Flag
    lock_timeout: Value
    machine_room: Value
    machine_rooms: Value
    mapped_file_size_commit_log: Value
    mapped_file_size_consume_queue: Value
    max_frame_bytes: Value
    max_hash_slot_num: Whole
    max_index_num: Whole
    max_message_size: Value
    max_tasks_per_broker: Whole
    name_servers: Value
    on_invalid: Value
    partitioner: Value
    producer_group: Value
    proxies: Value
    pull_batch_size: Whole
    pulls_in_flight: Whole
    queue_nums: Whole
    read_from: Value
    recover_unclean: Flag
    request_timeout: Value
    require_replica: Flag
    retry_timeout: Value
    secret_key: Value
    security_token: Value
    send_timeout: Value
    staging_dir: Value
    staging_path: Value
    store_host: Value
    timestamps: Value
    tls: Flag
    tls_ca_file: Value
    tls_cert_file: Value
    tls_key_file: Value
    tls_verify_hostname: Flag
    topic: Value
    txn_app_id: Value
    txn_version: Whole
    uniq_key: Value
    visibility_timeout: Value
    write_mode: Value


def shows(options: type) -> Callable[[_Call], _Call]:
    """Let help and completion show a call's options, as keywords in place of ``**options``."""

    def changed(call: _Call) -> _Call:
        found = signature(call)
        own = [one for one in found.parameters.values() if one.kind is not Parameter.VAR_KEYWORD]
        names = sorted(options.__annotations__.keys() - found.parameters.keys())
        more = [Parameter(name, Parameter.KEYWORD_ONLY, default=None) for name in names]
        call.__signature__ = found.replace(parameters=[*own, *more])  # type: ignore[attr-defined]
        return call

    return changed
