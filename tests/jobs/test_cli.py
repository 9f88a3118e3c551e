"""The command on the golden stores: what it prints, where, and how it exits."""

import csv
import io
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from jobs.command import Run
from mqlog_jobs.command.app import PANELS
from mqlog_jobs.command.maintenance import app
from support import goldens

COMMANDS = [command.callback.__name__ for command in app.registered_commands if command.callback]


def test_the_backlog_is_what_the_broker_printed(run: Run, golden: tuple[str, Path]) -> None:
    version, root = golden
    theirs = goldens.progress(version)
    groups = ",".join({group for group, _, _ in theirs})
    rows = run("backlog", root, "--group", groups, "--json").rows
    ours = {
        (row["group"], row["topic"], row["queueId"]): (
            row["brokerOffset"],
            row["consumerOffset"],
            row["diff"],
        )
        for row in rows
    }

    assert theirs
    assert {key: ours[key] for key in theirs} == {
        key: (line.broker_offset, line.consumer_offset, line.diff) for key, line in theirs.items()
    }


def test_system_groups_are_shown_when_asked_for(run: Run, golden_550: Path, tmp_path: Path) -> None:
    root = tmp_path / "store"
    shutil.copytree(golden_550, root)
    table = {"offsetTable": {"GTopic@CG": {"0": 1}, "GTopic@CID_RMQ_SYS_TRANS": {"0": 1}}}
    (root / "config/consumerOffset.json").write_text(json.dumps(table))

    def groups(*options: str) -> set[object]:
        return {row["group"] for row in run("backlog", root, "--json", *options).rows}

    assert groups() == {"CG"}
    assert groups("--system") == {"CG", "CID_RMQ_SYS_TRANS"}
    assert groups("-g", "CID_RMQ_SYS_TRANS") == {"CID_RMQ_SYS_TRANS"}


def test_a_subscription_is_counted_beside_the_lag(run: Run, golden_550: Path) -> None:
    done = run("backlog", golden_550, "-g", "CG_G", "--subscription", "GA || GB")

    assert "86 messages waiting" in done.out
    assert "80 match GA || GB" in done.out
    assert "MATCHING" in done.out


def test_tags_have_rows_of_their_own(run: Run, golden_550: Path) -> None:
    rows = run("backlog", golden_550, "-g", "CG_G", "--by-tag", "--json").rows

    assert {row["tag"] for row in rows} >= {"GA", "GB", None}


def test_csv_has_the_columns_of_the_table(run: Run, golden_550: Path) -> None:
    done = run("queues", golden_550, "--topic", "GTopic", "--csv")
    rows = list(csv.DictReader(io.StringIO(done.out)))

    assert [(row["queueId"], row["maxOffset"]) for row in rows] == [
        ("0", "120"),
        ("1", "121"),
        ("2", "120"),
        ("3", "120"),
    ]


def test_topics_of_the_broker_itself_are_shown_when_asked_for(run: Run, golden_550: Path) -> None:
    users = {row["topic"] for row in run("topics", golden_550, "--json").rows}
    everyone = {row["topic"] for row in run("topics", golden_550, "--json", "--system").rows}

    assert users == {"GTopic", "GBatch", "GOrder", "GDelay", "GTx"}
    assert everyone > users | {"SCHEDULE_TOPIC_XXXX"}
    assert "SCHEDULE_TOPIC_XXXX" not in run("queues", golden_550).out
    assert "SCHEDULE_TOPIC_XXXX" in run("queues", golden_550, "--system").out


def test_a_group_that_subscribes_by_sql_is_counted(run: Run, golden_550: Path) -> None:
    def matching(*expression: str) -> list[int]:
        rows = run("backlog", golden_550, "-g", "CG_G", "--json", *expression).rows
        return [row["lagMatching"] for row in rows if row["topic"] == "GTopic"]

    by_tag = matching("--subscription", "GA || GB")
    assert matching("--sql", "TAGS IN ('GA', 'GB')") == by_tag
    assert sum(by_tag) < sum(matching())


def test_cat_takes_sql(run: Run, golden_550: Path) -> None:
    tagged = run("cat", golden_550, "GTopic", "--tag", "GA", "-n", "0", "--json").rows
    sql = run("cat", golden_550, "GTopic", "--sql", "TAGS = 'GA'", "-n", "0", "--json").rows
    assert sql == tagged != []
    refused = run("cat", golden_550, "GTopic", "--sql", "TAGS LIKE 'G%'")
    assert refused.code == 2
    assert "option --sql=" in refused.err


def test_messages_come_in_the_order_they_were_stored(run: Run, golden: tuple[str, Path]) -> None:
    version, root = golden
    rows = run("cat", root, "GTopic", "-n", "0", "--json").rows
    wanted = sorted(
        (message["physicalOffset"], message["queueId"], message["queueOffset"], message["msgId"])
        for message in goldens.expected(version)
        if message["topic"] == "GTopic"
    )

    assert [
        (row["physicalOffset"], row["queueId"], row["queueOffset"], row["msgId"]) for row in rows
    ] == wanted


def test_a_place_may_name_a_queue_and_an_offset(run: Run, golden_550: Path) -> None:
    shape = "{queueId}:{queueOffset}"

    assert run("cat", golden_550, "GTopic/1@-2", "-f", shape).out == "1:119\n1:120\n"
    assert run("cat", golden_550, "GTopic/1@7", "-n", "2", "-f", shape).out == "1:7\n1:8\n"
    assert run("cat", golden_550, "GTopic/1@121", "-f", shape).out == ""


@pytest.mark.parametrize("form", [(), ("--json",), ("-f", "{body}")])
def test_a_search_without_a_match_says_so(
    run: Run, golden_550: Path, form: tuple[str, ...]
) -> None:
    done = run("cat", golden_550, "GTopic", "--tag", "nobody", *form)

    assert done == (0, "", "no message of GTopic matches\n")


def test_a_topic_of_rocketmq_is_not_advised_for_one_of_a_user(run: Run, golden_550: Path) -> None:
    """The nearest name by letters is OFFSET_MOVED_EVENT; a cluster has a topic of its name too."""
    for name in ("OFFSET_MOVED_EVEN", "DefaultCluste", "BenchmarkTes", "DefaultCluster_REPLY"):
        assert "did you mean" not in run("cat", golden_550, name).err
    assert "did you mean RMQ_SYS_TRANS_HALF" in run("cat", golden_550, "RMQ_SYS_TRANS_HALF").err


def test_a_path_may_begin_with_the_home_directory(
    run: Run, golden_550: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(golden_550.parent))
    name = golden_550.name

    assert run("topics", f"~/{name}").code == 0
    assert run("topics", f"~/{name[:-1]}*").code == 0
    assert run("topics", golden_550, f"--commit-log=~/{name}/commitlog").code == 0
    assert run("recover", f"~/{name}").code == 0


def test_the_package_is_the_command_too(golden_550: Path) -> None:
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "mqlog_jobs",
            "cat",
            golden_550,
            "GTopic",
            "-n",
            "1",
            "-f",
            "{topic}",
        ],
        capture_output=True,
        text=True,
        check=False,
    )

    assert (done.returncode, done.stdout, done.stderr) == (0, "GTopic\n", "")


def test_tags_keys_and_times_choose(run: Run, golden_550: Path) -> None:
    tags = {row["tags"] for row in run("cat", golden_550, "GTopic", "--tag", "GA", "--json").rows}
    keyed = run("cat", golden_550, "GTopic", "--key", "late78", "-f", "{body}").out
    since = run("cat", golden_550, "GTopic", "--since", "1795230096782", "-f", "{body}").out
    until = run(
        "cat", golden_550, "GTopic", "--until", "2026-11-21T03:01:16.570Z", "-n", "0", "--json"
    ).rows

    assert tags == {"GA"}
    assert keyed == "late 78\n"
    assert "late 78\n" in since
    assert all(str(row["storeTimestamp"]) < "2026-11-21T03:01:16.570Z" for row in until)


@pytest.mark.parametrize(
    ("arguments", "condition"),
    [
        (("topics", "/no/such/store"), "[MQLOG_STORE_NOT_FOUND]"),
        (("topics", "/"), "[MQLOG_NOT_A_STORE]"),
        (("cat", "STORE", "GTopik"), "[MQLOG_UNKNOWN_TOPIC] option TOPIC: no topic GTopik"),
        (
            ("queues", "STORE", "-t", "GTopik"),
            "option --topic: no topic GTopik; did you mean GT",
        ),
        (("tags", "STORE", "-t", "GTopik"), "did you mean GTopic"),
        (("find", "STORE", "--key", "k", "-t", "GTopik"), "option --topic: no topic GTopik"),
        (("find", "STORE", "--key", ""), "option --key='': is empty: no message has it"),
        (("find", "STORE", "--id", "x", "--id", ""), "option --id='': is empty"),
        (("cat", "STORE", "GTopic", "--key", ""), "option --key='': is empty"),
        (("cat", "STORE", "GTopic", "-f", "{keys"), "no closing brace behind {keys: write {keys}"),
        (("cat", "STORE", "GTopic/9"), "topic GTopic has no queue 9; its queues are 0, 1, 2, 3"),
        (("cat", "STORE", "GTopic/0@121"), "[MQLOG_DATA_LOSS] GTopic/0: queue offsets [121, "),
        (("cat", "STORE", "GTopic/x"), "name a TOPIC, a TOPIC/QUEUE"),
        (("cat", "STORE", "GTopic/0@1", "--since", "-1h"), "not together with @OFFSET"),
        (("cat", "STORE", "GTopic", "--since", "2026-11-21T03:00:00"), "has no time zone"),
        (("cat", "STORE", "GTopic", "-f", "{nobody}"), "[MQLOG_INVALID_SCHEMA]"),
        (("cat", "STORE", "GTopic", "--tag", "||"), "[MQLOG_INVALID_OPTION]"),
        (("backlog", "STORE", "--subscription", "a"), "name it with --group"),
        (("backlog", "STORE", "--sql", "a = 5"), "name it with --group"),
        (("backlog", "STORE", "-g", "CG_G", "--sql", "a >"), "at the end: expected a property"),
        (("backlog", "STORE", "-g", "/[/"), "[MQLOG_INVALID_OPTION]"),
        (("topics", "STORE", "--csv", "--json"), "choose either --csv or --json"),
        (("cat", "STORE", "GTopic", "-f", "{body}", "--json"), "choose either --format or --json"),
        (("topics", "STORE", "-o", "tlsCaFil=x"), "no such option; did you mean tlsCaFile?"),
        (("topics", "STORE", "-o", "xyz=1"), "no such option; there are allowUnclean, "),
        (
            ("topics", "rocketmq://me:secret@h:1"),
            "rocketmq://***@h:1': has no user and no password",
        ),
        (("topics", "rocketmq://me:se/c@h:1"), "rocketmq://***@h:1': has no user and no password"),
        (("cat", "STORE", "no-such"), "no topic no-such; the topics are GBatch, GDelay, "),
        (("backlog", "STORE", "-g", "no-such"), "the groups are CG_G, DUMP_GROUP, LP_G, CID_"),
        (("report", "STORE", "-o", "tlsCaFile=x"), "an option of a cluster is --option NAME=VALUE"),
        (("backlog", "STORE", "--count", "3"), "option --count='3': belongs to --watch"),
        (("backlog", "STORE", "--interval", "3"), "option --interval='3.0': belongs to --watch"),
        (
            ("backlog", "STORE", "--watch", "--interval", "0"),
            "option --interval='0': must be great",
        ),
        (("cat", "STORE", "GTopic", "-n", "abc"), "option -n='abc': must be a whole number\n"),
        (("cat", "STORE", "GTopic", "-n-1"), "option -n='-1': must be greater than or equal to 0"),
        (("top", "STORE", "--interval=x"), "option --interval='x': must be a number\n"),
        (("cat", "STORE", "GTopic", "-n"), "Option '-n' requires an argument. See: mqlog cat -h"),
        (("cat", "STORE", "GTopic", "--nosuch"), "No such option: --nosuch. See: mqlog cat -h"),
        (("cat", "STORE"), "Missing argument TOPIC. It follows the places. To list topics: mqlog"),
        (("sql", "STORE"), "Missing argument QUERY. It follows the places: mqlog sql PLACE 'SHOW"),
        (("topics",), "Missing argument 'PLACE...'. See: mqlog topics -h\n"),
        (("ca", "STORE"), "No such command 'ca'. Did you mean 'cat'? See: mqlog -h\n"),
        (("copy", "a", "b", "c\x1b"), "unexpected extra argument(s) (c\\x1b). See: mqlog copy"),
        (("topics", "http://ns1:9876"), "a cluster is rocketmq://ns1:9876\n"),
        (("topics", "ns1:9876"), "a cluster is rocketmq://ns1:9876\n"),
    ],
)
def test_a_mistake_is_one_line_on_standard_error_and_exit_code_two(
    run: Run, golden_550: Path, arguments: tuple[str, ...], condition: str
) -> None:
    code, out, err = run(*(golden_550 if word == "STORE" else word for word in arguments))

    assert (code, out) == (2, "")
    assert condition in err
    assert err.startswith("mqlog: [MQLOG_")
    assert err.count("\n") == 1


def test_a_whole_store_verifies_and_a_damaged_one_exits_with_one(
    run: Run, golden_550: Path, tmp_path: Path
) -> None:
    assert run("verify", golden_550).code == 0

    root = goldens.unpack("5.5.0", tmp_path)
    with (root / "commitlog" / "00000000000000000000").open("r+b") as log:
        log.seek(1146 + 88)  # The body of a record.
        log.write(b"!")
    done = run("verify", root, "--json")

    assert done.code == 1
    assert [row["severity"] for row in done.rows] == ["error"]


def test_every_command_has_help_with_an_example(run: Run) -> None:
    for command in ("backlog", "topics", "queues", "cat", "verify", "doctor", "demo"):
        assert f"mqlog {command}" in run(command, "--help").out.split("Example")[1]


def test_a_help_names_values_and_no_types_of_python(run: Run) -> None:
    for command in (*COMMANDS, ""):
        text = run(*filter(None, (command, "--help"))).out
        assert not re.search(r"<(bool|int|str|list|path|float)", text), command
    assert re.search(r"--key-separator +-K +TEXT ", run("send", "--help").out)
    assert "cluster" not in run("commits", "--help").out  # It refuses one.


def test_the_bare_word_fits_a_screen_and_is_no_error(run: Run) -> None:
    done = run()

    assert (done.code, done.err) == (0, "")
    lines = done.out.splitlines()
    assert len(lines) <= 24
    assert max(map(len, lines)) < 80
    assert "  backlog  the messages that" in done.out
    assert f"all {len(COMMANDS)} commands" in done.out


def test_a_line_of_usage_names_each_argument_once(run: Run) -> None:
    usage = {name: " ".join(run(name, "--help").out.split("╭")[0].split()) for name in COMMANDS}

    assert "cat [OPTIONS] PLACE... TOPIC[/QUEUE[@OFFSET]]" in usage["cat"]
    assert "doctor [OPTIONS] [PLACE...]" in usage["doctor"]
    assert not [name for name, text in usage.items() if "}..." in text or "......" in text]


NUMBERS = (
    (
        "backlog /nowhere --fail-above",
        "backlog /nowhere --watch --interval",
        "top /nowhere --count",
    ),
    ("backlog /nowhere --watch --count", "top /nowhere --interval", "cat /nowhere T -n"),
    ("table files /nowhere -n", "scheduled /nowhere -n", "retries /nowhere -n"),
    ("halfmessages /nowhere -n", "record /nowhere FILE --count", "snapshot /nowhere R --count"),
    ("replay /nowhere rocketmq://127.0.0.1:1 --rate", "recover /nowhere --file-size"),
    ("send rocketmq://127.0.0.1:1 T --delay-level",),
)


@pytest.mark.parametrize("text", ["99999999999999999999", "inf", "nan", "-1", "1e400", ""])
def test_a_number_that_means_nothing_is_refused_by_name(run: Run, text: str) -> None:
    for line in (line for lines in NUMBERS for line in lines):
        *words, flag = line.split()
        done = run(*words, f"{flag}={text}" if flag.startswith("--") else f"{flag}{text or '='}")
        assert done.code == 2, line
        assert flag in done.err, (line, done.err)
        assert done.err.count("\n") == 1, line


def test_a_screen_of_a_size_that_none_has_is_not_drawn() -> None:
    environment = {**os.environ, "COLUMNS": "99999999", "LINES": "-1", "TERMINAL_WIDTH": "x"}
    program = [sys.executable, "-m", "mqlog", "-h"]
    done = subprocess.run(
        program, env=environment, capture_output=True, check=True, timeout=120, encoding="utf-8"
    )
    assert max(map(len, done.stdout.splitlines())) <= 200


def test_the_list_of_commands_has_parts_in_their_order(run: Run) -> None:
    text = run("--help").out
    places = [text.index(part) for part in PANELS]

    assert places == sorted(places)
    assert all(re.search(rf"^│ {name} ", text, re.MULTILINE) for name in COMMANDS)


def test_a_missing_topic_is_named_and_where_to_find_it(run: Run, golden_550: Path) -> None:
    done = run("cat", golden_550)
    words = re.sub(r"[\s│]+", "", done.err)

    assert done.code == 2
    assert f"MissingargumentTOPIC.Itfollowstheplaces.Tolisttopics:mqlogtopics{golden_550}" in words


def test_an_address_with_its_topic_is_told_to_be_two_arguments(run: Run) -> None:
    told = run("cat", "rocketmq://ns1:9876/ORDERS")
    words = re.sub(r"[│\s]", "", told.err)
    assert (told.code, "Write:mqlogcatrocketmq://ns1:9876ORDERS" in words) == (2, True)
    told = run("backlog", "rocketmq://ns1:9876/ORDERS")
    assert (told.code, "must be the cluster alone" in told.err) == (2, True)


def test_a_server_without_a_scheme_is_told_the_address_of_a_cluster(run: Run) -> None:
    told = run("backlog", "ns1:9876")
    assert (told.code, "a cluster is rocketmq://ns1:9876" in told.err) == (2, True)


def test_a_command_starts_without_spark_and_stops_when_its_reader_does(golden_550: Path) -> None:
    """In a process of its own, as a user starts it, with a pipe that closes after one line."""
    program = (
        "import sys; from mqlog_jobs import cli; assert 'pyspark' not in sys.modules; cli.main()"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", program, "cat", golden_550, "GTopic", "-n", "0", "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONWARNINGS": "error"},
    )
    assert process.stdout is not None
    assert process.stderr is not None
    with process.stdout, process.stderr:
        assert process.stdout.readline().startswith(b'{"topic":"GTopic"')
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.wait() == 141
