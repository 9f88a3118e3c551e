"""The messages of the demo: orders of a shop, their payments and their parcels.

The rows are the same at each run. An order is created, then paid or cancelled; a paid one is
packed, sent and delivered. All messages of an order carry it as their key and sharding key, so that
``partitioner=hash`` puts them in one queue, in order.
"""

import json
import random
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Final, NamedTuple

ORDERS: Final = "SHOP_ORDERS"
PAYMENTS: Final = "SHOP_PAYMENTS"
PARCELS: Final = "SHOP_PARCELS"
MESSAGE_DDL: Final = (
    "topic string, tags string, keys string, shardingKey string, "
    "properties map<string,string>, body string, bornTimestamp timestamp, "
    "storeTimestamp timestamp"
)
_SEED: Final = 20
_ARTICLES: Final = (("teapot", 2490), ("kettle", 3900), ("cup", 850), ("tray", 1750), ("tin", 620))
_TOWNS: Final = ("Lisbon", "Oslo", "Kyoto", "Québec", "Porto", "Graz", "上海", "Kraków")
_CHANNELS: Final = ("web", "app", "phone")
_METHODS: Final = ("card", "transfer", "wallet")
_CANCELLED: Final = 0.12
_DECLINED: Final = 0.08


class ShopMessage(NamedTuple):
    """One row of the DataFrame; the names are those of a write's columns."""

    topic: str
    tags: str
    keys: str
    shardingKey: str  # noqa: N815 - a column's name
    properties: dict[str, str]
    body: str
    bornTimestamp: datetime  # noqa: N815
    storeTimestamp: datetime  # noqa: N815


def messages(orders: int, until: datetime) -> list[ShopMessage]:
    """Return the messages of ``orders`` orders in the hour before ``until``, by store time."""
    dice = random.Random(_SEED)
    born: list[ShopMessage] = []
    for number in range(orders):
        start = until - timedelta(minutes=60 - 45 * number / orders - dice.random() / 3)
        born += _life(dice, f"A-{10_000 + number}", start)
    return sorted(born, key=lambda message: message.storeTimestamp)


def _life(dice: random.Random, order: str, start: datetime) -> Iterator[ShopMessage]:
    """Yield the messages of one order, seconds to minutes apart."""
    article, cents = dice.choice(_ARTICLES)
    pieces = dice.randint(1, 6)
    town = dice.choice(_TOWNS)
    properties = {"channel": dice.choice(_CHANNELS), "town": town}

    def row(topic: str, tag: str, after_seconds: float, **fields: object) -> ShopMessage:
        body = json.dumps({"order": order, **fields}, ensure_ascii=False)
        born = start + timedelta(seconds=after_seconds)
        stored = born + timedelta(milliseconds=dice.randint(1, 9))
        return ShopMessage(topic, tag, order, order, properties, body, born, stored)

    yield row(ORDERS, "created", 0, article=article, pieces=pieces, cents=pieces * cents)
    if dice.random() < _CANCELLED:
        yield row(ORDERS, "cancelled", 40, reason=dice.choice(("too slow", "too dear", "twice")))
        return
    method = dice.choice(_METHODS)
    if dice.random() < _DECLINED:
        yield row(PAYMENTS, "declined", 20, cents=pieces * cents, method=method)
    yield row(PAYMENTS, "captured", 60, cents=pieces * cents, method=method)
    yield row(ORDERS, "paid", 61, cents=pieces * cents)
    for tag, after in (("packed", 180), ("sent", 420), ("delivered", 840)):
        yield row(PARCELS, tag, after, town=town, grams=pieces * 350)
