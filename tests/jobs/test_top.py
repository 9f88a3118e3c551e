"""mqlog top: rates and lags of a store that grows, on a terminal and in a pipe."""

import codecs
import json
import os
import pty
import re
import select
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from rich.console import Console

from jobs.command import Run
from mqlog_jobs.output.amounts import rate
from mqlog_jobs.places import Named
from mqlog_jobs.top.frame import draw, draw_queues
from mqlog_jobs.top.meter import WINDOW_S, Flow, Measured, Meter
from mqlog_jobs.top.queues import QueueFlow
from mqlog_jobs.top.view import ESCAPE, SORT_KEYS, Shown, Sorting
from mqstore.backlog import BacklogRequest
from support.growing import grow
from support.oracle import Message
from support.stores import Laid, Layout, MakeStore

SECONDS = 60
NEVER_MS = 10**15
UP, DOWN = "\x1b[A", "\x1b[B"
ANSI = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
PROGRAM = "import sys; from mqlog_jobs.cli import main; sys.argv[0] = 'mqlog'; main()"


def messages(count: int) -> list[Message]:
    """Return messages of two topics, A with three times as many as B."""
    return [
        Message(topic="B" if n % 4 == 3 else "A", store_timestamp_ms=1000 + n) for n in range(count)
    ]


def commit(laid: Laid, offsets: Mapping[tuple[str, str], int]) -> None:
    """Write what groups have consumed of queue 0, as a broker does: a new file in its place."""
    text = {f"{topic}@{group}": {"0": at} for (topic, group), at in offsets.items()}
    file = laid.root / "config" / "consumerOffset.json"
    file.with_suffix(".new").write_text(json.dumps({"offsetTable": text}))
    file.with_suffix(".new").rename(file)


@dataclass
class Clock:
    """Seconds, moved by hand."""

    now: float = 100.0

    def __call__(self) -> float:
        return self.now


@dataclass
class Watched:
    """A store that grows, its meter, and the meter's clock."""

    laid: Laid
    clock: Clock = field(default_factory=Clock)

    def meter(self) -> Iterator[Meter]:
        with (
            Named.of([str(self.laid.root)]).opened(damaged=True) as stores,
            closing(
                Meter(stores, BacklogRequest(late_after_ms=NEVER_MS), clock=self.clock)
            ) as meter,
        ):
            yield meter

    def after(self, seconds: float, count: int, offsets: Mapping[tuple[str, str], int]) -> None:
        self.clock.now += seconds
        self.laid = grow(self.laid, messages(count))
        commit(self.laid, offsets)


@pytest.fixture
def watched(store: MakeStore) -> Watched:
    laid = store(messages(400), Layout(queue_units=100, index=False))
    commit(laid, {("A", "G"): 100, ("A", "H"): 300})
    return Watched(laid)


@pytest.fixture
def meter(watched: Watched) -> Iterator[Meter]:
    yield from watched.meter()


def flows(measured: Measured) -> dict[tuple[str | None, str], Flow]:
    return {(flow.group, flow.topic): flow for flow in measured.flows}


def test_a_first_look_knows_lags_and_no_rates(meter: Meter) -> None:
    found = flows(meter.measure())

    assert {pair: flow.lag for pair, flow in found.items()} == {
        ("G", "A"): 200,
        ("H", "A"): 0,
        (None, "B"): None,
    }
    assert all(flow.stored is flow.consumed is None for flow in found.values())
    assert found["G", "A"].caught_up_s is None
    assert found["H", "A"].caught_up_s == 0


def test_rates_are_those_between_two_looks(watched: Watched, meter: Meter) -> None:
    meter.measure()
    watched.after(10, 440, {("A", "G"): 180, ("A", "H"): 300})

    measured = meter.measure()
    found = flows(measured)

    assert measured.stored == pytest.approx(4)
    assert found["G", "A"].lag == 150
    assert found["G", "A"].stored == pytest.approx(3)
    assert found["G", "A"].consumed == pytest.approx(8)
    assert found["G", "A"].caught_up_s == pytest.approx(150 / 5)
    assert (found["H", "A"].lag, found["H", "A"].consumed) == (30, 0)
    assert found["H", "A"].caught_up_s is None
    assert found[None, "B"].stored == pytest.approx(1)
    assert found["G", "A"].lags == (200, 150)


def test_rates_are_of_the_last_half_minute(watched: Watched, meter: Meter) -> None:
    meter.measure()
    for step in range(1, 11):  # A burst, then nothing.
        watched.after(5, 480 if step > 1 else 440, {("A", "G"): 100, ("A", "H"): 300})
        measured = meter.measure()

    assert WINDOW_S == 30
    assert measured.stored == 0
    assert len(flows(measured)["G", "A"].lags) <= WINDOW_S / 5 + 1


def test_a_long_interval_has_rates_too(watched: Watched, meter: Meter) -> None:
    for seconds in (0, 100, 100):
        watched.after(seconds, 400 + 4 * int(watched.clock.now - 100), {("A", "G"): 100})
        measured = meter.measure()

    assert measured.stored == pytest.approx(4)


def test_queues_of_a_group_have_lags_at_once_and_rates_from_the_next_look(
    watched: Watched, meter: Meter
) -> None:
    meter.measure()
    (first,) = meter.queues("G", "A")
    assert (first.place, first.lag, first.stored, first.status) == (
        ("broker-1", "A", 0),
        200,
        None,
        "OK",
    )
    watched.after(10, 440, {("A", "G"): 180, ("A", "H"): 300})
    meter.measure()
    (found,) = meter.queues("G", "A")
    assert (found.lag, found.consumer_offset, found.high) == (150, 180, 330)
    assert found.stored == pytest.approx(3)
    assert found.consumed == pytest.approx(8)
    (alone,) = meter.queues(None, "B")
    assert (alone.place[1], alone.lag, alone.consumed, alone.stored) == ("B", None, None, None)
    for _ in range(20):
        watched.after(5, 440, {("A", "G"): 180})
        meter.measure()
    assert meter.queues(None, "B")[0].stored == 0


def test_flows_of_one_topic_are_its_alone(run: Run, watched: Watched) -> None:
    def pairs(*words: str) -> list[tuple[object, object]]:
        rows = run("top", watched.laid.root, "--interval", "0.1", "--json", *words).rows
        return [(row["group"], row["topic"]) for row in rows]

    assert pairs("-t", "A") == [("G", "A"), ("H", "A")]
    assert pairs("-t", "B") == [(None, "B")]
    first = run("top", watched.laid.root, "--interval", "0.1", "-t", "B").out.partition("\n")[0]
    assert first.split()[:3] == ["broker-1", "1", "queue"]


def test_a_new_topic_and_a_new_group_turn_up(watched: Watched, meter: Meter) -> None:
    meter.measure()
    watched.clock.now += 1
    more = [*messages(400), Message(topic="NEW", store_timestamp_ms=9000)]
    watched.laid = grow(watched.laid, more)
    commit(watched.laid, {("NEW", "LATE"): 0})

    assert flows(meter.measure())["LATE", "NEW"].lag == 1


def flow(group: str | None, lag: int | None, stored: float, consumed: float | None) -> Flow:
    return Flow(group, "T", lag, stored, consumed, () if lag is None else (lag,))


FLOWS = (
    flow("slow", 100, 5, 1),
    flow("quick", 300, 1, 31),
    flow("even", 60, 2, 7),
    flow("done", 0, 9, 9),
    flow(None, None, 70, None),
)


@pytest.mark.parametrize(
    ("by", "names"),
    [
        ("lag", ["quick", "slow", "even", "done", None]),
        ("in", [None, "done", "slow", "even", "quick"]),
        ("consumed", ["quick", "done", "even", "slow", None]),
        ("time", ["slow", "even", "quick", "done", None]),
        ("group", ["done", "even", "quick", "slow", None]),
    ],
)
def test_rows_are_sorted_as_asked(by: str, names: list[str | None]) -> None:
    assert [one.group for one in Sorting(by).of(FLOWS)] == names
    backwards = [one.group for one in Sorting(by, back=True).of(FLOWS)]
    assert backwards == names[::-1]


def test_idle_topics_are_last_in_every_order() -> None:
    idle = Flow(None, "A", None, 0, None), Flow(None, "B", None, None, None)
    for by in SORT_KEYS.values():
        for back in (False, True):
            assert {flow.topic for flow in Sorting(by, back=back).of([*idle, *FLOWS])[-2:]} == {
                "A",
                "B",
            }


def pressed(view: Shown, *keys: str, queues: int = 0) -> Shown:
    """Return the view after some keys, none of which ends it."""
    for key in keys:
        after = view.after(key, FLOWS, queues)
        assert after is not None
        view = after
    return view


def test_keys_sort_turn_round_and_move() -> None:
    view = Shown(Sorting("lag"))

    assert pressed(view, "t").sorting == Sorting("time")
    assert pressed(view, "l").sorting == Sorting("lag", back=True)
    assert pressed(view, "r").sorting == Sorting("lag", back=True)
    assert pressed(view, DOWN).cursor == 1
    assert pressed(view, "\x1b[6~").cursor == len(FLOWS) - 1
    assert pressed(view, UP).cursor == 0
    assert pressed(view, "x") == view
    for key in ("q", "Q", ESCAPE):
        assert view.after(key, FLOWS) is None


def test_a_filter_chooses_groups_and_topics_by_a_part_of_their_names() -> None:
    def names(view: Shown) -> list[str | None]:
        return [flow.group for flow in view.rows(FLOWS)]

    typed = pressed(Shown(Sorting("lag")), "/", *"LOWq")
    assert (typed.pattern, typed.typing) == ("LOWq", True)  # q is a character of it.
    assert names(typed) == []
    typed = pressed(typed, "\x7f")
    assert names(typed) == ["slow"]
    kept = pressed(typed, "\n")
    assert (kept.pattern, kept.typing) == ("LOW", False)
    assert pressed(kept, "t").pattern == "LOW"
    assert names(pressed(kept, ESCAPE)) == names(Shown(Sorting("lag")))
    assert names(pressed(typed, ESCAPE)) == names(Shown(Sorting("lag")))
    assert len(names(pressed(Shown(Sorting()), "/", "T"))) == len(FLOWS)  # The topic of all.
    assert pressed(typed, UP).pattern == "LOW"


def test_enter_opens_the_queues_of_the_chosen_row_and_escape_leaves_them() -> None:
    opened = pressed(Shown(Sorting("lag")), DOWN, "\r")
    assert opened.opened == ("slow", "T")
    scrolled = pressed(opened, DOWN, DOWN, DOWN, queues=3)
    assert (scrolled.cursor, scrolled.opened) == (2, opened.opened)
    assert pressed(opened, "t").sorting == Sorting("lag")
    for key in (ESCAPE, "\r"):
        assert pressed(opened, key).opened is None
    assert pressed(Shown(Sorting("lag")), "\x1b[6~", "\r").opened == (None, "T")
    assert pressed(Shown(Sorting("lag")), "/", "?", "\n", "\n").opened is None  # There is no row.


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, "–"), (0, "0"), (0.04, "0.04"), (12.34, "12.3"), (1234.6, "1,235"), (-3, "-3.0")],
)
def test_a_rate_is_short(value: float | None, text: str) -> None:
    assert rate(value) == text


@pytest.mark.parametrize("width", [80, 120])
def test_a_frame_fits_its_terminal(width: int, capsys: pytest.CaptureFixture[str]) -> None:
    names = tuple(
        Flow(f"GROUP_{n}", "A_RATHER_LONG_TOPIC_NAME", 10**6, 1e4, 1.5) for n in range(30)
    )
    measured = Measured(names, ("broker-a", "broker-b"), 1234, 1e5, ("broker-b: no answer",))
    console = Console(width=width, force_terminal=True, color_system=None)
    draw(console, measured, Shown(Sorting(), cursor=12), 10)
    lines = ANSI.sub("", capsys.readouterr().out).splitlines()

    assert max(map(len, lines)) <= width
    assert "broker-a and 1 more" in lines[0]
    assert "away: broker-b: no answer" in lines[1]
    assert "4 to 13 of 30; the arrows move" in lines
    rows = [line for line in lines if "GROUP_" in line]
    assert len(rows) == 10
    assert [line.startswith("▸") for line in rows] == [False] * 9 + [True]


@pytest.mark.parametrize("width", [80, 120])
def test_a_frame_of_queues_fits_its_terminal(
    width: int, capsys: pytest.CaptureFixture[str]
) -> None:
    queues = [
        QueueFlow(("broker-a", "A_RATHER_LONG_TOPIC_NAME", n), 10**9, 5, 10**6, 1e4, None, "OK")
        for n in range(30)
    ]
    measured = Measured((), ("broker-a",), 30, 1e5, ())
    console = Console(width=width, force_terminal=True, color_system=None)
    draw_queues(console, measured, Shown(Sorting(), 25, opened=("G", "T")), queues, 10)
    lines = ANSI.sub("", capsys.readouterr().out).splitlines()

    assert max(map(len, lines)) <= width
    assert lines[1] == "G  30,000,000 messages waiting in 30 queues"
    assert "21 to 30 of 30; the arrows move" in lines


def test_in_a_pipe_it_prints_one_frame_and_ends(run: Run, watched: Watched) -> None:
    done = run("top", watched.laid.root, "--interval", "0.1")

    assert (done.code, done.err) == (0, "")
    lines = done.out.splitlines()
    assert lines[0].split() == ["broker-1", "2", "queues", "in", "0/s", "waiting", "200"]
    assert [line.split()[0] for line in lines[3:]] == ["G", "H", "–"]
    assert "\x1b" not in done.out


def test_a_program_gets_rows(run: Run, watched: Watched) -> None:
    done = run("top", watched.laid.root, "--interval", "0.1", "--json", "--sort", "group")

    assert [(row["group"], row["topic"], row["lag"]) for row in done.rows] == [
        ("G", "A", 200),
        ("H", "A", 0),
        (None, "B", None),
    ]
    assert done.rows[1]["secondsUntilCaughtUp"] == 0


def test_a_pipe_gets_as_many_frames_as_it_asks_for(run: Run, watched: Watched) -> None:
    words = ("top", watched.laid.root, "--interval", "0.1", "--count", "3")

    assert len(run(*words, "--json").rows) == 9
    text = run(*words).out
    assert text.count("GROUP") == 3
    assert "\x1b" not in text


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--sort", "name"), "must be one of lag, in, consumed, time, group"),
        (("--interval", "inf"), "--interval='inf': must be at most 86,400 seconds"),
        (("--group", "nobody"), "MQLOG_UNKNOWN_GROUP"),
        (("--topic", "C"), "MQLOG_UNKNOWN_TOPIC"),
    ],
)
def test_what_cannot_be_shown_is_one_line(
    run: Run, watched: Watched, words: tuple[str, ...], said: str
) -> None:
    done = run("top", watched.laid.root, *words)

    assert (done.code, done.out) == (2, "")
    assert said in done.err


class Terminal:
    """The command on a pseudo-terminal of its own; it is killed if it does not end."""

    def __init__(self, root: Path, *words: str, columns: int = 100) -> None:
        self.ours, self.theirs = pty.openpty()
        termios.tcsetwinsize(self.theirs, (24, columns))
        self.before = termios.tcgetattr(self.theirs)
        environment = {**os.environ, "TERM": "xterm-256color"}
        for name in ("COLUMNS", "LINES", "NO_COLOR", "CI"):
            environment.pop(name, None)
        self.process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, "top", str(root), *words],
            stdin=self.theirs,
            stdout=self.theirs,
            stderr=subprocess.PIPE,
            env=environment,
            start_new_session=True,
        )
        self.told = ""
        self.decoder = codecs.getincrementaldecoder("utf-8")()

    def until(self, holds: Callable[[str], object]) -> str:
        """Read until it holds for what was drawn since the last call; return that."""
        end, self.told = time.monotonic() + SECONDS, ""
        while not holds(self.told):
            assert select.select([self.ours], [], [], max(end - time.monotonic(), 0))[0], self.told
            self.told += ANSI.sub("", self.decoder.decode(os.read(self.ours, 1 << 16)))
        return self.told

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(SECONDS)
        assert self.process.stderr is not None
        self.process.stderr.close()
        for fd in (self.ours, self.theirs):
            with suppress(OSError):
                os.close(fd)


@pytest.mark.skipif(not hasattr(termios, "tcsetwinsize"), reason="no tcsetwinsize here")
def test_on_a_terminal_it_follows_the_store_takes_keys_and_leaves_all_as_it_was(
    watched: Watched,
) -> None:
    with closing(Terminal(watched.laid.root, "--interval", "0.2")) as terminal:
        first = terminal.until(lambda told: "[q]uit" in told)
        assert re.search(r"G +A +200 ", first)
        watched.after(1, 480, {("A", "G"): 350, ("A", "H"): 300})
        terminal.until(lambda told: re.search(r"H +A +60 .*G +A +10 ", told, re.DOTALL))
        os.write(terminal.ours, b"g")
        terminal.until(lambda told: re.search(r"G +A +10 .*H +A +60 ", told, re.DOTALL))
        os.write(terminal.ours, b"/h\r")
        kept = terminal.until(lambda told: "[/]h " in told)
        assert not re.search(r"\bG +A ", kept.rpartition("GROUP")[2])
        os.write(terminal.ours, b"\r")
        terminal.until(lambda told: re.search(r"H +60 messages waiting in 1 queue", told))
        os.write(terminal.ours, b"\x1b")
        terminal.until(lambda told: "[l]ag" in told)
        os.write(terminal.ours, b"q")
        assert terminal.process.wait(SECONDS) == 0
        assert terminal.process.stderr is not None
        assert terminal.process.stderr.read() == b""
        assert termios.tcgetattr(terminal.theirs) == terminal.before


@pytest.mark.skipif(not hasattr(termios, "tcsetwinsize"), reason="no tcsetwinsize here")
def test_an_interrupt_ends_it_and_the_terminal_is_as_before(watched: Watched) -> None:
    with closing(Terminal(watched.laid.root, "--interval", "30", columns=80)) as terminal:
        terminal.until(lambda told: "[q]uit" in told)
        os.kill(terminal.process.pid, 2)
        assert terminal.process.wait(SECONDS) == 130
        assert termios.tcgetattr(terminal.theirs) == terminal.before
