"""Counter-based random numbers (Philox4x32-10): the same on any rank, thread or device.

A number is a pure function of (key, step, sample, position), so there is no generator state and
nothing depends on who draws first. One Philox block gives four 32-bit words:

    counter  c0 = block number (position // 4)
             c1 = sample, low 32 bits
             c2 = step, low 32 bits
             c3 = (sample >> 32 & 0xffff) | (step >> 32 & 0xffff) << 16
    key      k0 = key, low 32 bits;  k1 = key, high 32 bits
    word     position % 4 of the block

A kernel that follows this table gives the same bits. Without the native kernels, NumPy computes
them.
"""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .cpu import library
from .cpu.random import RandomNormal, RandomUniform, RandomWords

_M0, _M1 = 0xD2511F53, 0xCD9E8D57
_W0, _W1 = 0x9E3779B9, 0xBB67AE85
_LOW = 0xFFFFFFFF
_TO_UNIT = np.float32(2.0**-24)
_TURN = 2.0 * np.pi * 2.0**-32


def key(seed: int, purpose: str) -> int:
    """A 64-bit key for one stream: a stable hash of the run's seed and what the numbers are for."""
    digest = hashlib.blake2b(f"{seed}\0{purpose}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little")


def philox(key: Any, step: Any, sample: Any, block: Any) -> Any:
    """One block: words 0 and 1 in one uint64, low half first, words 2 and 3 in another.

    All arguments are NumPy's uint64, or arrays of them.
    """
    low = np.uint64(_LOW)
    half = np.uint64(0xFFFF)
    shift = np.uint64(32)
    c0 = block & low
    c1 = sample & low
    c2 = step & low
    c3 = ((sample >> shift) & half) | (((step >> shift) & half) << np.uint64(16))
    k0 = key & low
    k1 = key >> shift
    for _ in range(10):
        p0 = np.uint64(_M0) * c0
        p1 = np.uint64(_M1) * c2
        c0 = (p1 >> shift) ^ c1 ^ k0
        c1 = p1 & low
        c2 = (p0 >> shift) ^ c3 ^ k1
        c3 = p0 & low
        k0 = (k0 + np.uint64(_W0)) & low
        k1 = (k1 + np.uint64(_W1)) & low
    return c0 | (c1 << shift), c2 | (c3 << shift)


def _bits_numpy(key: int, step: int, first: int, rows: int, n: int) -> NDArray[np.uint32]:
    blocks = np.arange((n + 3) // 4, dtype=np.uint64)[None, :]
    samples = np.arange(first, first + rows, dtype=np.uint64)[:, None]
    pairs = philox(np.uint64(key), np.uint64(step), samples, blocks)
    return np.stack(pairs, axis=-1).astype("<u8").view("<u4").reshape(rows, -1)[:, :n]


def bits_batch(key: int, step: int, first_sample: int, rows: int, n: int) -> NDArray[np.uint32]:
    """(rows, n) words; row i is sample first_sample + i."""
    if not library.available():
        return np.ascontiguousarray(_bits_numpy(key, step, first_sample, rows, n))
    out = np.empty((rows, n), np.uint32)
    RandomWords(
        threads=1, key=key, step=step, sample=first_sample, rows=rows, count=n, out=out
    ).run()
    return out


def uniform_batch(
    key: int, step: int, first_sample: int, num_samples: int, n: int, out: NDArray[np.float32],
    threads: int = 1,
) -> NDArray[np.float32]:  # fmt: skip
    """Fill out (num_samples, n) with numbers in [0, 1); row i is sample first_sample + i."""
    rows = out.reshape(num_samples, n)
    if not np.shares_memory(rows, out):
        raise ValueError("uniform_batch needs an output that can be seen as (num_samples, n)")
    if library.available() and out.flags.c_contiguous:
        RandomUniform(
            threads=threads, key=key, step=step, sample=first_sample, rows=num_samples, count=n,
            out=out,
        ).run()  # fmt: skip
    else:
        words = bits_batch(key, step, first_sample, num_samples, n)
        np.multiply((words >> np.uint32(8)).astype(np.float32), _TO_UNIT, out=rows)
    return out


def bits(key: int, step: int, sample: int, n: int) -> NDArray[np.uint32]:
    """n words of 32 random bits."""
    return bits_batch(key, step, sample, 1, n).reshape(n)


def uniform(key: int, step: int, sample: int, n: int, threads: int = 1) -> NDArray[np.float32]:
    """n numbers in [0, 1), multiples of 2**-24."""
    return uniform_batch(key, step, sample, 1, n, np.empty(n, np.float32), threads)


def normal(key: int, step: int, sample: int, n: int, threads: int = 1) -> NDArray[np.float32]:
    """n standard normal numbers: Box-Muller on word pairs, computed in float64."""
    if not library.available():
        words = bits(key, step, sample, n + n % 2).astype(np.float64)
        radius = np.sqrt(-2.0 * np.log((words[0::2] + 1.0) * 2.0**-32))
        angle = words[1::2] * _TURN
        pairs = np.stack((radius * np.cos(angle), radius * np.sin(angle)), axis=-1)
        return pairs.reshape(-1)[:n].astype(np.float32)
    out = np.empty(n, np.float32)
    RandomNormal(threads=threads, key=key, step=step, sample=sample, rows=1, count=n, out=out).run()
    return out


def randint(key: int, step: int, sample: int, high: int) -> int:
    """An integer in [0, high), high <= 2**32 (scaled, so the bias is below high / 2**32)."""
    return int(bits(key, step, sample, 1)[0]) * high >> 32
