"""pyarrow in a command: it does not import pandas, which takes as long as all else.

pyarrow imports pandas, if it is installed, when the first array is made of Python's values
(``_PandasAPIShim._check_import`` of pandas-shim.pxi), to see whether they are a Series of it. No
command that reads a store has one.
"""

import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType


class _NoPandas(MetaPathFinder):
    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname == "pandas":
            raise ModuleNotFoundError("a command does without pandas", name=fullname)
        return None


def import_without_pandas() -> None:
    """Import pyarrow, and let it find no pandas; where either is imported, change nothing.

    Only its look for the type of a value is answered: ``to_pandas`` imports pandas as ever.
    """
    if "pandas" in sys.modules or "pyarrow" in sys.modules:
        return
    finder = _NoPandas()
    sys.meta_path.insert(0, finder)
    try:
        import pyarrow  # noqa: ICN001, PLC0415 - it is imported when a command runs

        pyarrow.array([0])
    finally:
        sys.meta_path.remove(finder)
