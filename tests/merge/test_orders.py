"""Changes without a sequence, and a source whose order begins again."""

import json

import pytest

from mqstore.merge.errors import NewSourceError, NoChangeOrderError
from mqstore.merge.orders import QueueOrder
from mqstore.merge.sources import SourceWatch

MINUTE_US = 60_000_000


def test_a_changed_key_in_a_table_of_two_queues_has_no_order_whatever_comes_first() -> None:
    for first_is_moved in (True, False):
        order = QueueOrder()
        order.see("CDC/a/0", 7, 1_000, is_moved=first_is_moved)
        order.check("shop.orders")
        order = QueueOrder.of_json(json.loads(json.dumps(order.as_json())))
        order.see("CDC/a/1", 9, 1_000, is_moved=not first_is_moved)
        with pytest.raises(NoChangeOrderError, match=r"2 queues.*CDC/a/\d, offset \d"):
            order.check("shop.orders")


def test_one_queue_and_keys_that_stay_are_in_order() -> None:
    one_queue, two_queues = QueueOrder(), QueueOrder()
    one_queue.see("CDC/a/0", 7, 1_000, is_moved=True)
    for queue in "01":
        two_queues.see(f"CDC/a/{queue}", 7, 1_000, is_moved=False)
    one_queue.check("t")
    two_queues.check("t")


def test_a_clock_that_goes_back_within_a_queue_is_seen() -> None:
    order = QueueOrder()
    times = [order.see("q", n, ms, is_moved=False) for n, ms in enumerate((5, 9, 8, 9))]
    assert times == [False, False, True, False]
    assert not order.see("other", 0, 1, is_moved=False)


def test_a_replay_has_old_times_and_is_no_new_source() -> None:
    watch = SourceWatch()
    for place in (100, 200, 300, 100, 200, 300, 400):
        assert watch.see("q", place, (3, place, 0), place * MINUTE_US) == 0
    assert watch.fallen == set()


def test_a_log_that_begins_again_stops_and_goes_on_when_told() -> None:
    watch = SourceWatch()
    watch.see("q", 1, (3, 900, 0), 10 * MINUTE_US)
    watch.see("q", 2, (1, 4, 0), 10 * MINUTE_US + 5)  # Less than a minute: not known yet.
    assert watch.fallen == {"q"}
    with pytest.raises(NewSourceError, match=r"q, offset 3: the sequence 1:9:0 is below 3:900:0"):
        watch.see("q", 3, (1, 9, 0), 12 * MINUTE_US)
    watch = SourceWatch.of_json(json.loads(json.dumps(watch.as_json())))
    watch.begin_again()
    assert [
        watch.see("q", 1, (3, 900, 0), 10 * MINUTE_US),
        watch.see("q", 2, (1, 4, 0), 10 * MINUTE_US + 5),
        watch.see("q", 3, (1, 9, 0), 12 * MINUTE_US),
    ] == [0, 1, 1]
