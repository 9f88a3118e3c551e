"""What a stream's failed micro-batch staged is removed, and nothing of another stream."""

from pathlib import Path

from mqstore.write import streams
from support import goldens
from support.writing import SMALL, append, prepared, rows

LATER = 2**62  # ns, after every file of a test


def test_a_sweep_leaves_the_store_as_it_was_before_the_batch(tmp_path: Path) -> None:
    root = tmp_path / "s"
    append(root, rows(3), **SMALL)
    before = goldens.digest(root)
    job = prepared(root, rows(1).schema)
    streams.claim(job, "query")
    assert streams.sweep(job.settings, "another", before_ns=LATER) == 0
    assert streams.sweep(job.settings, "query", before_ns=0) == 0
    assert Path(job.target.staging).is_dir()
    assert streams.sweep(job.settings, "query", before_ns=LATER) == 1
    assert goldens.digest(root) == before


def test_a_sweep_keeps_a_staging_folder_that_the_user_named(tmp_path: Path) -> None:
    root, staging = tmp_path / "s", tmp_path / "staging"
    append(root, rows(3), **SMALL)
    staging.mkdir()
    job = prepared(root, rows(1).schema, staging_dir=str(staging))
    streams.claim(job, "query")
    assert streams.sweep(job.settings, "query", before_ns=LATER) == 1
    assert list(staging.iterdir()) == []
