"""Random words and numbers in arrays: native/random.c."""

from __future__ import annotations

from .library import Floats, Kernel, Uint32s


class _Rows(Kernel):
    """The fields that all of these kernels share; row r is sample `sample` + r."""

    key: int
    step: int
    sample: int
    rows: int
    count: int

    def check(self) -> None:
        self.need(out=self.rows * self.count)


class RandomWords(_Rows):
    """32 random bits each."""

    name = "random_words"
    out: Uint32s


class RandomUniform(_Rows):
    """Multiples of 2**-24 in [0, 1)."""

    name = "random_uniform"
    out: Floats


class RandomNormal(_Rows):
    """Standard normal numbers, two from every two words."""

    name = "random_normal"
    out: Floats
