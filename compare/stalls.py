"""For how long this machine stood still."""

import threading
import time

NAP_SECONDS = 0.005


class Stalls:
    """Watches until it is stopped. A call that is under way in a stall arrives as much later."""

    def __init__(self) -> None:
        self._longest_seconds = 0.0
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def stop(self) -> float:
        """The longest stall, in seconds."""
        self._stopped.set()
        self._thread.join()
        return self._longest_seconds

    def _watch(self) -> None:
        while not self._stopped.is_set():
            slept = time.monotonic()
            time.sleep(NAP_SECONDS)
            self._longest_seconds = max(self._longest_seconds, time.monotonic() - slept - NAP_SECONDS)
