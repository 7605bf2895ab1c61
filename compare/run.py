#!/usr/bin/env python3
"""Outgate beside other libraries: same work, same Redis, same machine.

    make compare
    python3 -B compare/run.py --only Outgate --only minTime

Installs what it compares into a folder that it removes again, and writes `compare/RESULTS.md`; with `--only`, it prints
the table of those libraries instead.
"""

import argparse
import signal
import sys
import tempfile
from pathlib import Path

from installed import HERE, Library, build_fast_clock, install
from one_run import Fault, Run, run
from table import table
from work import ATTEMPTS, STALL_SECONDS


def main() -> None:
    """Compares."""
    parser = argparse.ArgumentParser(description="Outgate beside other libraries.")
    parser.add_argument("--only", action="append", metavar="NAME", help="only print those with this in their name")
    only = parser.parse_args().only
    # Whatever was started ends also when this is told to end.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    with tempfile.TemporaryDirectory(prefix="outgate-compare-") as folder:
        _say("installing")
        libraries, fast_clock = install(Path(folder)), build_fast_clock(Path(folder))
        if only:
            libraries = [library for library in libraries if any(name in library.name for name in only)]
        if not libraries:
            parser.error("there is no such library")
        text = table({library: _runs(library, fast_clock) for library in libraries})
    if only:
        print(text)
    else:
        (HERE / "RESULTS.md").write_text(text)
        _say("wrote compare/RESULTS.md")


def _runs(library: Library, fast_clock: Path) -> dict[Fault, Run]:
    return {fault: _undisturbed(library, fault, fast_clock) for fault in Fault}


def _undisturbed(library: Library, fault: Fault, fast_clock: Path) -> Run:
    """A run during which the machine never stood still for long, else the least disturbed of those tried."""
    runs: list[Run] = []
    while len(runs) < ATTEMPTS:
        _say(f"{library.name.strip('*')}: {fault.value}")
        runs.append(run(library, fault, fast_clock))
        if runs[-1].stall_seconds <= STALL_SECONDS:
            break
        _say(f"the machine stood still for {runs[-1].stall_seconds:.3f} s")
    return min(runs, key=lambda run: run.stall_seconds)


def _say(what: str) -> None:
    print(what, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
