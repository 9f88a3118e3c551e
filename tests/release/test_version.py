"""A release is cut from a clean tree, once, with its notes; its tag is the sources' version."""

import subprocess
from pathlib import Path

import pytest

from release import version
from release.version import NotReadyError

CHANGELOG = (
    "# Changelog\n\n## [Unreleased]\n\n### Added\n\n- Much.\n\n## [0.1.0] - 2026-01-02\n\nOld.\n"
)


def git(root: Path, *words: str) -> str:
    identity = ["-c", "user.name=Ada", "-c", "user.email=ada@example.org"]
    return subprocess.run(
        ["git", *identity, *words], cwd=root, check=True, capture_output=True, text=True, timeout=60
    ).stdout


@pytest.fixture
def sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository of version 0.2.0, ready to be cut."""
    for name in ("AUTHOR", "COMMITTER"):
        monkeypatch.setenv(f"GIT_{name}_NAME", "Ada")
        monkeypatch.setenv(f"GIT_{name}_EMAIL", "ada@example.org")
    root = tmp_path / "sources"
    for name, text in {
        "store/mqstore/__init__.py": '__version__ = "0.2.0"\n',
        "CHANGELOG.md": CHANGELOG,
        "tests/kept/0.2.0.tar.gz": "",
    }.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    git(root, "init", "--quiet", "--initial-branch", "main")
    git(root, "add", "--all")
    git(root, "commit", "--quiet", "--message", "All")
    return root


def test_a_release_that_is_cut_has_its_notes_and_a_tag_and_is_published_nowhere(
    sources: Path,
) -> None:
    assert version.cut(sources) == "v0.2.0"
    assert version.notes(sources) == "### Added\n\n- Much.\n"
    version.check_tag("v0.2.0", sources)
    assert git(sources, "describe").strip() == "v0.2.0"
    assert git(sources, "status", "--porcelain") == ""
    text = (sources / "CHANGELOG.md").read_text()
    assert text.index("## [Unreleased]") < text.index("## [0.2.0] - ") < text.index("## [0.1.0]")


def test_a_release_is_cut_once(sources: Path) -> None:
    version.cut(sources)
    with pytest.raises(NotReadyError, match=r"there is a tag v0\.2\.0"):
        version.cut(sources)


def test_changes_that_are_not_committed_stop_a_release(sources: Path) -> None:
    (sources / "more").write_text("")
    with pytest.raises(NotReadyError, match="not committed"):
        version.cut(sources)


@pytest.mark.parametrize(
    ("name", "text", "reason"),
    [
        (
            "CHANGELOG.md",
            CHANGELOG.replace("### Added\n\n- Much.\n", ""),
            "nothing under Unreleased",
        ),
        ("tests/kept/0.2.0.tar.gz", None, r"tests/kept has nothing of 0\.2\.0"),
        ("store/mqstore/__init__.py", '__version__ = "0.2"\n', "no version of three numbers"),
    ],
)
def test_what_a_release_lacks_is_named_and_nothing_is_changed(
    sources: Path, name: str, text: str | None, reason: str
) -> None:
    if text is None:
        (sources / name).unlink()
    else:
        (sources / name).write_text(text)
    git(sources, "commit", "--all", "--quiet", "--message", "Less")
    with pytest.raises(NotReadyError, match=reason):
        version.cut(sources)
    assert git(sources, "status", "--porcelain") == ""
    assert git(sources, "tag") == ""


def test_a_tag_of_another_version_is_refused(sources: Path) -> None:
    with pytest.raises(NotReadyError, match=r"the tag is v0\.1\.0, and the version of the sources"):
        version.check_tag("v0.1.0", sources)


def test_this_version_is_ready_to_be_cut() -> None:
    """But for the date of its notes: a release that is out has it."""
    now = version.version()
    assert (version.ROOT / "tests" / "kept" / f"{now}.tar.gz").is_file()
    text = (version.ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert f"## [{now}] - " in text or text.partition(version.HEAD)[2].strip()
