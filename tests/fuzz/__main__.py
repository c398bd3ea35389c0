"""python -m tests.fuzz --minutes 30: mutate and load files of every kind until the time is up."""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from .kinds import KINDS
from .run import BATCH, Tally, run_kind


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--minutes", type=float, default=1.0)
    parser.add_argument("--kind", action="append", choices=sorted(KINDS), help="only this one")
    parser.add_argument("--seed", type=int, default=int(time.time()), help="another: other inputs")
    parser.add_argument("--keep", type=Path, default=Path("fuzz_findings"), help="for findings")
    options = parser.parse_args()
    kinds = options.kind or sorted(KINDS)
    tallies = {name: Tally() for name in kinds}
    end = time.monotonic() + 60 * options.minutes
    turn = 0
    while time.monotonic() < end:
        for name in kinds:
            if time.monotonic() < end:
                before = len(tallies[name].findings)
                run_kind(name, options.seed, turn * BATCH, BATCH, tallies[name], options.keep)
                for finding in tallies[name].findings[before:]:
                    print(finding, flush=True)
        turn += 1
    print(f"seed {options.seed}")
    for name, tally in tallies.items():
        found = len(tally.findings)
        print(f"{name:14}{tally.cases:9,} cases {tally.seconds:8.0f} s {found:4} findings")
    return 1 if any(tally.findings for tally in tallies.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
