"""SQL92 expressions choose the messages that RocketMQ's own filter module chooses."""

import pytest

from broker.toolchain import VERSIONS, Toolchain
from broker.verdicts import verdicts
from sql.expressions import expressions, messages
from sql.judged import column, ours, theirs
from support import soak

pytestmark = pytest.mark.broker

NEW_IN_5 = ("CONTAINS", "STARTSWITH", "ENDSWITH")


@pytest.mark.soak
@pytest.mark.parametrize("version", VERSIONS)
def test_the_same_messages_pass_as_in_rocketmq(toolchain: Toolchain, version: str) -> None:
    count = soak.size("SQL_EXPRESSIONS", check=1_000, test=1_000, full=100_000)
    found = messages(seed=5, count=200)
    texts = list(expressions(seed=5, count=count))
    if version.startswith("4."):
        texts = [text for text in texts if not any(word in text.upper() for word in NEW_IN_5)]
    told = verdicts(toolchain, version, found, texts)
    properties = column(found)
    wrong = {
        text: (got, want)
        for text, verdict in zip(texts, told, strict=True)
        if (got := ours(text, properties)) != (want := theirs(verdict))
    }
    assert wrong == {}
    assert "T" in "".join(map(theirs, told))
