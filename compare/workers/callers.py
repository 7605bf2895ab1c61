"""The callers of one process: each calls again as soon as it may.

The driver says by environment variables what to call and through which Redis. A process says that it is ready, begins
when it is told a line, and ends when its stdin does.
"""

import asyncio
import os
import socket
import sys
import threading
import time
from collections.abc import Awaitable, Callable
from importlib.metadata import version as version_of

QUOTA = int(os.environ["QUOTA"])
WINDOW_SECONDS = int(os.environ["WINDOW_SECONDS"])
REDIS = f"redis://127.0.0.1:{os.environ['REDIS_PORT']}"
CALLERS = range(int(os.environ["CALLERS"]))
PAUSE_SECONDS = 0.1

_upstream = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
_told = threading.Event()


def run(what: str, wait: Callable[[], None]) -> None:
    """Calls whenever `wait`, run by each caller in a thread of its own, returns."""

    def keep_calling(caller: int) -> None:
        while True:
            try:
                wait()
                _call(caller)
            except Exception as error:
                _tell(error)
                time.sleep(PAUSE_SECONDS)

    _begin(what)
    for caller in CALLERS:
        threading.Thread(target=keep_calling, args=[caller], daemon=True).start()
    _end_with_stdin()


async def run_async(what: str, wait: Callable[[], Awaitable[None]]) -> None:
    """Calls whenever `wait`, run by each caller in a task of its own, returns."""

    async def keep_calling(caller: int) -> None:
        while True:
            try:
                await wait()
                _call(caller)
            except Exception as error:
                _tell(error)
                await asyncio.sleep(PAUSE_SECONDS)

    _begin(what)
    threading.Thread(target=_end_with_stdin, daemon=True).start()
    await asyncio.gather(*map(keep_calling, CALLERS))


def version(name: str) -> str:
    """A package and its version, as it is installed."""
    return f"{name} {version_of(name)}"


def _begin(what: str) -> None:
    _upstream.connect(("127.0.0.1", int(os.environ["UPSTREAM_PORT"])))
    print("ready", time.time(), 0, what, flush=True)
    sys.stdin.readline()


def _call(caller: int) -> None:
    _upstream.send(f"{os.environ['PROCESS']} {caller}".encode())


def _tell(error: Exception) -> None:
    """One failure is shown."""
    if not _told.is_set():
        _told.set()
        print("error", str(error).partition("\n")[0], flush=True)


def _end_with_stdin() -> None:
    sys.stdin.read()
    os._exit(0)
