"""The upstream: it admits every call, and writes down when it came."""

import socket
import struct
import threading
from collections.abc import Callable
from types import TracebackType

from figures import SECOND, Call

# Not among the names of `socket`; the same on x86-64 and arm64.
SO_TIMESTAMPNS = 35
TIMESPEC = struct.Struct("@ll")


class Upstream:
    """A socket on a free loopback port. The kernel stamps a call as it arrives, by the clock of `time.time_ns`."""

    def __init__(self, on_call: Callable[[int], None] = lambda _: None) -> None:
        """With every call, `on_call` is told how many there were."""
        self._on_call = on_call
        self._calls: list[Call] = []
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
        self._socket.bind(("127.0.0.1", 0))
        self._socket.settimeout(0.1)
        self.port = int(self._socket.getsockname()[1])
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._receive, daemon=True)
        self._thread.start()

    def __enter__(self) -> "Upstream":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._closed.set()
        self._thread.join()
        self._socket.close()

    def calls(self, begin: int, end: int) -> list[Call]:
        """The calls between two moments, in the order of their arrival."""
        return sorted((call for call in self._calls if begin <= call.at < end), key=lambda call: call.at)

    def _receive(self) -> None:
        while not self._closed.is_set():
            try:
                text, extra, _, _ = self._socket.recvmsg(64, socket.CMSG_SPACE(TIMESPEC.size))
            except TimeoutError:
                continue
            seconds, nanoseconds = TIMESPEC.unpack(extra[0][2])
            process, caller = map(int, text.split())
            self._calls.append(Call(seconds * SECOND + nanoseconds, process, caller))
            self._on_call(len(self._calls))
