"""An S3 server of moto's on loopback, with a log of what was asked and how much it answered.

``python -m support.s3_server LOG`` prints its port, and writes one JSON line a request to LOG. What
it stores is in its memory.
"""

import json
import subprocess
import sys
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyarrow import fs

BUCKET = "stores"
KEYS = {"access_key": "reader-4321", "secret_key": "hush-hush-7531"}


@dataclass(frozen=True, slots=True)
class Request:
    """A request that was answered: the method, the path with its query, bytes of the answer."""

    method: str
    path: str
    bytes: int


@dataclass(frozen=True, slots=True)
class S3Server:
    """A running server, by its port and the file of its log."""

    port: int
    log: Path

    @property
    def options(self) -> dict[str, str]:
        """The options of a read from it, by name."""
        found = {**KEYS, "endpoint_override": f"http://127.0.0.1:{self.port}", "region": "us-east-1"}
        return {f"fs.{name}": text for name, text in found.items()}

    def system(self) -> fs.S3FileSystem:
        """A connection of its own, which may write."""
        named = {name.removeprefix("fs."): text for name, text in self.options.items()}
        return fs.S3FileSystem(allow_bucket_creation=True, **named)

    def upload(self, root: Path, name: str) -> str:
        """Copy all files below a directory, and return the address of the copy."""
        system = self.system()
        for path in sorted(root.rglob("*")):
            if path.is_file():
                self.put(f"{name}/{path.relative_to(root)}", path.read_bytes(), system)
        return f"s3://{BUCKET}/{name}"

    def put(self, key: str, data: bytes, system: fs.S3FileSystem | None = None) -> None:
        """Make an object."""
        with (system or self.system()).open_output_stream(f"{BUCKET}/{key}") as stream:
            stream.write(data)

    def requests(self) -> list[Request]:
        """What was answered since it was started."""
        lines = self.log.read_text(encoding="utf-8").splitlines()
        return [Request(*json.loads(line)) for line in lines]


@contextmanager
def running(log: Path) -> Iterator[S3Server]:
    """Start a server, with one bucket, and end it."""
    command = [sys.executable, "-m", "support.s3_server", str(log)]
    tests = Path(__file__).parents[1]
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=tests, text=True) as process:
        try:
            assert process.stdout is not None
            server = S3Server(int(process.stdout.readline()), log)
            server.system().create_dir(BUCKET)
            yield server
        finally:
            process.kill()


def _serve(log: Path) -> None:
    from moto.server import DomainDispatcherApplication, create_backend_app
    from werkzeug.serving import WSGIRequestHandler, make_server

    application = DomainDispatcherApplication(create_backend_app)
    lock = threading.Lock()

    class Quiet(WSGIRequestHandler):
        def log(self, *_: Any) -> None:
            """Say nothing: each request has a line in LOG."""

    with log.open("a", encoding="utf-8") as lines:

        def answer(environ: dict[str, Any], start: Any) -> Iterable[bytes]:
            found = b"".join(application(environ, start))
            size = 0 if environ["REQUEST_METHOD"] == "HEAD" else len(found)
            path = environ["PATH_INFO"] + "?" + environ["QUERY_STRING"]
            with lock:
                lines.write(json.dumps([environ["REQUEST_METHOD"], path, size]) + "\n")
                lines.flush()
            return [found]

        server = make_server("127.0.0.1", 0, answer, threaded=True, request_handler=Quiet)
        sys.stdout.write(f"{server.server_port}\n")
        sys.stdout.flush()
        server.serve_forever()


if __name__ == "__main__":
    _serve(Path(sys.argv[1]))
