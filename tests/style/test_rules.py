"""The house rules catch what they are for: each is shown one sinner."""

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest


@pytest.fixture
def tidy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """test_tidy, looking at a tree of its own."""
    path = Path(__file__).with_name("test_tidy.py")
    spec = importlib.util.spec_from_file_location("tidy_for_sinners", path)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "ROOT", tmp_path)
    return module


@pytest.mark.parametrize(
    ("rule", "file", "text"),
    [
        ("imports_point_down", "mqstore/files/a.py", "from mqstore.codec import gather"),
        ("imports_point_down", "mqstore/read/a.py", "import mqstore.write.stage.task"),
        ("imports_point_down", "mqstore/format/a.py", "from mqstore.files.config import load"),
        ("imports_point_down", "pyspark_mqlog/a.py", "from mqstore.files import config"),
        (
            "imports_point_down",
            "pyspark_mqlog/a.py",
            "from mqstore.codec.gather import RecordHeaders",
        ),
        ("imports_point_down", "pyspark_mqlog/a.py", "from mqstore.format import names"),
        ("imports_point_down", "mqstore/check.py", "import pyspark_mqlog"),
        ("only_connector_and_jobs", "mqstore/read/a.py", "import pyspark.sql"),
        ("only_connector_and_jobs", "mqstore/files/a.py", "import pyarrow as pa"),
        ("a_function_fits", "mqstore/a.py", "def f():\n" + "    x = 1\n" * 60),
        ("a_function_fits", "mqstore/a.py", "\n" * 401),
        ("no_bare_offset", "mqstore/a.py", "def f(offset): pass"),
        ("no_bare_offset", "mqstore/a.py", "offsets = 1"),
        ("a_module_is_named", "mqstore/utils.py", ""),
        ("a_module_is_named", "mqstore/common/a.py", ""),
        ("byte_orders", "mqstore/read/a.py", "x = '>i8'"),
        ("byte_orders", "mqstore/codec/a.py", "import struct"),
        ("byte_orders", "mqstore/read/a.py", "x = np.frombuffer(b'')"),
        ("nothing_read", "mqstore/a.py", "eval('1')"),
        ("nothing_read", "mqstore/a.py", "from pickle import loads"),
        ("nothing_read", "mqstore/a.py", "import yaml"),
        ("nothing_read", "mqstore/a.py", "np.load(x, allow_pickle=True)"),
        ("nobody_catches", "mqstore/a.py", "try:\n  f()\nexcept:\n  pass"),
        ("nothing_is_left", "mqstore/a.py", "# TO" + "DO: later"),
        ("nothing_is_left", "mqstore/a.py", "def f():\n  raise NotImplementedError"),
        ("no_path_of_one", "mqstore/a.py", "x = '/ho" + "me/me'"),
        ("a_text_is_not", "mqstore/a.py", "p.read_text()"),
        ("a_text_is_not", "mqstore/a.py", "subprocess.run(['x'], text=True)"),
    ],
)
def test_the_rule_catches(
    tidy: ModuleType, tmp_path: Path, rule: str, file: str, text: str
) -> None:
    path = tmp_path / "store" / file
    path.parent.mkdir(parents=True)
    path.write_text(text)
    (check,) = (check for check in tidy.RULES if check.__name__.startswith(rule))
    assert tidy.broken(check, path)


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("mqstore/read/a.py", "from mqstore.codec import gather\nfrom mqstore.errors import X"),
        ("pyspark_mqlog/a.py", "from mqstore.codec.schema import COLUMNS\nimport mqstore"),
        ("pyspark_mqlog/a.py", "from mqstore.codec import schema\nfrom mqstore import grammar"),
        ("mqstore/write/a.py", "from mqstore.format import names"),
    ],
)
def test_a_lawful_import_passes(tidy: ModuleType, tmp_path: Path, file: str, text: str) -> None:
    path = tmp_path / "store" / file
    path.parent.mkdir(parents=True)
    path.write_text(text)
    tidy.imports_point_down(path)
