"""File systems of the network: told by the kernel's list of mounts."""

from pathlib import Path

import pytest

from mqstore.files.mounts import is_remote, mounted_remotely

LINES = [
    "22 27 0:21 / /proc rw,relatime - proc proc rw",
    "36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - ext4 /dev/root rw,errors=continue",
    "40 35 0:44 / /data rw,relatime shared:9 - nfs4 filer:/export rw,vers=4.2",
    "41 35 0:45 / /lake rw,relatime - fuse.s3fs s3fs rw",
    "a line of some later kernel",
]


@pytest.mark.parametrize(
    ("device", "remote"),
    [("98:0", False), ("0:44", True), ("0:45", True), ("0:21", False), ("9:9", False)],
)
def test_a_mount_of_the_network_is_told_by_its_type(device: str, remote: bool) -> None:
    assert mounted_remotely(LINES, device) is remote


def test_what_the_kernel_does_not_tell_is_not_remote(tmp_path: Path) -> None:
    assert not is_remote(str(tmp_path / "gone"))
    assert not is_remote("/proc")
