"""How threads of OpenMP wait for each other."""

from __future__ import annotations

import os

POLICY, SPINS = "OMP_WAIT_POLICY", "GOMP_SPINCOUNT"
SOME = "20000"  # times that libgomp looks: a quarter of a millisecond; its default takes ten times


def wait_briefly() -> None:
    """Let threads that wait give up their core sooner than libgomp would, unless the user has a
    policy: where other processes want the cores too, a thread that only looks whether another one
    is done keeps that one from running. Call it before what loads libgomp, which reads this once.
    """
    if POLICY not in os.environ:
        os.environ.setdefault(SPINS, SOME)
