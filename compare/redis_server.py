"""A redis-server of one's own."""

import socket
import subprocess
import tempfile
import threading
import time
from types import TracebackType

DEADLINE_SECONDS = 20
ATTEMPTS = 10


class RedisServer:
    """A redis-server on a free loopback port, empty and without persistence, which ends with its `with`."""

    def __init__(self) -> None:
        self._dir = tempfile.TemporaryDirectory(prefix="outgate-compare-redis-")
        for _ in range(ATTEMPTS):
            self.port = _free_port()
            options = ["--bind", "127.0.0.1", "--port", str(self.port), "--dir", self._dir.name]
            options += ["--save", "", "--appendonly", "no"]
            self._process = subprocess.Popen(["redis-server", *options], stdout=subprocess.DEVNULL)
            if self._answers():
                self._control = self._connect()
                self._replies = self._control.makefile("rb")
                return
            self._end()
        raise RuntimeError("redis-server does not come up")

    def __enter__(self) -> "RedisServer":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._replies.close()
        self._control.close()
        self._end()
        self._dir.cleanup()

    def lose_everything(self) -> None:
        """Forgets data and scripts, as a server that was restarted would, though connections stay."""
        self._control.sendall(b"FLUSHALL\r\nSCRIPT FLUSH\r\n")
        for _ in range(2):
            reply = self._replies.readline().strip()
            if reply != b"+OK":
                raise RuntimeError(f"redis-server says {reply!r}")

    def version(self) -> str:
        """As the server says it."""
        return self._info()["redis_version"]

    def count_commands(self) -> "CommandCount":
        """Counts commands from now on."""
        return CommandCount(self._connect())

    def _answers(self) -> bool:
        """Another server may have taken the port: the answer must be this one's."""
        deadline = time.monotonic() + DEADLINE_SECONDS
        while time.monotonic() < deadline and self._process.poll() is None:
            try:
                return self._info()["process_id"] == str(self._process.pid)
            except (OSError, KeyError):
                time.sleep(0.01)
        return False

    def _info(self) -> dict[str, str]:
        with self._connect() as connection:
            connection.sendall(b"INFO server\r\nQUIT\r\n")
            text = connection.makefile("r", newline="\r\n").read()
        pairs = (line.partition(":") for line in text.split("\r\n"))
        return {name: value for name, _, value in pairs}

    def _connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=5)

    def _end(self) -> None:
        self._process.kill()
        self._process.wait()


class CommandCount:
    """Counts what clients send to a server, by its `MONITOR`. What scripts call is not counted."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._connection.settimeout(None)
        self._lines = 0
        connection.sendall(b"MONITOR\r\n")
        if connection.recv(5) != b"+OK\r\n":
            raise RuntimeError("redis-server does not let itself be watched")
        self._thread = threading.Thread(target=self._count, daemon=True)
        self._thread.start()

    def stop(self) -> int:
        """How many there were."""
        self._connection.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._connection.close()
        return self._lines

    def _count(self) -> None:
        rest = b""
        while piece := self._connection.recv(1 << 16):
            lines, _, rest = (rest + piece).rpartition(b"\n")
            if lines:
                self._lines += lines.count(b"\n") + 1 - lines.count(b" lua] ")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
