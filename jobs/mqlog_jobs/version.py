"""The line of ``mqlog --version``."""

from mqstore import __version__
from mqstore.native.registry import kernels_in_use


def version_line() -> str:
    """Return the version, and the kernels in use, as a line."""
    return f"mqlog {__version__}, kernels: {kernels_in_use()}\n"
