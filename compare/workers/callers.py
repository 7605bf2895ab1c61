"""The callers of one process: each calls again as soon as it may.

The driver says by environment variables what to call and through which Redis. A process says that it is ready, begins
when it is told a line, and ends when its stdin does.
"""

import os
import socket
import sys
import threading
import time
from collections.abc import Callable
from importlib.metadata import version as version_of

QUOTA = int(os.environ["QUOTA"])
WINDOW_SECONDS = int(os.environ["WINDOW_SECONDS"])
REDIS = f"redis://127.0.0.1:{os.environ['REDIS_PORT']}"


def run(what: str, wait: Callable[[], None]) -> None:
    """Calls whenever `wait`, run by each caller in a thread of its own, returns."""
    upstream = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    upstream.connect(("127.0.0.1", int(os.environ["UPSTREAM_PORT"])))
    told = threading.Event()

    def keep_calling(caller: int) -> None:
        call = f"{os.environ['PROCESS']} {caller}".encode()
        while True:
            try:
                wait()
                upstream.send(call)
            except Exception as error:
                if not told.is_set():
                    told.set()
                    print("error", str(error).partition("\n")[0], flush=True)
                time.sleep(0.1)

    print("ready", time.time(), 0, what, flush=True)
    sys.stdin.readline()
    for caller in range(int(os.environ["CALLERS"])):
        threading.Thread(target=keep_calling, args=[caller], daemon=True).start()
    sys.stdin.read()
    os._exit(0)


def version(name: str) -> str:
    """A package and its version, as it is installed."""
    return f"{name} {version_of(name)}"
