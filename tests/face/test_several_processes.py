"""The program of the page about several processes, however Python starts them."""

import re
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

import mqlog

PAGE: Final = Path(__file__).parents[2] / "store" / "PYTHON.md"


@pytest.mark.parametrize("method", ["spawn", "forkserver", "fork"])
def test_the_program_of_the_page_reads_each_row_once(
    method: str, golden_550: Path, tmp_path: Path
) -> None:
    chapter = PAGE.read_text(encoding="utf-8").partition("\n## Several processes\n")[2]
    listing = re.search(r"```python\n(.*?)```", chapter, re.DOTALL)
    assert listing is not None
    program = listing[1].replace("/data/broker-a/store", str(golden_550))
    program = program.replace("SHOP_ORDERS", "GTopic").replace(
        "    with ProcessPoolExecutor() as",
        "    import multiprocessing\n"
        f'    way = multiprocessing.get_context("{method}")\n'
        "    with ProcessPoolExecutor(2, mp_context=way) as",
    )
    file = tmp_path / "program.py"
    file.write_text(program, encoding="utf-8")

    done = subprocess.run(
        [sys.executable, str(file)],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )

    scan = mqlog.open(golden_550).scan("GTopic")
    size = sum(batch["body"].nbytes for batch in scan.to_reader())
    assert (done.returncode, done.stdout) == (0, f"{size}\n"), done.stderr
