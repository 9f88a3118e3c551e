"""A decision that somebody made up, as .mqlog/txn/pending.json holds one."""

import json
import zlib
from dataclasses import MISSING, fields

from mqstore.files.txn import intent

JOB = "0123456789abcdef0123456789abcdef"


def made_up(**changed: object) -> dict[str, object]:
    """The decision of a job whose staged files are not there."""
    body: dict[str, object] = {
        "job_id": JOB, "key": None, "state": "decided", "generation": 0, "staging": "",
        "segments": [{"name": "0-1-a.mqb", "partition": 0, "size": 500, "frame_count": 1,
                      "message_count": 1, "records_bytes": 120, "digest": "0" * 64}],
        "host_variant": 0, "log_start": 0, "tail": 3000, "end": 3200, "first": 3000, "last": 3000,
        "messages": 1, "bytes": 120, "skipped": 0, "key_count": 0,
        "store_timestamp_ms": 1_700_000_000_000, "last_store_timestamp_ms": 1_700_000_000_000,
        "queues": [["T", 0, 30, 1]], "sizes": {"commit_log": 4096, "consume_queue": 160,
                                               "max_hash_slot_num": 7, "max_index_num": 40},
    }  # fmt: skip
    known = {one.name: one.default for one in fields(intent.Intent) if one.default is not MISSING}
    return {**known, **body, **changed}


def with_sum(body: object) -> str:
    """The text of a small file of ours with that body and the sum that is right for it."""
    told = json.dumps(body, separators=(",", ":"))
    return f'{{"crc":{zlib.crc32(told.encode())},"body":{told}}}'
