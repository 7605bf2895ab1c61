"""Calls through PyrateLimiter and its Redis bucket, each caller a task."""

import asyncio

from callers import QUOTA, REDIS, WINDOW_SECONDS, run_async, version
from pyrate_limiter import Duration, Limiter, Rate, RedisBucket
from redis.asyncio import Redis


async def main() -> None:
    bucket = await RedisBucket.init([Rate(QUOTA, WINDOW_SECONDS * Duration.SECOND)], Redis.from_url(REDIS), "upstream")
    limiter = Limiter(bucket)

    async def wait() -> None:
        if not await limiter.try_acquire_async("upstream"):
            raise RuntimeError("not acquired")

    await run_async(f"{version('pyrate-limiter')}, {version('redis')}", wait)


asyncio.run(main())
