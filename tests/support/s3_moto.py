"""An S3 server of moto's on loopback: python -m support.s3_moto LOG.

It prints its port, and writes one JSON line a request to LOG: method, path, bytes of the answer.
What it stores is in its memory. A JSON line of its standard input, ``[bucket, name, directory]``,
stores all files below a directory without a request each: it prints their number. It ends when its
standard input does.
"""

import json
import os
import sys
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from moto.core import DEFAULT_ACCOUNT_ID
from moto.s3.models import s3_backends
from moto.server import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import WSGIRequestHandler, make_server


class _Quiet(WSGIRequestHandler):
    protocol_version = "HTTP/1.1"  # Connections stay open, as those of object stores do.

    def log(self, *_: Any) -> None:
        """Say nothing: each request has a line in LOG."""


def _store_what_is_named() -> None:
    """Store directories; end with the process that started this one, however that ends."""
    for line in sys.stdin:
        bucket, name, directory = json.loads(line)
        root = Path(directory)
        files = [path for path in sorted(root.rglob("*")) if path.is_file()]
        for path in files:
            key = f"{name}/{path.relative_to(root)}"
            s3_backends[DEFAULT_ACCOUNT_ID]["aws"].put_object(bucket, key, path.read_bytes())
        sys.stdout.write(f"{len(files)}\n")
        sys.stdout.flush()
    os._exit(0)


def _serve(path: Path) -> None:
    application = DomainDispatcherApplication(create_backend_app)
    lock = threading.Lock()
    with path.open("a", encoding="utf-8") as lines:

        def answer(environ: dict[str, Any], start: Any) -> Iterable[bytes]:
            found = b"".join(application(environ, start))
            method = environ["REQUEST_METHOD"]
            asked = f"{environ['PATH_INFO']}?{environ['QUERY_STRING']}"
            size = 0 if method == "HEAD" else len(found)
            with lock:
                lines.write(json.dumps([method, asked, size]) + "\n")
                lines.flush()
            return [found]

        server = make_server("127.0.0.1", 0, answer, threaded=True, request_handler=_Quiet)
        sys.stdout.write(f"{server.server_port}\n")
        sys.stdout.flush()
        threading.Thread(target=_store_what_is_named, daemon=True).start()
        server.serve_forever()


if __name__ == "__main__":
    _serve(Path(sys.argv[1]))
