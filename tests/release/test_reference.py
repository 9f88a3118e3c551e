"""A cited member of RocketMQ that changed is found; comments and layout are no change."""

import zipfile
from pathlib import Path

import pytest

from release import reference
from style.documents import ROOT

BEFORE = """
package a;
/** CommitLog#gone is only text here. */
public class CommitLog {
    private final int size = 1, count = 2;
    public CommitLog() { }
    int same(int a) { return a; } // of 2020
    int changed(int a) { return a; }
    int overloaded(int a) { return a; }
    void gone() { }
    class Callback { void inner() { log("a"); } }
}
class RequestCode { public static final int PULL = 11; }
class StoreConfig { private int bytes = 4; private long old = 1; void setOld() { } }
enum Status { OK(0) }
"""
AFTER = """
package a;
public class CommitLog {
    private final int size = 1,
                      count = 3;
    /* one more */ public CommitLog() {
    }
    int same(final int a) { return a; }
    int changed(int a) { return a + 1; }
    int overloaded(int a) { return a; }
    int overloaded(long a) { return 0; }
    class Callback { void inner() { log("a  b"); } }
}
class RequestCode { public static final int PULL = 11; public static final int POP = 12; }
class StoreConfig { private int bytes = 8; private int more = 2; void setMore() { } }
enum Status { OK(1) }
"""


def _jar(folder: Path, name: str, text: str) -> Path:
    jar = folder / f"{name}.jar"
    with zipfile.ZipFile(jar, "w") as archive:
        archive.writestr("a/CommitLog.java", text)
        archive.writestr("META-INF/MANIFEST.MF", "")
    return jar


@pytest.fixture
def releases(tmp_path: Path) -> tuple[reference.Members, reference.Members]:
    after = AFTER.replace("final int a", "int a")
    return tuple(  # type: ignore[return-value]
        reference.members([_jar(tmp_path, name, text)])
        for name, text in (("before", BEFORE), ("after", after))
    )


@pytest.mark.parametrize(
    ("member", "is_changed"),
    [
        (("CommitLog", "changed"), True),
        (("CommitLog", "overloaded"), True),
        (("CommitLog", "count"), True),
        (("Callback", "inner"), True),
        (("Status", "OK"), True),
        (("CommitLog", "same"), False),
        (("CommitLog", "CommitLog"), False),
    ],
)
def test_a_member_with_other_tokens_is_changed_and_one_with_other_layout_is_not(
    releases: tuple[reference.Members, reference.Members],
    member: reference.Member,
    is_changed: bool,
) -> None:
    changes = reference.compare({member: []}, *releases, {})
    assert changes.changed == [member] * is_changed
    assert not changes.gone
    assert not changes.unknown


def test_what_is_gone_or_never_was_or_is_elsewhere_is_listed_apart(
    releases: tuple[reference.Members, reference.Members],
) -> None:
    names = [("CommitLog", "gone"), ("CommitLog", "never"), ("Client", "pull"), ("String", "trim")]
    changes = reference.compare(dict.fromkeys(names), *releases, {("Client", "pull"): ("x",)})
    assert (changes.gone, changes.unknown, changes.uncompared) == (
        [("CommitLog", "gone")],
        [("CommitLog", "never")],
        [("Client", "pull")],
    )


def test_codes_and_settings_that_are_new_gone_or_other_are_listed(
    releases: tuple[reference.Members, reference.Members],
) -> None:
    changes = reference.compare({}, *releases, {})
    assert changes.codes == ["`RequestCode#POP`: new `public static final int POP = 12 ;`"]
    assert changes.settings == [
        "`StoreConfig#bytes`: was `private int bytes = 4 ;`, now `private int bytes = 8 ;`",
        "`StoreConfig#more`: new `private int more = 2 ;`",
        "`StoreConfig#old`: gone",
    ]


def test_the_report_names_the_files_that_cite_and_the_diff_the_tokens(
    releases: tuple[reference.Members, reference.Members],
) -> None:
    cited = {("CommitLog", "changed"): ["store/a.py", "store/b.py"]}
    changes = reference.compare(cited, *releases, {})
    text = reference.report(("1.0.0", "1.0.1"), cited, changes)
    assert text.startswith("# RocketMQ 1.0.0 to 1.0.1\n\n## Cited members that changed: 1\n")
    assert "- `CommitLog#changed`: `store/a.py`, `store/b.py`\n" in text
    assert "+return a + 1 ;" in reference.differences(changes, *releases).splitlines()


def test_citations_are_all_members_that_a_sentence_names(tmp_path: Path) -> None:
    page = tmp_path / "store" / "page.md"
    page.parent.mkdir()
    page.write_text("Reference: CommitLog#load, #recover; MessageStore\n`Status#OK`.")
    (tmp_path / "store" / "data.json").write_text('"CommitLog#no"')
    assert reference.citations(tmp_path) == {
        ("CommitLog", "load"): ["store/page.md"],
        ("CommitLog", "recover"): ["store/page.md"],
        ("Status", "OK"): ["store/page.md"],
    }


def test_the_release_that_was_read_last_has_its_report() -> None:
    reports = {path.stem for path in (ROOT / "release" / "rocketmq").glob("*.md")}
    assert reference.READ_LAST in reports
    assert max(reports, key=lambda name: tuple(map(int, name.split(".")))) == reference.READ_LAST
