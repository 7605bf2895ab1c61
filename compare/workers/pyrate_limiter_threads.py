"""Calls through PyrateLimiter and its Redis bucket, each caller a thread."""

from callers import QUOTA, REDIS, WINDOW_SECONDS, run, version
from pyrate_limiter import Duration, Limiter, Rate, RedisBucket
from redis import Redis

bucket = RedisBucket.init([Rate(QUOTA, WINDOW_SECONDS * Duration.SECOND)], Redis.from_url(REDIS), "upstream")
limiter = Limiter(bucket)


def wait() -> None:
    if not limiter.try_acquire("upstream"):
        raise RuntimeError("not acquired")


run(f"{version('pyrate-limiter')}, {version('redis')}", wait)
