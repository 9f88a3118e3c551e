import argparse
import errno

import pytest
from pyspark.errors import AnalysisException, PythonException

from mqlog_jobs.machine import exit_codes
from mqlog_jobs.spark import arguments, backlog, export
from mqlog_jobs.spark.arguments import RowsPlace
from mqstore.errors import StoreNotFoundError


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("parquet:/data/a:b", RowsPlace("parquet", "/data/a:b")),
        ("csv:s3a://bucket/key", RowsPlace("csv", "s3a://bucket/key")),
        ("table:shop.orders", RowsPlace("table", "shop.orders")),
        ("console", RowsPlace("console", "")),
    ],
)
def test_a_place_is_a_format_and_a_place(text: str, place: RowsPlace) -> None:
    assert arguments.target(text) == place


@pytest.mark.parametrize("text", ["/data/orders", "orc:/data", "parquet:", "", "console"])
def test_what_is_no_place_to_read_from_is_told_what_is(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="parquet:PATH, csv:PATH, json:PATH"):
        arguments.source(text)


def test_a_report_that_is_no_place_is_told_every_place(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="'consol': write console, parquet:PATH"):
        arguments.target("consol")
    with pytest.raises(SystemExit):
        backlog.main(["--from", "/s", "--to", "consol"])
    assert "'consol': write console, parquet:PATH" in capsys.readouterr().err


@pytest.mark.parametrize("text", ["parquett:/x", "csv:/x", "table:t", "parquet:", "/x"])
def test_an_export_to_another_place_is_told_the_only_form(
    text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        export.main(["--from", "/s", "--to", text])
    assert f"{text!r}: exports are Parquet; write parquet:PATH\n" in capsys.readouterr().err


def test_an_option_may_hold_equals_signs() -> None:
    assert arguments.option("subscriptions={a=b}") == ("subscriptions", "{a=b}")
    with pytest.raises(argparse.ArgumentTypeError, match="NAME=VALUE"):
        arguments.option("groups")


def test_an_error_of_ours_is_one_line_even_when_spark_has_wrapped_it(
    capsys: pytest.CaptureFixture[str],
) -> None:
    def plain() -> None:
        raise StoreNotFoundError("/x")

    def wrapped() -> None:
        raise AnalysisException("Traceback:\n  lines\nE: [MQLOG_STORE_NOT_FOUND] /x: gone\nJVM…")

    assert exit_codes.run(plain) == exit_codes.run(wrapped) == 2
    assert capsys.readouterr().err.splitlines() == [
        "mqlog: [MQLOG_STORE_NOT_FOUND] /x: no such directory",
        "mqlog: [MQLOG_STORE_NOT_FOUND] /x: gone",
    ]


def test_what_the_system_refuses_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    def refused() -> None:
        raise PermissionError(errno.EACCES, "Permission denied", "/data/store/topics.json")

    assert exit_codes.run(refused) == 2
    assert capsys.readouterr().err == "mqlog: /data/store/topics.json: Permission denied\n"


def test_what_spark_refuses_is_the_first_line_of_what_it_says(
    capsys: pytest.CaptureFixture[str],
) -> None:
    def refused() -> None:
        raise AnalysisException("[PATH_NOT_FOUND] no /x. SQLSTATE: 42K03;\n'Project [a]\n+- …")

    assert exit_codes.run(refused) == 2
    assert capsys.readouterr().err == "mqlog: [PATH_NOT_FOUND] no /x. SQLSTATE: 42K03\n"


def test_an_error_that_is_not_ours_is_not_hidden() -> None:
    def other() -> None:
        raise PythonException("Job aborted")

    with pytest.raises(PythonException, match="Job aborted"):
        exit_codes.run(other)
