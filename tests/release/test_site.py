"""The site has all pages; a link that leads nowhere, or loads from elsewhere, is found."""

import re
from pathlib import Path

import pytest

from release import site
from style.documents import ROOT, documents
from style.test_docs import LINK
from support import soak

PAGE = '<h2 id="here">x</h2><a href="{}">x</a>'


def test_every_page_but_those_of_tests_is_in_the_navigation() -> None:
    named = set(re.findall(r"(\S+\.md)$", site.configuration(), re.MULTILINE))
    pages = {str(page.relative_to(ROOT)) for page in documents()}
    made = {f"reference/{name}.md" for name in site.REFERENCE}
    assert {page for page in pages if not page.startswith("tests/")} <= named
    assert named <= pages | made


def test_every_link_of_a_copied_page_leads_to_a_copied_page(tmp_path: Path) -> None:
    site.stage(tmp_path)
    for page in tmp_path.rglob("*.md"):
        text = site.FENCE.sub("", page.read_text(encoding="utf-8"))
        for link in LINK.findall("" if "source" in page.parts else text):
            if not re.match(r"[a-z]+:|#", link):
                assert (page.parent / link.partition("#")[0]).resolve().is_file(), (page, link)


def test_names_that_are_public_are_in_the_reference(tmp_path: Path) -> None:
    site.stage(tmp_path)
    page = (tmp_path / "reference" / "mqlog.md").read_text(encoding="utf-8")
    assert {"::: mqlog.open", "::: mqlog.Scan", "::: mqlog.write"} <= set(page.splitlines())


def test_a_list_and_a_table_become_what_they_are_on_a_forge() -> None:
    given = "text\n- one\n- two\n\n| a |\n|---|\n| `A \\|\\| B` |"
    made = "\n".join(site._lines(given))
    assert made == "text\n\n- one\n- two\n\n| a |\n|---|\n| `A || B` |"


@pytest.mark.parametrize(
    ("link", "found"),
    [
        ("other/", []),
        ("other/#there", []),
        ("#here", []),
        ("https://example.org/nobody-asks", []),
        ("none/", ["index.html links to none/"]),
        ("other/#none", ["index.html links to other/#none"]),
        ("#none", ["index.html links to #none"]),
    ],
)
def test_a_link_that_leads_nowhere_is_found(tmp_path: Path, link: str, found: list[str]) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "index.html").write_text('<p id="there">')
    (tmp_path / "index.html").write_text(PAGE.format(link))
    assert site.broken(tmp_path) == found


def test_what_a_page_would_load_from_elsewhere_is_found(tmp_path: Path) -> None:
    (tmp_path / "index.html").write_text('<script src="https://example.org/x.js"></script>')
    assert site.broken(tmp_path) == ["index.html loads https://example.org/x.js"]


@soak.only
def test_the_site_is_built_without_a_warning_and_no_link_is_broken() -> None:
    pytest.importorskip("zensical", reason="the extra site is not installed: `make site` does that")
    assert site.main() == 0
