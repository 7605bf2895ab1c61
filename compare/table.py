"""The table, in Markdown."""

import os
import platform
import re
import subprocess

from figures import (
    SECOND,
    calls_of_each,
    jain,
    longest_wait,
    quota_used,
    share_of,
    worst_around,
    worst_window,
)
from installed import Library
from one_run import Fault, Run
from work import (
    CALLERS,
    EVERYBODY,
    FAST_BY_SECONDS,
    FAST_PROCESS,
    LOSSES,
    PROCESSES,
    QUOTA,
    RUN_SECONDS,
    STALL_SECONDS,
    WINDOW,
    WINDOW_SECONDS,
)

HEAD = [
    "",
    f"worst {WINDOW_SECONDS} s",
    "store calls per call",
    "quota used",
    "Jain's index",
    "longest wait",
    f"one clock {FAST_BY_SECONDS} s fast: worst {WINDOW_SECONDS} s, share of that process (while its clock is right)",
    f"Redis lost its data: worst {WINDOW_SECONDS} s around it, and then",
]

COLUMNS = f"""\
* **worst {WINDOW_SECONDS} s**: the most calls that the upstream saw in any {WINDOW_SECONDS} s, by the kernel's stamp of
  their arrival; {QUOTA} are allowed.
* **store calls per call**: commands that the clients sent to Redis, by its `MONITOR`, for each call let through.
* **quota used**: the rate of the calls; 100 % is {QUOTA} calls every {WINDOW_SECONDS} s (N·T/W). For a library with a
  guard δ also against the most that its guard leaves, N·T/(W + δ).
* **Jain's index** of the calls of the {PROCESSES * CALLERS} callers: 1 when all get the same.
* **longest wait** of any caller for a call; `>` where it still waited in the end.
* **one clock {FAST_BY_SECONDS} s fast**: the wall clock of one process of the {PROCESSES} is ahead by so much; its fair
  share is {100 // PROCESSES} %.
* **Redis lost its data**: `FLUSHALL` and `SCRIPT FLUSH` in the midst of a burst, up to {len(LOSSES)} times in a run,
  never twice in {WINDOW_SECONDS} s. The worst {WINDOW_SECONDS} s are those within {WINDOW_SECONDS} s of one; a library
  that stops for good made no call between {WINDOW_SECONDS} s and {3 * WINDOW_SECONDS} s after it.
"""


def table(runs: dict[Library, dict[Fault, Run]]) -> str:
    """The whole document."""
    rows = [HEAD, ["---"] * len(HEAD), *(_row(library, of_it) for library, of_it in runs.items())]
    lines = ["| " + " | ".join(cells) + " |" for cells in rows]
    parts = [
        "# Outgate beside other libraries",
        f"Written by `make compare`: {PROCESSES} processes × {CALLERS} callers that call whenever they may, {QUOTA} "
        f"calls per {WINDOW_SECONDS} s, {RUN_SECONDS} s for each run, each with a redis-server of its own.",
        "\n".join(lines),
        COLUMNS.rstrip(),
        _errors(runs),
        _machine(runs),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _row(library: Library, runs: dict[Fault, Run]) -> list[str]:
    steady, fast, loss = runs[Fault.NOTHING], runs[Fault.FAST_CLOCK], runs[Fault.LOSS]
    return [
        library.name,
        str(worst_window(steady.stamps, WINDOW)),
        _per_call(steady),
        _quota_used(steady),
        f"{jain(calls_of_each(steady.calls, EVERYBODY)):.3f}",
        _longest_wait(steady),
        f"{worst_window(fast.stamps, WINDOW)}, {_share(fast)} ({_share(steady)})",
        _after_loss(loss),
    ]


def _per_call(run: Run) -> str:
    if not run.calls:
        return "no call"
    ratio = run.commands / len(run.calls)
    return f"{ratio:.2f}" if ratio < 10 else f"{ratio:.0f}"


def _quota_used(run: Run) -> str:
    used = quota_used(run.stamps, QUOTA, WINDOW)
    if used is None:
        return f"{len(run.calls)} calls"
    guarded = quota_used(run.stamps, QUOTA, WINDOW + run.guard)
    return _percent(used) + (f"; {_percent(guarded)} of what its guard leaves" if run.guard and guarded else "")


def _longest_wait(run: Run) -> str:
    wait = longest_wait(run.calls, EVERYBODY, run.begin, run.end)
    return f"{'> ' if wait.unfinished else ''}{wait.length / SECOND:.1f} s"


def _after_loss(run: Run) -> str:
    if not run.losses:
        return f"no loss: {len(run.calls)} calls"
    goes_on = any(stamp > run.losses[-1] + WINDOW for stamp in run.stamps)
    return f"{worst_around(run.stamps, run.losses, WINDOW)}, {'resumes' if goes_on else 'stops for good'}"


def _errors(runs: dict[Library, dict[Fault, Run]]) -> str:
    lines = []
    for library, of_it in runs.items():
        for fault, run in of_it.items():
            lines += [f"* {library.name}, where {fault.value}: `{_short(error)}`" for error in run.errors]
    return "\n".join(["The first error of each process, where there was one:", "", *lines]) if lines else ""


def _share(run: Run) -> str:
    return _percent(share_of(run.calls, FAST_PROCESS))


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def _short(error: str) -> str:
    """Hashes of scripts say nothing to a reader."""
    return re.sub(r"\bf_[0-9a-f]{40}\b", "…", error).replace("`", "'").replace("|", "/")[:120]


def _machine(runs: dict[Library, dict[Fault, Run]]) -> str:
    every = [run for of_it in runs.values() for run in of_it.values()]
    node = subprocess.run(["node", "--version"], stdout=subprocess.PIPE, text=True, check=True).stdout.strip()
    versions = list(dict.fromkeys(run.versions for run in every))
    versions += dict.fromkeys(f"Redis {run.redis_version}" for run in every)
    versions += [f"Node.js {node.removeprefix('v')}", f"Python {platform.python_version()}"]
    return (
        f"{'; '.join(versions)}. {os.cpu_count()} cores of {platform.machine()}, one run after another; a run "
        f"during which the machine stood still for over {1000 * STALL_SECONDS:.0f} ms was made again, and the longest "
        f"stall in those shown is {1000 * max(run.stall_seconds for run in every):.0f} ms."
    )
