"""Writes verdicts.json: what RocketMQ's filter module says of expressions and messages.

    PYTHONPATH=tests python tests/read/sql/make_verdicts.py

Needs Maven and a JDK. The expressions are those of ``expressions.py`` by the seed below, and the
ones listed here, each of which shows a rule.
"""

import json
from pathlib import Path
from typing import Final

from broker.toolchain import Toolchain
from broker.verdicts import verdicts
from read.sql.expressions import expressions, messages

VERSION: Final = "5.5.0"
SEED: Final = 92
MADE: Final = 240
MESSAGES: Final = 110
PATH: Final = Path(__file__).with_name("verdicts.json")
TOLD: Final = [
    *("a > 5", "a >= 5.0", "5 < a", "a = 5", "5 = a", "a <> 5", "a = 5.0", "a = '5'", "'5' = 5"),
    *("a = 2147483647", "a = 2147483648", "a < 9223372036854775807", "a = -9223372036854775807"),
    *("a = b", "a <> b", "a > b", "a IS NULL", "a IS NOT NULL", "(a > 5) IS NULL", "NULL IS NULL"),
    *("a", "NOT a", "a = TRUE", "TRUE = a", "a AND TRUE", "(a = 5) = (b = 5)", "(a = 5) = b"),
    *("a > 5 OR TRUE", "TRUE OR a > 5", "a > 5 AND FALSE", "FALSE AND a > 5", "NOT (a > 5)"),
    *(
        "NULL",
        "TRUE",
        "NOT NULL",
        "a BETWEEN 5 AND 7",
        "a NOT BETWEEN 5 AND 7",
        "a BETWEEN b AND c",
    ),
    *("a BETWEEN -1 AND -5", "a BETWEEN 9007199254740993 AND 9007199254740992.0", "a = -'x'"),
    *("a IN ('5', 'x', 'it''s')", "a NOT IN ('5')", "a CONTAINS 'x'", "a NOT CONTAINS 'x'"),
    *("a STARTSWITH 'a'", "a ENDSWITH 'c'", "a NOT ENDSWITH ''", "'abc' CONTAINS 'b'", "-a > 5"),
    *("a > 5 garbage", "a = 007", "a > 5 -- to the end", "a > 5 /* seen */ AND b = 'x'"),
    # Refused.
    *("", "a >", "a > 'x'", "a > TRUE", "a = NULL", "a BETWEEN 7 AND 5", "a IN (5)", "a IN ()"),
    *("NOT a > 5", "NOT a IN ('5')", "5", "'x'", "-a", "a = 0.0", "a = 9223372036854775808"),
    *("a = 1e400", "a.b = 5", "a != 5", "a NOT 5", "a IS 5", "TRUE = 5", "a > 5 .", "(a", "a = 'x"),
]


def main() -> None:
    """Ask the filter module, and write the file."""
    tools = Toolchain.find()
    assert tools is not None
    found, texts = messages(SEED, MESSAGES), [*TOLD, *expressions(SEED, MADE)]
    told = verdicts(tools, VERSION, found, texts)
    rows = [json.dumps(pair) for pair in zip(texts, told, strict=True)]
    properties = [json.dumps(each) for each in found]
    PATH.write_text(
        f'{{"rocketmq": "{VERSION}",\n"messages": [\n'
        + ",\n".join(properties)
        + '],\n"verdicts": [\n'
        + ",\n".join(rows)
        + "]}\n"
    )


if __name__ == "__main__":
    main()
