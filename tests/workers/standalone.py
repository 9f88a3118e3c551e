"""A standalone cluster of Spark: a master, workers with a view of the disks of their own, a driver.

Each worker is in a mount namespace: what a test mounts there, over a store, a library or a folder,
only this worker and its executors see. Its host is another address of loopback, so that an error
can name it.
"""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import pyspark

from broker.ports import free_ports
from mqlog_jobs.machine import java
from support.processes import until

SPARK = Path(pyspark.__file__).parent
TESTS = Path(__file__).parents[1]
HOST = "127.0.0.1"


def host_name(host: str) -> str:
    """Return the name of a worker's host."""
    return f"worker-{host.rpartition('.')[2]}"


class Worker:
    """A worker of the cluster; ``host`` is the address that Spark's errors name."""

    def __init__(self, host: str, process: "subprocess.Popen[bytes]") -> None:
        self.host = host
        self._process = process

    def mount(self, *arguments: str | Path) -> None:
        """Run ``mount`` in this worker's view of the disks."""
        self._run("mount", *arguments)

    def hide(self, path: Path) -> None:
        """Put an empty folder over a folder, for this worker alone."""
        self.mount("-t", "tmpfs", "-o", "size=1m", "tmpfs", path)

    def put_over(self, other: Path, path: Path) -> None:
        """Put another file or folder over one, for this worker alone."""
        self.mount("--bind", other, path)

    def uncover(self, path: Path) -> None:
        """Undo the last mount over a path."""
        self._run("umount", "-l", path)

    @property
    def name(self) -> str:
        """What the host calls itself, as errors of tasks have it."""
        return host_name(self.host)

    def _run(self, *command: str | Path) -> None:
        namespace = ("nsenter", "-t", str(self._process.pid), "-m", "--")
        subprocess.run([*namespace, *command], check=True, timeout=30, capture_output=True)


class Driver:
    """A process with a session of the cluster; it does what it is asked, one by one."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process

    def ask(self, act: str, **arguments: Any) -> dict[str, Any]:
        """Return what ``act`` of workers.driver gave: ``rows``, or ``error``; ``seconds``."""
        sent, answers = self._process.stdin, self._process.stdout
        assert sent is not None
        assert answers is not None
        sent.write(json.dumps({"act": act, **arguments}) + "\n")
        sent.flush()
        line = ""
        while not line.startswith('{"answer":'):
            line = answers.readline()
            assert line, f"the driver ended with {self._process.wait(10)}"
        answer: dict[str, Any] = json.loads(line)["answer"]
        return answer


@contextmanager
def cluster(folder: Path, hosts: int = 1) -> Iterator[tuple[Driver, list[Worker]]]:
    """Start a master, a worker on each of so many hosts, and a driver; all end with the block."""
    with ExitStack() as stack:
        port = free_ports(1)
        master = f"spark://{HOST}:{port}"
        variables = _variables()
        started = ("--host", HOST, "--port", str(port), "--webui-port", "0")
        _start(stack, folder / "master.log", variables, "master.Master", *started)
        workers = [
            Worker(host, _worker(stack, folder, variables, host, master))
            for host in (f"127.0.0.{number + 2}" for number in range(hosts))
        ]
        log = folder / "master.log"
        until(lambda: log.read_text().count("Registering worker") == hosts, pause_s=0.1)
        command = [sys.executable, "-m", "workers.driver", master, str(hosts)]
        with (folder / "driver.log").open("wb") as errors:
            process = subprocess.Popen(
                command,
                env=variables,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                start_new_session=True,
            )
        stack.callback(_end, process)
        yield Driver(process), workers


def _variables() -> dict[str, str]:
    paths = os.pathsep.join([str(TESTS), os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep)
    java.prepare()
    return os.environ | {
        "SPARK_HOME": str(SPARK),
        "SPARK_LOCAL_IP": HOST,
        "PYTHONPATH": paths,
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_NO_DAEMONIZE": "1",
    }


def _start(
    stack: ExitStack, log: Path, variables: dict[str, str], name: str, *arguments: str
) -> "subprocess.Popen[bytes]":
    command = [str(SPARK / "bin/spark-class"), f"org.apache.spark.deploy.{name}"]
    if name.startswith("worker"):
        own_view = ["unshare", "--mount", "--uts", "--propagation", "private"]
        script = 'hostname "$0" && exec "$@"'
        command = [*own_view, "sh", "-c", script, host_name(arguments[1]), *command]
    with log.open("wb") as output:
        process = subprocess.Popen(
            [*command, *arguments],
            env=variables,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    stack.callback(_end, process)
    return process


def _end(process: "subprocess.Popen[Any]") -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait(30)
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            pipe.close()


def _worker(
    stack: ExitStack, folder: Path, variables: dict[str, str], host: str, master: str
) -> "subprocess.Popen[bytes]":
    work = folder / f"work-{host}"
    work.mkdir()
    own = ("--host", host, "--cores", "1", "--memory", "1g", "--webui-port", "0")
    arguments = (*own, "--work-dir", str(work), master)
    return _start(
        stack,
        folder / f"worker-{host}.log",
        variables | {"SPARK_LOCAL_IP": host},
        "worker.Worker",
        *arguments,
    )
