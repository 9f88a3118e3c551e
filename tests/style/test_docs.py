"""The documents: links lead somewhere, versions agree, nobody's machine is in them."""

import re
from pathlib import Path

import pytest

import mqstore
from style.documents import ROOT, documents

DOCS = documents()
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
LINK_HERE = re.compile(r"\]\(#([^)\s]+)\)")
MOST_LINES = 200  # Of a page without links to its sections.
FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
# Joined here so that this file does not break its own rule.
MACHINE = re.compile("|".join(["/wor" + "k/", "/tm" + "p/mq", "/roo" + "t/"]))

NOTEBOOKS = sorted((ROOT / "examples").glob("*.ipynb"))
OF_AN_INDEX = re.compile(r"pip install [^`\n]*\bmqlog(?![-\w/*.])|mqlog\[\w+\]")

every_document = pytest.mark.parametrize("path", DOCS, ids=lambda p: str(p.relative_to(ROOT)))


def anchors(text: str) -> set[str]:
    """The anchors of a document's headings, as GitHub makes them."""
    return set(map(anchor, re.findall(r"^#+ (.+)$", FENCE.sub("", text), re.MULTILINE)))


def anchor(heading: str) -> str:
    return re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-")


@every_document
def test_every_link_leads_somewhere(path: Path) -> None:
    for link in LINK.findall(FENCE.sub("", path.read_text(encoding="utf-8"))):
        if re.match(r"[a-z]+:", link):
            continue  # the network is not asked
        name, _, place = link.partition("#")
        target = (path.parent / name).resolve() if name else path
        assert target.exists(), link
        if place and target.suffix == ".md":
            assert place in anchors(target.read_text(encoding="utf-8")), link


@every_document
def test_a_long_page_begins_with_links_to_all_its_sections(path: Path) -> None:
    text = FENCE.sub("", path.read_text(encoding="utf-8"))
    before, *sections = re.split(r"^## (.+)$", text, flags=re.MULTILINE)
    if len(text.splitlines()) > MOST_LINES and path.name != "CHANGELOG.md":
        assert {anchor(section) for section in sections[::2]} <= set(LINK_HERE.findall(before))


@every_document
def test_no_document_names_one_machine(path: Path) -> None:
    assert not MACHINE.search(path.read_text(encoding="utf-8"))


def measured(table: str, row: str) -> dict[str, str]:
    """A row of the results by column, without what stands in brackets: rates by CPU time."""
    text = (ROOT / "benchmarks" / "results" / "TABLES.md").read_text(encoding="utf-8")
    lines = text.split(f"## {table}", 1)[1].split("\n## ", 1)[0].splitlines()
    heads = next(line for line in lines if line.startswith("|"))
    found = next(line for line in lines if line.startswith(f"| {row} |"))
    cells = ([cell.split("(")[0].strip() for cell in line.split("|")] for line in (heads, found))
    return dict(zip(*cells, strict=True))


def test_the_front_page_has_the_measured_rates_of_like_and_like() -> None:
    cluster = measured("Clusters: thousands", "spark, Kafka's columns")
    files = [measured("Spark read", f"1024 B, {q}, kafka") for q in ("4 queues", "1 queue")]
    low, high = (10 * (int(row["mqlog"]) // 10) for row in files)
    ratio = f"{float(cluster['of kafka']):.1f}"
    front = " ".join((ROOT / "README.md").read_text(encoding="utf-8").split())

    assert f"reads {cluster['mqlog']},000 messages of 1 KiB a second from a cluster" in front
    assert f"{ratio} times as many as Spark's Kafka connector reads from a Kafka broker" in front
    assert f"From the files of a broker it reads [{low},000 to {high},000 a second]" in front


def test_no_page_and_no_error_wants_mqlog_from_an_index_of_packages() -> None:
    """The name is on none: ``pip install`` takes a checkout, a wheel, or the dependency itself."""
    sources = [
        path for top in ("store", "connector", "jobs") for path in (ROOT / top).rglob("*.py")
    ]
    texts = {path: path.read_text(encoding="utf-8") for path in [*DOCS, *NOTEBOOKS, *sources]}
    assert [path for path, text in texts.items() if OF_AN_INDEX.search(text)] == []


def test_the_changelogs_last_release_is_this_version_or_none_is_out_yet() -> None:
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    headings = re.findall(r"^## \[?v?([^\]\s]+)", text, re.MULTILINE)
    released = [heading for heading in headings if heading != "Unreleased"]
    assert headings
    assert released[:1] in ([], [mqstore.__version__])
