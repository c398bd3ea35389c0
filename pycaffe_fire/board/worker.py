"""A process of its own that runs nets and reads data for the board: requests in, answers out.

Both are JSON lines. A request names an operation and its arguments; the answers are any number of
{"progress": [done, total]} and at last {"result": ...} or {"error": "one sentence"}. What is large
(nets, images) stays here between requests, under the operation's first arguments.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import sys
from collections.abc import Callable, Iterator
from typing import IO, Any

from ..errors import FireError
from .browse import Browser
from .results import Evaluation
from .trial import Trial

Answers = Iterator[dict[str, Any]]
KINDS: dict[str, Callable[..., Any]] = {"browse": Browser, "results": Evaluation, "trial": Trial}


def main() -> None:
    """Serve one object of a kind (see KINDS) until the board closes our input."""
    with contextlib.suppress(OSError, AttributeError):
        os.nice(10)  # a run on this machine comes first
    logging.getLogger("pycaffe_fire").setLevel(logging.ERROR)
    out, sys.stdout = sys.stdout, sys.stderr  # nothing but answers may stand between answers
    subject: Any = None
    for line in sys.stdin:
        request = json.loads(line)
        for answer in _answers(subject, request):
            if "subject" in answer:
                subject, answer = answer["subject"], {"result": True}
            _write(out, answer)


def _write(out: IO[str], answer: dict[str, Any]) -> None:
    out.write(json.dumps(answer) + "\n")
    out.flush()


def _handle(subject: Any, request: dict[str, Any]) -> Answers:
    if "open" in request:
        folder = request["folder"]
        if folder and os.path.isdir(folder):  # what relative paths in the net start from
            os.chdir(folder)
        yield {"subject": KINDS[request["open"]](**request["arguments"])}
        return
    found = getattr(subject, f"do_{request['do']}")(**request["arguments"])
    if isinstance(found, Iterator):
        yield from found
    else:
        yield {"result": found}


def _answers(subject: Any, request: dict[str, Any]) -> Answers:
    try:
        yield from _handle(subject, request)
    except FireError as error:
        yield {"error": str(error)}
    except MemoryError:
        yield {"error": "out of memory"}
    except Exception as error:  # a fault of ours must not end the process without a word
        yield {"error": f"{type(error).__name__}: {error}"}


if __name__ == "__main__":
    main()
