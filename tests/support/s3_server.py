"""A running S3 server on loopback, and the log of what it was asked; see s3_moto."""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http import HTTPStatus
from http.client import HTTPConnection
from pathlib import Path
from urllib.parse import quote

from pyarrow import fs

BUCKET = "stores"
KEYS = {"access_key": "reader-4321", "secret_key": "hush-hush-7531"}
_SIGNED = (
    f"AWS4-HMAC-SHA256 Credential={KEYS['access_key']}/20260101/us-east-1/s3/aws4_request, "
    "SignedHeaders=host, Signature=none"
)


@dataclass(frozen=True, slots=True)
class Request:
    """A request that was answered: the method, the path with its query, bytes of the answer."""

    method: str
    path: str
    bytes: int


@dataclass(frozen=True, slots=True)
class S3Server:
    """A running server, by its port, the file of its log, and its process."""

    port: int
    log: Path
    process: "subprocess.Popen[str]"

    @property
    def options(self) -> dict[str, str]:
        """The options of a read from it, by name."""
        found = {
            **KEYS,
            "endpoint_override": f"http://127.0.0.1:{self.port}",
            "region": "us-east-1",
        }
        return {f"fs.{name}": text for name, text in found.items()}

    def system(self) -> fs.S3FileSystem:
        """A connection of its own, which may write."""
        named = {name.removeprefix("fs."): text for name, text in self.options.items()}
        return fs.S3FileSystem(allow_bucket_creation=True, **named)

    def upload(self, root: Path, name: str) -> str:
        """Copy all files below a directory, and return the address of the copy."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(f"{json.dumps([BUCKET, name, str(root)])}\n")
        self.process.stdin.flush()
        assert int(self.process.stdout.readline()) > 0
        return f"s3://{BUCKET}/{name}"

    def put(self, key: str, data: bytes) -> None:
        """Make an object, or make it again, in one request.

        The server refuses to replace an object for a request without an Authorization header, and
        does not verify the signature in it.
        """
        signed = {"Authorization": _SIGNED}
        connection = HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            connection.request("PUT", f"/{BUCKET}/{quote(key)}", data, signed)
            answer = connection.getresponse()
            assert answer.status == HTTPStatus.OK, answer.read(1_000)
        finally:
            connection.close()

    def requests(self) -> list[Request]:
        """What was answered since it was started."""
        lines = self.log.read_text(encoding="utf-8").splitlines()
        return [Request(*json.loads(line)) for line in lines]


@contextmanager
def running(log: Path) -> Iterator[S3Server]:
    """Start a server, with one bucket, and end it."""
    command = [sys.executable, "-m", "support.s3_moto", str(log)]
    tests = Path(__file__).parents[1]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, cwd=tests, text=True) as process:
        try:
            assert process.stdout is not None
            server = S3Server(int(process.stdout.readline()), log, process)
            server.system().create_dir(BUCKET)
            yield server
        finally:
            process.kill()
