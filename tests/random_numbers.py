"""The random numbers of tests: one generator, which starts again with every test.

So what a test draws depends on the test alone, not on those that ran before it in its process.
"""

from __future__ import annotations

import numpy as np

RNG = np.random.default_rng(0)


def start_again(seed: int) -> None:
    RNG.bit_generator.state = np.random.default_rng(seed).bit_generator.state
