"""``make picture``: the pictures of the guide, each made by the code that it shows.

demo.svg by ``mqlog demo``, explore.png and the outputs of the notebook by running it, report.png by
a browser that looks at a report of the demo's store (left as it is where there is no browser).
"""

import os
import sys
import tempfile
from pathlib import Path
from typing import Final

import nbformat
from nbclient import NotebookClient

from mqlog_jobs.places import Named
from mqlog_jobs.report.gather import ReportRequest
from mqlog_jobs.report.write import write_report
from mqlog_jobs.work import demo
from support import browser

EXAMPLES: Final = Path(__file__).parents[2] / "examples"
NOTEBOOK: Final = EXAMPLES / "explore.ipynb"
_HEIGHT: Final = 1450  # of the report's picture: up to its topics


def main() -> None:
    """Make them all."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        work = Path(folder)
        demo.run(work / "shop", EXAMPLES / "demo.svg")
        draw_report(work / "shop" / "broker-a" / "store", work, EXAMPLES / "report.png")
    run_notebook(NOTEBOOK, EXAMPLES / "explore.png")


def draw_report(store: Path, work: Path, target: Path) -> None:
    """Take a picture of the upper part of the store's report."""
    if browser.PATH is None:
        sys.stderr.write(f"{target.name} stays as it is: there is no browser\n")
        return
    page = work / "report.html"
    with Named.of([str(store)]).opened(damaged=True) as stores:
        write_report(stores, ReportRequest(), page, lambda _done, _total: None)
    with browser.browser(work / "profile") as shown:
        shown.open(page, width=1120)
        shown.picture(target, height=_HEIGHT)


def run_notebook(path: Path, picture: Path) -> None:
    """Run the notebook, and keep it with its outputs."""
    os.environ["MQLOG_PICTURE"] = str(picture)
    notebook = nbformat.read(path, as_version=4)
    resources = {"metadata": {"path": path.parent}}
    NotebookClient(notebook, timeout=300, resources=resources, record_timing=False).execute()
    for cell in notebook.cells:  # What a JVM says as it starts is no output of the code.
        kept = [one for one in cell.get("outputs", ()) if one.get("name") != "stderr"]
        if cell.cell_type == "code":
            cell.outputs = kept
    del notebook.metadata["language_info"]["version"]  # Of the machine it ran on.
    nbformat.write(notebook, path)


if __name__ == "__main__":
    main()
