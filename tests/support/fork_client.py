"""A stand-in for ``python``: what Spark starts as ``-m MODULE`` is forked by ``fork_server``.

python -I -S fork_client.py SOCKET PYTHON ARGUMENTS...

Everything else runs in PYTHON, and also this if no server listens. It ends as the forked process
does, and passes SIGTERM on to it. It imports next to nothing: its start takes 15 ms.
"""

import _socket
import marshal
import os
import signal
import sys
from types import FrameType

# As in fork_server, which this program would import too slowly.
MODULES = {"pyspark.daemon", "pyspark.sql.streaming.python_streaming_source_runner"}


def main(path: str, python: str, *arguments: str) -> int:
    if arguments[:1] != ("-m",) or arguments[1] not in MODULES:
        os.execv(python, [python, *arguments])
    server = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
    try:
        server.connect(path)
    except OSError:
        os.execv(python, [python, *arguments])
    folder = os.getcwd()  # noqa: PTH109 - pathlib would take longer than all the rest
    wanted = marshal.dumps((folder, arguments[1:], dict(os.environ)))
    passed = b"".join(fd.to_bytes(4, sys.byteorder) for fd in (0, 1, 2))
    head = len(wanted).to_bytes(8, "big")
    server.sendmsg([head], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, passed)])
    server.sendall(wanted)
    for fd in (0, 1):  # Those of the forked process alone: who reads them sees their end.
        os.close(fd)
    pid = int.from_bytes(server.recv(4), "big")

    def end(number: int, _: FrameType | None) -> None:
        os.kill(pid, number)

    if pid:
        signal.signal(signal.SIGTERM, end)
    code = server.recv(1)
    return code[0] if code else 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
