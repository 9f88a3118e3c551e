"""The words for the orders of ``mqlog top``; each begins with its key."""

from typing import Final

TOP_ORDERS: Final = ("lag", "in", "consumed", "time", "group")
