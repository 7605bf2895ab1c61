"""A process that calls through a library, seen by whoever started it."""

import os
import queue
import subprocess
import threading
import time
from pathlib import Path

from installed import Library
from work import CALLERS, FAST_BY_SECONDS, QUOTA, WINDOW_SECONDS

PATIENCE_SECONDS = 30
# A clock that is to be right or fast must be so within this, its message being on its way for a while.
CLOCK_TOLERANCE_SECONDS = 1.0


class Worker:
    """A worker process. It begins when it is told, and ends when its stdin is closed."""

    def __init__(self, library: Library, process: int, redis_port: int, upstream_port: int, fast: Path | None) -> None:
        settings = {"REDIS_PORT": redis_port, "UPSTREAM_PORT": upstream_port, "PROCESS": process, "CALLERS": CALLERS}
        settings |= {"QUOTA": QUOTA, "WINDOW_SECONDS": WINDOW_SECONDS}
        environment = {**os.environ, **library.environment, **{name: str(value) for name, value in settings.items()}}
        if fast:
            environment["LD_PRELOAD"] = str(fast)
        self._ahead_by = FAST_BY_SECONDS if fast else 0
        self._name = f"{library.name}, process {process}"
        self._lines: queue.Queue[str] = queue.Queue()
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(
            library.command, env=environment, stdin=pipe, stdout=pipe, text=True, bufsize=1
        )
        threading.Thread(target=self._listen, daemon=True).start()

    def ready(self) -> tuple[float, str]:
        """Waits until it is ready, and checks its clock. Its guard in seconds, and what it runs."""
        try:
            words = self._lines.get(timeout=PATIENCE_SECONDS).split(maxsplit=3)
        except queue.Empty:
            raise RuntimeError(f"{self._name} says nothing") from None
        if len(words) != 4 or words[0] != "ready":
            raise RuntimeError(f"{self._name} is not ready, but says: {' '.join(words)}")
        ahead_by = float(words[1]) - time.time()
        if abs(ahead_by - self._ahead_by) > CLOCK_TOLERANCE_SECONDS:
            raise RuntimeError(f"the clock of {self._name} is ahead by {ahead_by:.3f} s, not by {self._ahead_by} s")
        return float(words[2]), words[3]

    def go(self) -> None:
        """Lets it call."""
        self._tell("go\n")

    def errors(self) -> list[str]:
        """What it said of errors so far, and whether it has ended."""
        said = []
        while not self._lines.empty():
            said.append(self._lines.get().removeprefix("error "))
        return said

    def end(self) -> None:
        """Ends it."""
        try:
            if self._process.stdin:
                self._process.stdin.close()
            self._process.wait(timeout=5)
        except (OSError, subprocess.TimeoutExpired):
            self._process.kill()
            self._process.wait()

    def _tell(self, line: str) -> None:
        if self._process.stdin:
            self._process.stdin.write(line)
            self._process.stdin.flush()

    def _listen(self) -> None:
        if self._process.stdout:
            for line in self._process.stdout:
                self._lines.put(line.strip())
        self._lines.put("the process ended")
