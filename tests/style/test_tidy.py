"""House rules that a linter does not know. Each test, and each rule of ``RULES``, is a claim."""

import ast
import importlib
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from functools import cache, lru_cache
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[2]
SOURCES = sorted(p for top in ("store", "connector", "jobs") for p in (ROOT / top).rglob("*.py"))
TESTS = sorted(p for top in ("tests", "benchmarks") for p in (ROOT / top).rglob("*.py"))

# Who may import whom: a layer imports itself, the layers named here, and errors.
BASE = "mqstore.files.base"
BYTES = {"mqstore.format", BASE, "mqstore.files", "mqstore.native", "mqstore.codec"}
WITH_TXN = BYTES | {"mqstore.files.txn"}
BELOW_WRITE = WITH_TXN | {"mqstore.write.stage", "mqstore.derive", "mqstore.options"}
OF_ORIGINS = BYTES | {"mqstore.options", "mqstore.derive", "mqstore.read"}
LIVE = {"mqstore.live", "mqstore.live.remoting", "mqstore.live.origin", "mqstore.live.send"}
MAY_IMPORT: dict[str, set[str]] = {
    "mqstore.errors": set(),
    "mqstore.format.arrays": set(),
    "mqstore.options": set(),
    "mqstore.read.sql": {"mqstore.codec.compute"},
    "mqstore.format": set(),
    BASE: {"mqstore.format"},
    "mqstore.files": {"mqstore.format", BASE},
    "mqstore.native": {"mqstore.format"},
    "mqstore.codec": {"mqstore.format", "mqstore.native"},
    "mqstore.files.txn": {"mqstore.format", BASE, "mqstore.files"},
    "mqstore.files.objects": {"mqstore.format", BASE, "mqstore.files", "mqstore.options"},
    "mqstore.bodies": {"mqstore.options"},
    "mqstore.changes": {"mqstore.options", "mqstore.bodies"},
    "mqstore.merge": set(),
    "mqstore.read": WITH_TXN
    | {"mqstore.derive", "mqstore.options", "mqstore.read.sql", "mqstore.bodies"}
    | {"mqstore.changes"},
    "mqstore.write.stage": WITH_TXN | {"mqstore.options"},
    "mqstore.derive": BYTES,
    "mqstore.live.remoting": BYTES | {"mqstore.options", "mqstore.read"},
    "mqstore.live.send": BYTES | {"mqstore.options", "mqstore.live.remoting"},
    "mqstore.live.origin": OF_ORIGINS | {"mqstore.live.remoting"},
    "mqstore.live": OF_ORIGINS | LIVE,
    "mqstore.deliver": BELOW_WRITE | LIVE,
    "mqstore.deliver.replay": BELOW_WRITE
    | LIVE
    | {"mqstore.read", "mqstore.read.sql", "mqstore.deliver"},
    "mqstore.write": BELOW_WRITE,
    "mqstore": BELOW_WRITE
    | LIVE
    | {"mqstore.read", "mqstore.write", "mqstore.deliver", "mqstore.read.sql"}
    | {"mqstore.files.objects", "mqstore.deliver.replay", "mqstore.bodies", "mqstore.changes"},
    # Of the codec, the connector sees the columns only, and the jobs also which kernels are in
    # use; of files and format they see nothing.
    "mqlog": {
        "mqstore",
        "mqstore.bodies",
        "mqstore.changes",
        "mqstore.codec.schema",
        "mqstore.options",
        "mqstore.read",
        "mqstore.write",
        "mqstore.write.stage",
        "mqstore.live.remoting",
        "mqstore.live.send",
        "mqstore.deliver",
        "mqstore.files.txn",
        "mqstore.merge",
    },
    "mqlog.__main__": {"mqlog_jobs"},
    "pyspark_mqlog": {
        "mqlog",
        "mqstore",
        "mqstore.bodies",
        "mqstore.changes",
        "mqstore.codec.schema",
        "mqstore.options",
        "mqstore.read.sql",
        "mqstore.read",
        "mqstore.write.stage",
        "mqstore.write",
        "mqstore.deliver",
    },
    "mqlog_jobs": {
        "mqlog",
        "mqstore",
        "mqstore.bodies",
        "mqstore.changes",
        "mqstore.merge",
        "mqstore.codec.schema",
        "mqstore.native.registry",
        "mqstore.options",
        "mqstore.read.sql",
        "mqstore.read",
        "mqstore.write",
        "mqstore.deliver",
        "mqstore.deliver.replay",
        "pyspark_mqlog",
    },
}
# Modules that rooms see which do not see the rest of their room.
SHOWN = {
    "mqstore.codec.compute": "mqstore.codec",
    "mqstore.codec.schema": "mqstore.codec",
    "mqstore.native.registry": "mqstore.native",
}
BANNED_MODULES = {"utils", "util", "common", "helpers", "helper", "base", "manager", "misc"}
BANNED_MODULES |= {"factory", "tools", "core", "main"}
BANNED_CALLS = {"eval", "exec", "pickle", "cPickle", "marshal", "shelve", "dill", "cloudpickle"}
# Where bytes may be interpreted: layouts are declared in format/, read and written in files/,
# codec/ by naming such a layout.
LAYOUT_ROOM = "mqstore.format"
BYTE_ROOMS = ("mqstore.format", "mqstore.files", "mqstore.native", "mqstore.codec")
# The one package of files/ that reads through pyarrow.
FILES_OF_ARROW = "mqstore.files.objects"


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts[1:]
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def layer(module: str) -> str | None:
    parts = module.split(".")
    names = (".".join(parts[:n]) for n in (4, 3, 2, 1))
    known = {*MAY_IMPORT, *SHOWN}
    return next((name for name in names if name in known), None)


def imports(found: Iterable[ast.AST]) -> Iterator[str]:
    for node in found:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


@lru_cache(maxsize=1)
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


@lru_cache(maxsize=1)
def nodes(path: Path) -> list[ast.AST]:
    """All of a module: one walk for all rules."""
    return list(ast.walk(parsed(path)))


@cache
def declared_in(path: Path) -> tuple[list[str], list[tuple[str, str]]]:
    """The names of a module's classes; name and value, as text, of its constants."""
    classes = [node.name for node in nodes(path) if isinstance(node, ast.ClassDef)]
    return classes, list(constants(path))


def imports_point_down(path: Path) -> None:
    here = layer(module_name(path))
    here = SHOWN.get(here or "", here)
    assert here is not None, f"{path}: new layer; give it a row in MAY_IMPORT"
    allowed = MAY_IMPORT[here] | {here, "mqstore.errors", "mqstore.format.arrays"}
    allowed |= {shown for shown, room in SHOWN.items() if room == here}
    allowed |= {*SHOWN} if "mqstore.codec" in allowed else set()
    # `from mqstore.read import scan` names the module and the room: the room is what counts.
    found = {m: layer(m) for m in imports(nodes(path))}
    wrong = {m for m, of in found.items() if of not in {None, *allowed} and m not in allowed}
    if "mqstore.codec.schema" in allowed:
        wrong.discard("mqstore.codec")  # from mqstore.codec import schema
    assert not wrong


def only_connector_and_jobs_know_spark_and_only_codec_and_above_arrow(path: Path) -> None:
    name = module_name(path)
    tops = {module.split(".")[0] for module in imports(nodes(path))}
    assert "pandas" not in tops
    if name.startswith("mqstore"):
        assert "pyspark" not in tops
    low = ("mqstore.format", "mqstore.files", "mqstore.errors")
    if name.startswith(low) and not name.startswith(FILES_OF_ARROW):
        assert "pyarrow" not in tops


def a_function_fits_a_screen_and_a_module_fits_a_head(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 400
    for node in nodes(path):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            assert (node.end_lineno or 0) - node.lineno < 60, node.name


def no_bare_offset(path: Path) -> None:
    """Three things are called offset: say queue_offset, physical_offset or file position."""
    for node in nodes(path):
        if isinstance(node, ast.arg):
            assert node.arg not in {"offset", "offsets"}, f"line {node.lineno}"
        if isinstance(node, ast.Name):
            assert node.id not in {"offset", "offsets"}, f"line {node.lineno}"


def a_module_is_named_after_what_is_in_it(path: Path) -> None:
    # What all of files/ stands on is a room, not a heap: see its row in MAY_IMPORT.
    name = module_name(path).removeprefix(BASE)
    assert not set(name.split(".")) & BANNED_MODULES


def byte_orders_are_declared_in_format_alone(path: Path) -> None:
    """A layout is one dtype of format/; elsewhere it is named, never spelled."""
    name = module_name(path)
    if name.startswith(LAYOUT_ROOM):
        return
    for node in nodes(path):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            assert not re.fullmatch(r"[<>!=]?[<>!][a-zA-Z]+\d*", node.value), f"line {node.lineno}"
        if isinstance(node, ast.Import):
            assert "struct" not in {alias.name for alias in node.names}, f"line {node.lineno}"
        if isinstance(node, ast.ImportFrom):
            assert node.module != "struct", f"line {node.lineno}"
        if isinstance(node, ast.Attribute) and node.attr in {"frombuffer", "fromfile", "memmap"}:
            assert name.startswith(BYTE_ROOMS), f"line {node.lineno}: {node.attr}"


def nothing_read_can_become_code(path: Path) -> None:
    """A store is untrusted: no eval, no pickle of ours, no YAML."""
    for node in nodes(path):
        if isinstance(node, ast.Name):
            assert node.id not in BANNED_CALLS, f"line {node.lineno}: {node.id}"
        if isinstance(node, ast.Import | ast.ImportFrom):
            tops = {module.split(".")[0] for module in imports([node])}
            assert not tops & {*BANNED_CALLS, "yaml"}, f"line {node.lineno}"
        if isinstance(node, ast.Call) and any(k.arg == "allow_pickle" for k in node.keywords):
            raise AssertionError(f"line {node.lineno}: allow_pickle")


def nobody_catches_everything(path: Path) -> None:
    for node in nodes(path):
        if isinstance(node, ast.ExceptHandler):
            assert node.type is not None, f"line {node.lineno}: bare except"
            caught = {n.id for n in ast.walk(node.type) if isinstance(n, ast.Name)}
            assert "BaseException" not in caught or _raises(node), f"line {node.lineno}"


def _raises(handler: ast.ExceptHandler) -> bool:
    return any(isinstance(node, ast.Raise) for node in ast.walk(handler))


def nothing_is_left_to_do(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert not re.search(r"\b(TODO|FIXME|XXX|HACK)\b(?!_)", text.replace("TOPIC_XXXX", ""))
    for node in nodes(path):
        if isinstance(node, ast.Raise):
            names = {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}
            assert "NotImplementedError" not in names, f"line {node.lineno}"


# Joined here so that this file does not break its own rule.
WORKPLACE = re.compile("|".join(["/wor" + "k/", "/tm" + "p/mq", "/hom" + "e/", "/roo" + "t/"]))


def no_path_of_one_machine(path: Path) -> None:
    assert not WORKPLACE.search(path.read_text(encoding="utf-8"))


def a_text_is_not_of_the_locale(path: Path) -> None:
    """Text files and the output of programs are UTF-8: GBK, as a system's locale, is not.

    The linter knows a Path where it sees it made; this sees the call.
    """
    for node in nodes(path):
        if not isinstance(node, ast.Call):
            continue
        named = {word.arg for word in node.keywords}
        method = node.func.attr if isinstance(node.func, ast.Attribute) else ""
        if method in {"read_text", "write_text"}:
            assert "encoding" in named, f"line {node.lineno}: {method}"
        assert not named & {"text", "universal_newlines"} or "encoding" in named or method not in {
            "run", "Popen", "check_output"
        }, f"line {node.lineno}: {method}"  # fmt: skip


RULES: list[Callable[[Path], None]] = [
    imports_point_down,
    only_connector_and_jobs_know_spark_and_only_codec_and_above_arrow,
    a_function_fits_a_screen_and_a_module_fits_a_head,
    no_bare_offset,
    a_module_is_named_after_what_is_in_it,
    byte_orders_are_declared_in_format_alone,
    nothing_read_can_become_code,
    nobody_catches_everything,
    nothing_is_left_to_do,
    no_path_of_one_machine,
    a_text_is_not_of_the_locale,
]


def broken(rule: Callable[[Path], None], path: Path) -> str | None:
    """Return why a file breaks a rule, or None."""
    try:
        rule(path)
    except AssertionError as error:
        return str(error) or "it breaks the rule"
    return None


@pytest.fixture(scope="module")
def breaches() -> dict[str, dict[str, str]]:
    """By rule and module, why the module breaks the rule. Each module is parsed once."""
    found: dict[str, dict[str, str]] = {rule.__name__: {} for rule in RULES}
    for path in SOURCES:
        declared_in(path)  # While its one parse is at hand.
        for rule in RULES:
            if why := broken(rule, path):
                found[rule.__name__][module_name(path)] = why
    return found


@pytest.mark.parametrize("rule", [rule.__name__ for rule in RULES])
def test_every_module_keeps_the_rule(rule: str, breaches: dict[str, dict[str, str]]) -> None:
    assert breaches[rule] == {}


def test_no_test_has_a_path_of_one_machine() -> None:
    assert [path for path in TESTS if broken(no_path_of_one_machine, path)] == []


def test_no_two_modules_of_tests_have_one_name() -> None:
    names = Counter(path.name for path in TESTS if path.name != "conftest.py")
    assert [name for name, count in names.items() if count > 1] == []


PACKAGES = sorted(p for p in SOURCES if p.name == "__init__.py")


@pytest.mark.parametrize("path", PACKAGES, ids=module_name)
def test_a_shop_window_lists_what_it_shows(path: Path) -> None:
    module = importlib.import_module(module_name(path))
    if not hasattr(module, "__all__"):
        public = [n for n in nodes(path) if isinstance(n, ast.FunctionDef | ast.ClassDef)]
        assert not public, "public names without __all__"
        return
    # In ruff's order (RUF022), which puts constants first.
    assert len(module.__all__) == len(set(module.__all__))
    assert [name for name in module.__all__ if not hasattr(module, name)] == []


# A module that has a table declares its columns and its schema under these names.
OWN_OF_A_TABLE = {"COLUMNS", "SCHEMA", "_MESSAGE_COLUMNS"}


def test_no_two_classes_share_a_name() -> None:
    places: dict[str, list[str]] = {}
    for path in SOURCES:
        for name in declared_in(path)[0]:
            places.setdefault(name, []).append(module_name(path))
    assert {name: where for name, where in places.items() if len(where) > 1} == {}


def constants(path: Path) -> Iterator[tuple[str, str]]:
    """Name and value, as text, of each constant that a module declares."""
    for node in parsed(path).body:
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names = [target.id for target in targets if isinstance(target, ast.Name)]
            yield from ((name, ast.unparse(node.value)) for name in names if name != "__all__")


def test_no_two_constants_share_a_name() -> None:
    """A private one may stand in several modules if its value is the same.

    Two modules of format/ may have a HEADER: each describes one file, and is named with it.
    """
    places: dict[str, set[str]] = {}
    for path in SOURCES:
        module = module_name(path)
        for name, value in declared_in(path)[1]:
            if name not in OWN_OF_A_TABLE:
                room = "mqstore.format" if module.startswith("mqstore.format.") else module
                same = name.startswith("_") or value.startswith("TypeVar(")
                places.setdefault(name, set()).add(value if same else room)
    assert {name: found for name, found in places.items() if len(found) > 1} == {}


ROW = re.compile(r"^ +(\d+) +(\d+)  (\w+)\b", re.MULTILINE)
FORMATS = [p for p in SOURCES if "/format/" in p.as_posix()]


def declared(module: object) -> list[tuple[int, int, str]]:
    """(position, bytes, field) of every structure a module declares, in its order.

    A structure that comes in variants is told once, by the first; one that only repeats the
    head of another (the blank record) has no table of its own.
    """
    tables: list[list[tuple[int, int, str]]] = []
    for value in vars(module).values():
        if isinstance(value, np.dtype) and value.names and value.fields:
            rows = [(value.fields[f][1], value.fields[f][0].itemsize, f) for f in value.names]
            if not any(table[: len(rows)] == rows for table in tables):
                tables.append(rows)
    return [row for table in tables for row in table]


@pytest.mark.parametrize("path", FORMATS, ids=module_name)
def test_the_table_in_the_docstring_is_the_dtype(path: Path) -> None:
    module = importlib.import_module(module_name(path))
    rows = [(int(at), int(size), name) for at, size, name in ROW.findall(module.__doc__ or "")]
    assert rows == declared(module)


def test_the_host_variants_differ_from_the_table_by_twelve_bytes_a_host() -> None:
    """The docstring of format/message.py gives the IPv4 positions and this rule for the others."""
    message = importlib.import_module("mqstore.format.message")
    plain = message.HEADERS[0]
    for variant, header in enumerate(message.HEADERS):
        moved = {"born_ip": 12 * (variant & 1), "store_ip": 12 * (variant >> 1)}
        grown = 0
        for name in plain.names:
            assert header.fields[name][1] == plain.fields[name][1] + grown
            assert header.fields[name][0].itemsize == plain.fields[name][0].itemsize + moved.get(
                name, 0
            )
            grown += moved.get(name, 0)


def test_the_oracle_knows_nothing_of_what_it_judges() -> None:
    for name in ("oracle.py", "stores.py", "strategies.py", "goldens.py"):
        path = ROOT / "tests" / "support" / name
        tops = {module.split(".")[0] for module in imports(nodes(path))}
        assert not tops & {"mqstore", "pyspark_mqlog", "mqlog_jobs"}
