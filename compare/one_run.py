"""One run of one library, with a Redis of its own."""

import time
from contextlib import ExitStack
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from figures import SECOND, Call
from installed import Library
from losses import Losses
from redis_server import RedisServer
from stalls import Stalls
from upstream import Upstream
from work import FAST_PROCESS, PROCESSES, RUN_SECONDS
from worker import Worker


class Fault(Enum):
    """What goes wrong during a run."""

    NOTHING = "nothing goes wrong"
    FAST_CLOCK = "one clock is fast"
    LOSS = "Redis loses its data"


@dataclass(frozen=True)
class Run:
    """What came of a run. Times are nanoseconds."""

    calls: list[Call]
    begin: int
    end: int
    # When Redis lost its data.
    losses: list[int]
    # What clients sent to Redis.
    commands: int
    guard: int
    versions: str
    redis_version: str
    # Of each process the first error, each told once.
    errors: list[str]
    stall_seconds: float

    @property
    def stamps(self) -> list[int]:
        """When the calls came."""
        return [call.at for call in self.calls]


def run(library: Library, fault: Fault, fast_clock: Path) -> Run:
    """Lets all its processes call for a while."""
    with ExitStack() as ending:
        server = ending.enter_context(RedisServer())
        losses = Losses(server)
        upstream = ending.enter_context(Upstream(losses.on_call) if fault is Fault.LOSS else Upstream())
        workers = []
        for process in range(PROCESSES):
            fast = fast_clock if (fault, process) == (Fault.FAST_CLOCK, FAST_PROCESS) else None
            workers.append(Worker(library, process, server.port, upstream.port, fast))
            ending.callback(workers[-1].end)
        guard, versions = [worker.ready() for worker in workers][0]
        commands, stalls = server.count_commands(), Stalls()
        begin = time.time_ns()
        for worker in workers:
            worker.go()
        if fault is Fault.LOSS:
            losses.wait()
        else:
            time.sleep(RUN_SECONDS)
        end, sent, stall = time.time_ns(), commands.stop(), stalls.stop()
        errors = list(dict.fromkeys(error for worker in workers for error in worker.errors()))
        return Run(
            calls=upstream.calls(begin, end),
            begin=begin,
            end=end,
            losses=losses.moments,
            commands=sent,
            guard=round(guard * SECOND),
            versions=versions,
            redis_version=server.version(),
            errors=errors,
            stall_seconds=stall,
        )
