"""A Redis that loses its data time and again."""

import time

from redis_server import RedisServer
from work import LOSSES, QUOTA, WINDOW

# A window for what was promised before a loss, and two in which whoever goes on calls.
PATIENCE = 3 * WINDOW


class Losses:
    """Makes a Redis lose its data when the upstream has seen so many calls; never twice within a window."""

    def __init__(self, server: RedisServer) -> None:
        self._server = server
        self._calls_before = 0
        # When it did.
        self.moments: list[int] = []

    def on_call(self, calls: int) -> None:
        """The upstream has seen so many calls: Redis may lose its data now."""
        if len(self.moments) == len(LOSSES) or calls - self._calls_before < QUOTA * LOSSES[len(self.moments)]:
            return
        now = time.time_ns()
        if self.moments and now < self.moments[-1] + WINDOW:
            return
        self._server.lose_everything()
        self._calls_before = calls
        self.moments.append(now)

    def wait(self) -> None:
        """Returns when no further loss comes about, and it is known whether calls go on after the last."""
        begin = time.time_ns()
        while time.time_ns() < max([begin, *self.moments]) + PATIENCE:
            time.sleep(0.1)
