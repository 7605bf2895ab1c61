"""Calls through `limits`: it does not wait, so that each caller asks its moving window every 10 ms."""

import time

from callers import QUOTA, REDIS, WINDOW_SECONDS, run, version
from limits import RateLimitItemPerSecond
from limits.storage import RedisStorage
from limits.strategies import MovingWindowRateLimiter

limiter = MovingWindowRateLimiter(RedisStorage(REDIS))
limit = RateLimitItemPerSecond(QUOTA, WINDOW_SECONDS)


def wait() -> None:
    while not limiter.hit(limit, "upstream"):
        time.sleep(0.01)


run(f"{version('limits')}, {version('redis')}", wait)
