"""Command line of the oracle; see the package's docstring for examples."""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from pathlib import Path

from .case import Case
from .generate import generate
from .judges import ISAS, Judge
from .shrink import shrink


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.nets")
    parser.add_argument("cases", nargs="*", type=Path, help="files to run again")
    parser.add_argument("--nets", type=int, default=1000, help="how many random nets")
    parser.add_argument("--seed", type=int, default=int(time.time()), help="number of the first")
    parser.add_argument("--guards", action="store_true", help="watch what is written past buffers")
    parser.add_argument("--keep", type=Path, default=Path("fuzz_findings"), help="for findings")
    parser.add_argument("--shrink", type=int, default=300, help="tries to make a finding smaller")
    parser.add_argument("--stop-after", type=int, default=0, help="end after so many findings")
    parser.add_argument("--isa", choices=sorted(ISAS), help="run on a lower instruction set")
    options = parser.parse_args()
    judge = Judge(options.guards, ISAS.get(options.isa))
    try:
        if options.cases:
            return _run_again(judge, options.cases)
        return _run_random(judge, options)
    finally:
        judge.close()


def _run_again(judge: Judge, paths: list[Path]) -> int:
    bad = 0
    for path in paths:
        verdict = judge.judge(path.read_text())
        bad += bool(verdict.finding)
        print(f"{path}: {verdict.finding or ('refused' if verdict.refused else 'agrees')}")
    return 1 if bad else 0


def _run_random(judge: Judge, options: argparse.Namespace) -> int:
    counts: Counter[str] = Counter()
    began = time.monotonic()
    for number in range(options.seed, options.seed + options.nets):
        verdict = judge.judge(number)
        kind = "refused" if verdict.refused else "agree"
        counts["findings" if verdict.finding else kind] += 1
        if verdict.finding:
            _keep(judge, number, verdict.finding, options)
            if counts["findings"] == options.stop_after:
                break
    spent = time.monotonic() - began
    told = ", ".join(f"{count:,} {what}" for what, count in sorted(counts.items()))
    print(f"seeds {options.seed} to {number}: {told}; {spent:.0f} s")
    return 1 if counts["findings"] else 0


def _keep(judge: Judge, number: int, finding: str, options: argparse.Namespace) -> None:
    """Store a finding, as small as it can be made."""
    case, found = generate(number), finding
    if options.shrink:

        def finds(case: Case) -> str:
            return judge.judge(case.text()).finding

        smaller, what = shrink(case, finds, options.shrink)
        if what:
            case, found = smaller, what
        else:
            found = f"only after other nets in the same process: {finding}"
    options.keep.mkdir(parents=True, exist_ok=True)
    path = options.keep / f"{number}.prototxt"
    path.write_text(case.text(found))
    print(f"{path}: {found}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
