"""What RocketMQ's filter module says of expressions and messages, by java/Verdicts.java."""

import base64
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from broker.jvm import SMALL
from broker.toolchain import Toolchain

SECONDS: Final = 120
REFUSED: Final = "refused"


def verdicts(
    tools: Toolchain,
    version: str,
    messages: Iterable[Mapping[str, str]],
    expressions: Sequence[str],
) -> list[str]:
    """Return for each expression REFUSED or a letter for each message.

    T is true, F false, N null, E an exception.
    """
    lines = [
        " ".join(["message", *(_word(text) for pair in found.items() for text in pair)])
        for found in messages
    ]
    lines += [f"ask {_word(text)}" for text in expressions]
    done = subprocess.run(
        [tools.java, *SMALL, "-cp", tools.classpath(version), "Verdicts"],
        input="\n".join(lines) + "\n",
        stdout=subprocess.PIPE,
        encoding="ascii",
        timeout=SECONDS,
        check=True,
    )
    found = [line for line in done.stdout.splitlines() if _is_answer(line)]
    assert len(found) == len(expressions), done.stdout[-2000:]
    return found


def _is_answer(line: str) -> bool:
    return line == REFUSED or not line.strip("TFNE")


def _word(text: str) -> str:
    return base64.b64encode(text.encode()).decode()
