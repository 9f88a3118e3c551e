"""Make the site: the Markdown of the repository, its reference, search; every link is checked.

    python -m release.site          # build/site

The pages of the repository are the one source. They are copied; a link to a file of the sources
leads to a page with its text, a link to a folder to its list of files. The reference is made of
docstrings. Links to other sites are not followed, as a build asks no network.
"""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

ROOT = Path(__file__).parents[1]
BUILD = ROOT / "build"
CONFIG = Path(__file__).with_name("mkdocs.yml")
NO_PAGES = {"build", "dist"}
IMAGES = {".svg", ".png"}
FENCE = re.compile(r"^(```.*?^```)", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"(\]\()([^)\s]+)(\))")
CODE_IN_TABLE = re.compile(r"(?<!`)`[^`\n]+`(?!`)")
LANGUAGES = {".py": "python", ".h": "c", ".c": "c", ".toml": "toml", ".yaml": "yaml"}
LANGUAGES |= {".json": "json", ".ipynb": "json", ".md": "markdown", ".sh": "bash"}
REFERENCE = {
    "mqlog": "mqlog",
    "pyspark_mqlog": "pyspark_mqlog",
}
STYLE = """\
.md-grid { max-width: 76rem; }
.md-typeset table:not([class]) { font-size: .68rem; }
.md-typeset table:not([class]) th { min-width: 4rem; }
.md-typeset code { word-break: break-word; }
"""


def anchor(heading: str, _separator: str) -> str:
    """Return the anchor of a heading, as GitHub makes it, so that links fit both."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-")


def stage(folder: Path) -> None:
    """Copy all pages, and what they link to, into a folder that is emptied."""
    shutil.rmtree(folder, ignore_errors=True)
    pages = list(_documents())
    linked: set[Path] = set()
    for page in pages:
        target = folder / page.relative_to(ROOT)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(_for_site(page, linked), encoding="utf-8")
    for path in sorted(linked):
        _stage_source(path, folder)
    for name, module in REFERENCE.items():
        page = folder / "reference" / f"{name}.md"
        page.parent.mkdir(exist_ok=True)
        page.write_text(f"# Reference: `{name}`\n\n{_reference(module)}", encoding="utf-8")
    (folder / "style.css").write_text(STYLE, encoding="utf-8")


def configuration() -> str:
    """Return mkdocs.yml; pages that its navigation does not name are in a last part of it."""
    text = CONFIG.read_text(encoding="utf-8")
    named = set(re.findall(r": (\S+\.md)$", text, re.MULTILINE))
    pages = (str(page.relative_to(ROOT)) for page in _documents())
    more = sorted(page for page in pages if page not in named and not page.startswith("tests/"))
    if not more:
        return text
    lines = "".join(f"      - {page}\n" for page in more)
    return text.replace("\ntheme:\n", f"  - More:\n{lines}\ntheme:\n", 1)


def _documents() -> Iterator[Path]:
    for folder, names, files in os.walk(ROOT):
        names[:] = [name for name in names if not name.startswith(".") and name not in NO_PAGES]
        yield from (Path(folder, file) for file in files if file.endswith(".md"))


def _for_site(page: Path, linked: set[Path]) -> str:
    """Return the text of a page with its links and tables as the site needs them."""

    def relinked(match: re.Match[str]) -> str:
        opened, link, closed = match.groups()
        if urlsplit(link).scheme or link.startswith("#"):
            return match[0]
        name, mark, place = link.partition("#")
        target = (page.parent / name).resolve()
        if target.suffix == ".md":
            return match[0]
        if target.is_dir() and (target / "README.md").is_file():
            return f"{opened}{name.rstrip('/')}/README.md{mark}{place}{closed}"
        linked.add(target)
        if target.suffix in IMAGES:
            return match[0]
        page_of_it = os.path.relpath(_page_of(target), page.relative_to(ROOT).parent)
        return f"{opened}{page_of_it}{closed}"

    parts = FENCE.split(page.read_text(encoding="utf-8"))
    parts[::2] = [LINK.sub(relinked, "\n".join(_lines(part))) for part in parts[::2]]
    return "".join(parts)


def _lines(part: str) -> Iterator[str]:
    r"""Yield lines for Python-Markdown: no ``\|`` in code, an empty line before a list."""
    before = ""
    for line in part.split("\n"):
        is_item = re.match(r"(- |\d+\. )", line)
        if is_item and before and not re.match(r"(- |\d+\. |  )", before):
            yield ""
        before = line
        is_row = line.startswith("|")
        yield CODE_IN_TABLE.sub(_without_escape, line) if is_row else line


def _without_escape(code: re.Match[str]) -> str:
    return code[0].replace("\\|", "|")


def _page_of(path: Path) -> Path:
    """Return where the page of a file or a folder of the sources is, below the site's root.

    A generator takes no hidden folders, so names lose a dot at their beginning.
    """
    name = Path(*(part.removeprefix(".") for part in path.relative_to(ROOT).parts))
    return Path("source", name, "index.md") if path.is_dir() else Path("source", f"{name}.md")


def _stage_source(path: Path, folder: Path) -> None:
    if path.suffix in IMAGES:
        target = folder / path.relative_to(ROOT)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, target)
        return
    target = folder / _page_of(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    name = path.relative_to(ROOT)
    if path.is_dir():
        files = sorted(p.name for p in path.iterdir() if p.is_file() and p.suffix != ".native")
        text = "\n".join(f"- `{file}`" for file in files if not file.startswith("."))
    else:
        language = LANGUAGES.get(path.suffix, "text")
        text = f"``````{language}\n{path.read_text(encoding='utf-8', errors='replace')}\n``````"
    head = "---\nsearch:\n  exclude: true\n---\n\n"
    target.write_text(f"{head}# `{name}`\n\n{text}\n", encoding="utf-8")


def _reference(module: str) -> str:
    """Return the directives for a module and each name of its ``__all__``."""
    source = ROOT / ("store" if module == "mqlog" else "connector") / module / "__init__.py"
    listed = re.search(r"^__all__ = \[(.*?)\]", source.read_text(), re.MULTILINE | re.DOTALL)
    assert listed
    names = [name for name in re.findall(r'"(\w+)"', listed[1]) if not name.startswith("__")]
    whole = f"::: {module}\n    options:\n      members: false\n      show_root_heading: false\n"
    return whole + "".join(f"\n::: {module}.{name}\n" for name in names)


class _Page(HTMLParser):
    """The links and the anchors of one page, and what it would load from elsewhere."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.links: list[str] = []
        self.anchors: set[str] = set()
        self.loaded: list[str] = []
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        self.anchors.update(values[name] for name in ("id", "name") if name in values)
        if tag == "a" and "href" in values:
            self.links.append(values["href"])
        for name in {"link": ["href"], "script": ["src"], "img": ["src"]}.get(tag, []):
            if values.get(name) and values.get("rel") != "canonical":
                self.loaded.append(values[name])


def broken(site: Path) -> list[str]:
    """Return in a line each the links of a built site that lead nowhere, or load from elsewhere."""
    pages = {path: _Page(path) for path in site.rglob("*.html")}
    found = []
    for path, page in pages.items():
        if path.name == "404.html":  # Its links begin at the root of a server.
            continue
        name = path.relative_to(site)
        found += [f"{name} loads {url}" for url in page.loaded if urlsplit(url).netloc]
        for link in (*page.links, *page.loaded):
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            target = target / "index.html" if target.is_dir() else target
            anchors = pages[target].anchors if target in pages else None
            if not target.exists() or (
                parts.fragment and anchors is not None and unquote(parts.fragment) not in anchors
            ):
                found.append(f"{name} links to {link}")
    return found


def main() -> int:
    """Make it; return the exit code: 1 if a link is broken. Raises CalledProcessError."""
    stage(BUILD / "pages")
    (BUILD / CONFIG.name).write_text(configuration(), encoding="utf-8")
    shutil.rmtree(BUILD / "site", ignore_errors=True)
    zensical = str(Path(sys.executable).with_name("zensical"))
    command = [zensical, "build", "--strict", "--config-file", CONFIG.name]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}  # The configuration names `anchor`.
    subprocess.run(command, cwd=BUILD, env=environment, check=True, timeout=600)
    site = BUILD / "site"
    found = broken(site)
    sys.stderr.writelines(f"{line}\n" for line in found)
    sys.stdout.write(f"{len(list(site.rglob('*.html')))} pages in {site.relative_to(ROOT)}\n")
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())
