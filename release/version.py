"""The version of a release, its notes and its tag. The standard library alone.

python -m release.version --cut            # CHANGELOG's head, a commit and a tag; nothing leaves
python -m release.version --tag v0.1.0     # is this the version that the sources say?
python -m release.version --notes          # the section of CHANGELOG.md
"""

import argparse
import re
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

ROOT = Path(__file__).parents[1]
HEAD = "## [Unreleased]\n"


class NotReadyError(Exception):
    """Why the sources are no release; the message is one line."""


def version(root: Path = ROOT) -> str:
    """Return the version in the sources. Raises NotReadyError."""
    text = (root / "store" / "mqstore" / "__init__.py").read_text(encoding="utf-8")
    found = re.search(r'^__version__ = "(\d+\.\d+\.\d+)"$', text, re.MULTILINE)
    if found is None:
        raise NotReadyError("store/mqstore/__init__.py has no version of three numbers")
    return found[1]


def notes(root: Path = ROOT) -> str:
    """Return the section of this version. Raises NotReadyError if there is none, or it is empty."""
    text = (root / "CHANGELOG.md").read_text(encoding="utf-8")
    now = version(root)
    _, *sections = re.split(r"^## \[(.+)$", text, flags=re.MULTILINE)
    for head, body in zip(sections[::2], sections[1::2], strict=True):
        if re.fullmatch(re.escape(now) + r"\] - \d{4}-\d\d-\d\d", head) and body.strip():
            return body.strip() + "\n"
    raise NotReadyError(f"CHANGELOG.md has no section of {now} with a date")


def check_tag(tag: str, root: Path = ROOT) -> None:
    """Raise NotReadyError unless the tag, the version, CHANGELOG and what is kept agree."""
    now = version(root)
    if tag != f"v{now}":
        raise NotReadyError(f"the tag is {tag}, and the version of the sources {now}")
    if not (root / "tests" / "kept" / f"{now}.tar.gz").is_file():
        raise NotReadyError(f"tests/kept has nothing of {now}: see tests/kept/README.md")
    notes(root)


def cut(root: Path = ROOT) -> str:
    """Give CHANGELOG's newest section its version and date, commit, and tag; return the tag.

    Nothing is pushed. Raises NotReadyError for a tree with changes, a tag that is there, or a
    CHANGELOG with nothing new.
    """
    if _git(root, "status", "--porcelain"):
        raise NotReadyError("there are changes that are not committed")
    now = version(root)
    tag = f"v{now}"
    if _git(root, "tag", "--list", tag):
        raise NotReadyError(f"there is a tag {tag}: raise the version first")
    path = root / "CHANGELOG.md"
    text = path.read_text(encoding="utf-8")
    new = text.partition(HEAD)[2].partition("\n## [")[0]
    if not new.strip():
        raise NotReadyError("CHANGELOG.md has nothing under Unreleased")
    dated = f"{HEAD}\n## [{now}] - {datetime.now(UTC):%Y-%m-%d}\n"
    path.write_text(text.replace(HEAD, dated, 1), encoding="utf-8")
    try:
        check_tag(tag, root)
    except NotReadyError:
        path.write_text(text, encoding="utf-8")
        raise
    _git(root, "commit", "--quiet", "--message", f"Release {now}", "CHANGELOG.md")
    _git(root, "tag", "--annotate", "--message", f"mqlog {now}", tag)
    return tag


def _git(root: Path, *words: str) -> str:
    done = subprocess.run(
        ["git", *words], cwd=root, capture_output=True, encoding="utf-8", check=False, timeout=60
    )
    if done.returncode:
        raise NotReadyError(f"git {words[0]}: {done.stderr.strip()}")
    return done.stdout


def main() -> int:
    """Run it; return the exit code: 1 with one line for what is not ready."""
    parser = argparse.ArgumentParser(description="The version of a release.")
    asked = parser.add_mutually_exclusive_group(required=True)
    asked.add_argument("--cut", action="store_true", help="date CHANGELOG.md, commit, tag")
    asked.add_argument("--tag", help="check that this is the tag of the sources")
    asked.add_argument("--notes", action="store_true", help="print the section of CHANGELOG.md")
    chosen = parser.parse_args()
    try:
        if chosen.cut:
            tag = cut()
            sys.stdout.write(f"{tag} is here alone; to publish: git push origin main {tag}\n")
        elif chosen.tag:
            check_tag(chosen.tag)
        else:
            sys.stdout.write(notes())
    except NotReadyError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
