"""The golden trace topics, and what clients, decoder and mqadmin said about them."""

import gzip
import json
from typing import Any

from support.goldens import FOLDER

Row = dict[str, Any]
NULL_WORDS = (None, "", "null")


def lines(version: str, name: str) -> list[Row]:
    """Return the rows of ``measured`` or ``decoded``."""
    path = FOLDER / f"{version}-traces" / f"{name}.jsonl.gz"
    with gzip.open(path, "rt", encoding="utf-8") as found:
        return [json.loads(line) for line in found]


def queried(version: str) -> dict[str, str]:
    """Return by message id what queryMsgTraceById printed."""
    found: dict[str, str] = json.loads(
        (FOLDER / f"{version}-traces" / "queried.json").read_text(encoding="utf-8")
    )
    return found


def as_decoded(row: Row) -> Row:
    """Return a row of the table in the words of TraceDataEncoder, without what only one has."""
    result = row["result"] or ""
    codes = ("SUCCESS", "TIME_OUT", "EXCEPTION", "RETURNNULL", "FAILED")
    is_end = row["event"] == "EndTransaction"
    return {
        "type": row["event"],
        "timeStamp": row["timestamp"] // 1000,
        "groupName": row["group"],
        "costTime": row["costMs"] or 0,
        "success": row["success"] is not False,
        "contextCode": codes.index(result) if result in codes else 0,
        "topic": row["topic"],
        "msgId": row["msgId"],
        "offsetMsgId": row["offsetMsgId"],
        "tags": row["tags"],
        "keys": row["keys"],
        "retryTimes": row["reconsumeTimes"] or 0,
        "bodyLength": row["bodyLength"] or 0,
        "msgType": row["messageType"],
        "transactionState": result if is_end else None,
        "transactionId": row["transactionId"],
        "fromTransactionCheck": bool(row["fromCheck"]),
        # The decoder makes one up where the text has none.
        "requestId": row["requestId"],
        "regionId": row["region"],
    }


def told(context: Row) -> Row:
    """Return a context of the decoder as ``as_decoded``."""
    row = {name: None if value in NULL_WORDS else value for name, value in context.items()}
    if row["type"] not in {"SubBefore", "SubAfter"}:
        row["requestId"] = None
    for name in ("storeHost",):
        row.pop(name)
    return row


def of_queries(text: str) -> list[tuple[str, str, str, str]]:
    """Return (Pub or Sub, group, cost in ms, status) of each line that queryMsgTraceById prints."""
    words = [line.split() for line in text.splitlines() if line.startswith(("Pub ", "Sub "))]
    return sorted((w[0], w[1], w[5].removesuffix("ms"), w[6]) for w in words)


def as_queried(rows: list[Row], msg_id: str) -> list[tuple[str, str, str, str]]:
    """Return the same of the rows of the table."""
    kinds = {"Pub": "Pub", "SubAfter": "Sub"}
    return sorted(
        (kinds[r["event"]], r["group"], str(r["costMs"]), "success" if r["success"] else "failed")
        for r in rows
        if r["msgId"] == msg_id and r["event"] in kinds
    )
