"""The notebook runs from its first cell to its last, and is kept with its outputs."""

import sys
import tempfile
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient
from traitlets.config import Config

FOLDER = Path(__file__).parents[2] / "examples"
NOTEBOOK = FOLDER / "explore.ipynb"
PNG = b"\x89PNG\r\n\x1a\n"


def notebook() -> nbformat.NotebookNode:
    return nbformat.read(NOTEBOOK, as_version=4)


def tables(told: nbformat.NotebookNode) -> list[str]:
    """Return the tables that the cells show, as text."""
    shown = [output for cell in told.cells for output in cell.get("outputs", [])]
    return [one.data["text/plain"] for one in shown if "text/html" in one.get("data", {})]


def test_the_notebook_is_kept_with_its_outputs_and_nothing_of_a_machine() -> None:
    cells = [cell for cell in notebook().cells if cell.cell_type == "code"]
    outputs = [output for cell in cells for output in cell.outputs]

    assert [cell.execution_count for cell in cells] == list(range(1, len(cells) + 1))
    assert {one.output_type for one in outputs} == {"execute_result", "display_data"}
    assert sum("image/png" in one.data for one in outputs) == 2
    assert not any(str(Path.home()) in str(one) or "/tmp" in str(one) for one in outputs)
    assert all(cell.metadata == {} for cell in cells)


@pytest.mark.spark
@pytest.mark.filterwarnings("ignore:.*:DeprecationWarning:(zmq|jupyter_client|nbclient)")
def test_the_notebook_runs_and_draws_its_picture(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a kernel of its own, with warnings of its own code as errors."""
    picture = tmp_path / "explore.png"
    monkeypatch.setenv("MQLOG_PICTURE", str(picture))
    monkeypatch.setenv("MPLCONFIGDIR", str(tmp_path))
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    monkeypatch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    # Sockets in a folder of its own: Jupyter's ports may be taken before its kernel binds them.
    with tempfile.TemporaryDirectory() as sockets:
        client = NotebookClient(
            notebook(),
            timeout=300,
            kernel_name="python3",
            resources={"metadata": {"path": FOLDER}},
            config=Config(KernelManager={"transport": "ipc", "ip": f"{sockets}/kernel"}),
        )
        done = client.execute()

    told = "".join(
        output.get("text", "") for cell in done.cells for output in cell.get("outputs", [])
    )
    assert "Warning" not in told
    assert picture.read_bytes().startswith(PNG)
    # What `make picture` has kept is what the cells show today.
    assert tables(done) == tables(notebook())
    assert any("CG_G" in table and "86" in table and "80" in table for table in tables(done))
    assert any("ONLY_GA" in table for table in tables(done))
