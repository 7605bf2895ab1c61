"""The arithmetic of the figures. Times are nanoseconds, lists of them ascend."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import linear_regression

SECOND = 1_000_000_000


@dataclass(frozen=True)
class Call:
    """A call as the upstream saw it."""

    at: int
    process: int
    caller: int


def worst_window(stamps: Sequence[int], window: int) -> int:
    """The most stamps in any half-open window."""
    worst = oldest = 0
    for newest, stamp in enumerate(stamps):
        while stamps[oldest] + window <= stamp:
            oldest += 1
        worst = max(worst, newest - oldest + 1)
    return worst


def jain(counts: Sequence[int]) -> float:
    """Jain's index: 1 when all have the same, 1/n when one has it all."""
    squares = sum(count * count for count in counts)
    return sum(counts) ** 2 / (len(counts) * squares) if squares else 0.0


def quota_used(stamps: Sequence[int], quota: int, window: int) -> float | None:
    """The rate of the calls as a share of a quota in each window; nothing where they have none.

    The rate is the slope of their count over time, which takes even calls and bursts for what they are, and does not
    depend on when the run ends.
    """
    if len(set(stamps)) < 2:
        return None
    since_first = [stamp - stamps[0] for stamp in stamps]
    return linear_regression(since_first, range(len(stamps))).slope * window / quota


@dataclass(frozen=True)
class Wait:
    """For how long a caller was without a call, and whether it still was in the end."""

    length: int
    unfinished: bool


def longest_wait(calls: Sequence[Call], callers: Sequence[tuple[int, int]], begin: int, end: int) -> Wait:
    """The longest wait of any caller. Each waits again as soon as it has called."""
    since = {caller: begin for caller in callers}
    longest = Wait(0, False)
    for call in calls:
        wait = call.at - since[call.process, call.caller]
        longest = max(longest, Wait(wait, False), key=lambda wait: wait.length)
        since[call.process, call.caller] = call.at
    return max(longest, Wait(end - min(since.values()), True), key=lambda wait: wait.length)


def calls_of_each(calls: Sequence[Call], callers: Sequence[tuple[int, int]]) -> list[int]:
    """How often each caller called."""
    counts = Counter((call.process, call.caller) for call in calls)
    return [counts[caller] for caller in callers]


def share_of(calls: Sequence[Call], process: int) -> float:
    """The share of the calls that one process made."""
    return sum(call.process == process for call in calls) / len(calls) if calls else 0.0


def worst_around(stamps: Sequence[int], moments: Sequence[int], window: int) -> int:
    """The most stamps in any window, among those less than a window away from one of the moments."""
    near = ([stamp for stamp in stamps if abs(stamp - moment) < window] for moment in moments)
    return max((worst_window(stamps, window) for stamps in near), default=0)
