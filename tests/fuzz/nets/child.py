"""A process that judges cases: numbers or texts in, one JSON line each out."""

from __future__ import annotations

import faulthandler
import json
import logging
import sys

from .case import Case
from .generate import generate
from .oracle import judge, variants_of


def main() -> None:
    faulthandler.enable()
    logging.disable(logging.CRITICAL)
    if "--guards" in sys.argv:
        from . import guards

        guards.start()
        check = guards.judge
    else:
        check = judge
    for line in sys.stdin:
        asked = json.loads(line)
        if isinstance(asked, int):
            verdict = check(generate(asked), variants_of(asked))
        else:
            verdict = check(Case.parse(asked))
        answer = {"finding": verdict.finding, "refused": verdict.refused}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
