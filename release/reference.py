"""Compare what the sources cite of RocketMQ between two of its releases.

    python -m release.reference 5.5.1                # since the release that was read last
    python -m release.reference 5.5.1 --since 5.5.0 --diff

Docstrings and pages cite RocketMQ as `Class#member, #member`. The source jars of both releases
come by Maven. A member is the text of its declarations without comments and layout: all overloads
of a method, or a field. The report also lists request codes, response codes and settings that are
new, gone or have another value. `release/rocketmq` keeps each report with what its reading gave.
"""

import argparse
import difflib
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import tree_sitter
import tree_sitter_java

ROOT = Path(__file__).parents[1]
READ_LAST = "5.5.1"
"""The release whose report in `release/rocketmq` was read last."""

ARTIFACTS = (
    "auth",
    "broker",
    "client",
    "common",
    "container",
    "controller",
    "filter",
    "namesrv",
    "proxy",
    "remoting",
    "srvutil",
    "store",
    "tiered-store",
    "tools",
)
GOAL = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1"
CITATION = re.compile(r"\b([A-Z]\w+)#(\w+)((?:,\s+#\w+)*)")
SUFFIXES = {".py", ".md", ".c", ".h"}
CODES = ("RequestCode", "ResponseCode")
TYPES = {
    "class_declaration",
    "interface_declaration",
    "enum_declaration",
    "record_declaration",
    "annotation_type_declaration",
}
CALLABLES = {"method_declaration", "constructor_declaration", "compact_constructor_declaration"}
FIELDS = {"field_declaration", "constant_declaration"}
COMMENTS = {"line_comment", "block_comment"}
PARSER = tree_sitter.Parser(tree_sitter.Language(tree_sitter_java.language()))

Member = tuple[str, str]
"""The simple name of a class and the name of its method, constructor (the class's) or field."""
Members = dict[Member, tuple[str, ...]]
"""Each declaration of a member as one line per statement, sorted."""


@dataclass(frozen=True)
class Changes:
    """What differs between two releases: cited members, codes and settings."""

    changed: list[Member]
    gone: list[Member]
    unknown: list[Member]
    uncompared: list[Member]
    codes: list[str]
    settings: list[str]


def citations(root: Path) -> dict[Member, list[str]]:
    """Return each cited member with the files that cite it, as paths below `root`."""
    cited: dict[Member, set[str]] = {}
    for room in ("store", "connector", "jobs"):
        for path in sorted((root / room).rglob("*")):
            if path.suffix in SUFFIXES:
                for match in CITATION.finditer(path.read_text(encoding="utf-8")):
                    for name in (match[2], *re.findall(r"#(\w+)", match[3])):
                        cited.setdefault((match[1], name), set()).add(str(path.relative_to(root)))
    return {member: sorted(files) for member, files in sorted(cited.items())}


def members(jars: Sequence[Path]) -> Members:
    """Return all members that the Java files of source jars declare, also of inner classes."""
    declarations: dict[Member, list[str]] = {}
    for jar in jars:
        with zipfile.ZipFile(jar) as archive:
            for name in archive.namelist():
                if name.endswith(".java"):
                    tree = PARSER.parse(archive.read(name))
                    for member, text in _declared(tree.root_node, ""):
                        declarations.setdefault(member, []).append(text)
    return {member: tuple(sorted(texts)) for member, texts in declarations.items()}


def compare(
    cited: Mapping[Member, object], before: Members, after: Members, elsewhere: Members
) -> Changes:
    """Compare two releases; a cited class that none of the jars has is no class of RocketMQ.

    `elsewhere` has the members of artifacts that only one of the releases has.
    """
    classes = {name for name, _ in before} | {name for name, _ in after}
    of_rocketmq = [member for member in cited if member[0] in classes]
    both = [member for member in of_rocketmq if member in before and member in after]
    codes = [member for member in {**before, **after} if member[0] in CODES]
    settings = [
        member
        for member in {**before, **after}
        if member[0].endswith("Config") and _is_setting(before.get(member) or after[member])
    ]
    return Changes(
        changed=[member for member in both if before[member] != after[member]],
        gone=[member for member in of_rocketmq if member in before and member not in after],
        unknown=[
            member
            for member in of_rocketmq
            if member not in before and member not in after and member not in elsewhere
        ],
        uncompared=[
            member for member in cited if member in elsewhere and member not in {**before, **after}
        ],
        codes=list(_differences(codes, before, after)),
        settings=list(_differences(settings, before, after)),
    )


def report(versions: tuple[str, str], cited: Mapping[Member, list[str]], changes: Changes) -> str:
    """Return the report as Markdown."""
    lines = [f"# RocketMQ {versions[0]} to {versions[1]}", ""]
    for title, listed in (
        ("Cited members that changed", changes.changed),
        ("Cited members that are gone", changes.gone),
        ("Cited members that neither release has", changes.unknown),
        ("Cited members of artifacts that were not compared", changes.uncompared),
    ):
        lines += [f"## {title}: {len(listed)}", ""]
        for member in listed:
            files = ", ".join(f"`{file}`" for file in cited[member])
            lines.append(f"- `{'#'.join(member)}`: {files}")
        lines += [""] if listed else []
    for title, texts in (("Codes", changes.codes), ("Settings", changes.settings)):
        lines += [f"## {title}: {len(texts)}", "", *(f"- {text}" for text in texts)]
        lines += [""] if texts else []
    return "\n".join(lines).rstrip() + "\n"


def differences(changes: Changes, before: Members, after: Members) -> str:
    """Return the changed members as unified diffs of their tokens, a statement a line."""
    texts: list[str] = []
    for member in changes.changed:
        old, new = ("\n".join(release[member]).splitlines() for release in (before, after))
        texts += difflib.unified_diff(old, new, "#".join(member), "#".join(member), lineterm="")
    return "\n".join(texts)


def fetch(version: str) -> tuple[list[Path], list[str]]:
    """Fetch the source jars of a release; return them and the artifacts that could not be had.

    Raises SystemExit where Maven is missing, or the release has none of the jars.
    """
    maven = shutil.which("mvn")
    if maven is None:
        raise SystemExit("`make reference` needs Maven: there is no mvn on PATH")
    repository = Path.home() / ".m2" / "repository" / "org" / "apache" / "rocketmq"
    jars: list[Path] = []
    absent: list[str] = []
    for artifact in (f"rocketmq-{name}" for name in ARTIFACTS):
        jar = repository / artifact / version / f"{artifact}-{version}-sources.jar"
        if not jar.is_file():
            named = f"-Dartifact=org.apache.rocketmq:{artifact}:{version}:jar:sources"
            command = (maven, "--quiet", "--batch-mode", f"{GOAL}:get", named, "-Dtransitive=false")
            subprocess.run(command, capture_output=True, timeout=600, check=False)
        if jar.is_file():
            jars.append(jar)
        else:
            absent.append(artifact)
    if not jars:
        raise SystemExit(f"there are no source jars of RocketMQ {version}")
    return jars, absent


def main() -> None:
    """Print the report of two releases, and on standard error what could not be compared."""
    parser = argparse.ArgumentParser(prog="python -m release.reference", description=__doc__)
    parser.add_argument("version", type=_version)
    parser.add_argument("--since", type=_version, default=READ_LAST)
    parser.add_argument("--diff", action="store_true", help="also print the changed members")
    arguments = parser.parse_args()
    versions = (arguments.since, arguments.version)
    fetched = [fetch(version) for version in versions]
    absent = {artifact for _, artifacts in fetched for artifact in artifacts}
    # An artifact that one release lacks would make all its members new or gone.
    before, after = (
        members([jar for jar in jars if jar.parts[-3] not in absent]) for jars, _ in fetched
    )
    elsewhere = members([jar for jars, _ in fetched for jar in jars if jar.parts[-3] in absent])
    cited = citations(ROOT)
    changes = compare(cited, before, after, elsewhere)
    sys.stdout.write(report(versions, cited, changes))
    if arguments.diff:
        sys.stdout.write(f"\n```diff\n{differences(changes, before, after)}\n```\n")
    for artifact in sorted(absent):
        sys.stderr.write(f"not compared, as a release has no source jar of it: {artifact}\n")


def _version(text: str) -> str:
    if not re.fullmatch(r"\d+\.\d+\.\d+", text):
        raise argparse.ArgumentTypeError(f"a version is three numbers, like 5.5.1: {text!r}")
    return text


def _declared(node: tree_sitter.Node, owner: str) -> Iterator[tuple[Member, str]]:
    # `owner`: the innermost class around the node.
    for child in node.children:
        if child.type in CALLABLES:
            yield (owner, _name(child)), _tokens(child)
        elif child.type in FIELDS:
            for declarator in child.children_by_field_name("declarator"):
                yield (owner, _name(declarator)), _tokens(child)
        elif child.type == "enum_constant":
            yield (owner, _name(child)), _tokens(child)
        yield from _declared(child, _name(child) if child.type in TYPES else owner)


def _name(node: tree_sitter.Node) -> str:
    name = node.child_by_field_name("name")
    return "" if name is None or name.text is None else name.text.decode()


def _tokens(node: tree_sitter.Node) -> str:
    leaves: list[str] = []
    nodes = [node]
    while nodes:
        top = nodes.pop()
        if top.type in COMMENTS:
            continue
        if top.children and top.type != "string_literal":
            nodes.extend(reversed(top.children))
        elif top.text:
            leaves.append(top.text.decode(errors="replace"))
    return re.sub(r" ([;{}]) ", r" \1\n", " ".join(leaves))


def _is_setting(texts: tuple[str, ...]) -> bool:
    return not any("(" in text.split("=")[0] or " static " in f" {text} " for text in texts)


def _differences(names: Sequence[Member], before: Members, after: Members) -> Iterator[str]:
    for member in sorted(names):
        old, new = (" ".join(release.get(member, ())) for release in (before, after))
        if old != new:
            kind = "new" if not old else "gone" if not new else f"was `{old}`, now"
            yield f"`{'#'.join(member)}`: {kind}" + (f" `{new}`" if new else "")


if __name__ == "__main__":
    main()
