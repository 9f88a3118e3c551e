"""File systems: told by the kernel's list of mounts."""

import subprocess
from pathlib import Path

import pytest

from mqstore.files.lock.file_system import (
    file_system,
    is_for_writing,
    is_remote,
    keeps_reservations,
    type_of_mount,
)

LINES = [
    "22 27 0:21 / /proc rw,relatime - proc proc rw",
    "36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - ext4 /dev/root rw,errors=continue",
    "40 35 0:44 / /data rw,relatime shared:9 - nfs4 filer:/export rw,vers=4.2",
    "41 35 0:45 / /lake rw,relatime - fuse.s3fs s3fs rw",
    "43 a line of some later kernel",
]


@pytest.mark.parametrize(
    ("mount", "kind"),
    [("36", "ext4"), ("40", "nfs4"), ("41", "fuse.s3fs"), ("22", "proc"), ("43", ""), ("9", "")],
)
def test_a_mount_is_told_by_its_number(mount: str, kind: str) -> None:
    assert type_of_mount(LINES, mount) == kind


def test_the_kernel_tells_what_df_tells(tmp_path: Path) -> None:
    for path in (tmp_path, Path("/proc"), Path("/dev/shm")):
        done = subprocess.run(
            ["df", "--output=fstype", str(path)], capture_output=True, text=True, check=True
        )
        assert file_system(str(path)) == done.stdout.split()[-1]


def test_what_the_kernel_does_not_tell_is_neither_remote_nor_for_writing(tmp_path: Path) -> None:
    assert file_system(str(tmp_path / "gone")) == ""
    assert not is_remote(str(tmp_path / "gone"))
    assert not is_for_writing(file_system(str(tmp_path / "gone")))


def test_a_local_disk_is_for_writing_and_a_kernel_s_own_list_is_not(tmp_path: Path) -> None:
    assert is_for_writing(file_system(str(tmp_path)))
    assert not is_remote(str(tmp_path))
    assert not is_for_writing(file_system("/proc"))
    assert not is_remote("/proc")


@pytest.mark.parametrize("kind", ["", "xfs", "btrfs", "overlay", "nfs4", "fuse.s3fs", "ext2"])
def test_a_reservation_is_a_promise_on_few_file_systems(kind: str) -> None:
    assert keeps_reservations("ext4")
    assert not keeps_reservations(kind)
