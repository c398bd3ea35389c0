"""Counter-based random numbers (Philox4x32-10): the same on any rank, thread or device.

A number is a pure function of (key, step, sample, position), so there is no generator state and
nothing depends on who draws first. One Philox block gives four 32-bit words:

    counter  c0 = block number (position // 4)
             c1 = sample, low 32 bits
             c2 = step, low 32 bits
             c3 = (sample >> 32 & 0xffff) | (step >> 32 & 0xffff) << 16
    key      k0 = key, low 32 bits;  k1 = key, high 32 bits
    word     position % 4 of the block

A device kernel that follows this table gives the same bits. Without numba, NumPy computes them.
"""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

from . import compiled
from .compiled import kernel, part
from .expressions import floor, for_each, sqrt, where_any_bit
from .instructions import at, copy, empty, free, min, view
from .tasks import in_parallel

_M0, _M1 = 0xD2511F53, 0xCD9E8D57
_W0, _W1 = 0x9E3779B9, 0xBB67AE85
_LOW = 0xFFFFFFFF
_TO_UNIT = np.float32(2.0**-24)
_TURN = 2.0 * np.pi * 2.0**-32
_HALF_PI, _HALF_PI_REST = 1.5707963267341256, 6.077100506506192e-11
TILE = 64  # blocks that kernels compute at once: a loop over them vectorises


def key(seed: int, purpose: str) -> int:
    """A 64-bit key for one stream: a stable hash of the run's seed and what the numbers are for."""
    digest = hashlib.blake2b(f"{seed}\0{purpose}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little")


def philox(key: Any, step: Any, sample: Any, block: Any) -> Any:
    """One block: words 0 and 1 in one uint64, low half first, words 2 and 3 in another.

    All arguments are uint64, those of NumPy, arrays of them, or Numbers.
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


def _block_of_tile(i: Any, key: Any, step: Any, sample: Any, first_block: Any) -> tuple[Any, Any]:
    a, b = philox(key, step, sample, first_block + i.view(np.uint64))
    return a, b


_blocks_of_tile = for_each(_block_of_tile, step=2)


@part
def philox_tile(
    key: Any, step: Any, sample: Any, first_block: Any, blocks: int, pairs: Any
) -> None:
    """Consecutive blocks, from `first_block` on; seen as uint32, `pairs` are their words in order.

    A function of its own, because this loop must vectorise and then is seven times as fast.
    """
    _blocks_of_tile(blocks, (), (pairs, at(pairs, 1)), (key, step, sample, first_block))


@kernel("u8, u8, u8, u4[:,::1]")
def _bits_loop(key: Any, step: Any, first: Any, out: Any) -> None:
    rows, n = out.shape
    pairs = empty(2 * TILE, np.uint64)
    words = view(pairs, np.uint32)
    for i in range(rows):
        for start in range(0, n, 4 * TILE):
            count, line = min(4 * TILE, n - start), at(out, i * n + start)
            sample, block = first + np.uint64(i), np.uint64(start // 4)
            philox_tile(key, step, sample, block, (count + 3) // 4, pairs)
            copy(words, line, count)
    free(pairs)


def _bits_numpy(key: int, step: int, first: int, rows: int, n: int) -> NDArray[np.uint32]:
    blocks = np.arange((n + 3) // 4, dtype=np.uint64)[None, :]
    samples = np.arange(first, first + rows, dtype=np.uint64)[:, None]
    pairs = philox(np.uint64(key), np.uint64(step), samples, blocks)
    return np.stack(pairs, axis=-1).astype("<u8").view("<u4").reshape(rows, -1)[:, :n]


def _log(x: Any) -> Any:
    """The natural logarithm of 0 < x <= 1, to the last bit or two; vectorises.

    x = 2^k m with m between sqrt(1/2) and sqrt(2), log m = 2 artanh((m - 1) / (m + 1)).
    """
    least = 0x3FE6A09E667F3BCD  # the bits of sqrt(1/2)
    shifted = x.view(np.uint64) + (0x3FF0000000000000 - least)
    k = ((shifted >> 52).astype(np.int32) - 1023).astype(np.float64)
    m = ((shifted & 0x000FFFFFFFFFFFFF) + least).view(np.float64)
    s = (m - 1.0) / (m + 1.0)
    z = s * s
    series = (((z / 21 + 1 / 19) * z + 1 / 17) * z + 1 / 15) * z + 1 / 13
    series = ((((series * z + 1 / 11) * z + 1 / 9) * z + 1 / 7) * z + 1 / 5) * z + 1 / 3
    return k * 0.6931471805599453 + (2.0 * s + 2.0 * s * z * series)


def _cos_sin(angle: Any) -> Any:
    """Cosine and sine of 0 <= angle < 2 pi, to the last bit or two; vectorises."""
    quarter = floor(angle * (2 / np.pi) + 0.5)
    t = (angle - quarter * _HALF_PI) - quarter * _HALF_PI_REST
    z = t * t
    cos = ((z / 20922789888000 - 1 / 87178291200) * z + 1 / 479001600) * z - 1 / 3628800
    cos = (((cos * z + 1 / 40320) * z - 1 / 720) * z + 1 / 24) * z - 1 / 2
    sin = ((z / 355687428096000 - 1 / 1307674368000) * z + 1 / 6227020800) * z - 1 / 39916800
    sin = (((sin * z + 1 / 362880) * z - 1 / 5040) * z + 1 / 120) * z - 1 / 6
    cos, sin = cos * z + 1.0, sin * z * t + t
    which = quarter.astype(np.int32)
    odd, back = which & 1, which & 2
    a, b = where_any_bit(odd, -sin, cos), where_any_bit(odd, cos, sin)
    return where_any_bit(back, -a, a), where_any_bit(back, -b, b)


def _normal_pair(i: Any, first: Any, second: Any) -> tuple[Any, Any]:
    """Two words, for radius and angle."""
    radius = sqrt(-2.0 * _log((first.astype(np.float64) + 1.0) * 2.0**-32))
    cos, sin = _cos_sin(second.astype(np.float64) * _TURN)
    return (radius * cos).astype(np.float32), (radius * sin).astype(np.float32)


_normal_pairs = for_each(_normal_pair, step=2)


@part
def _normals(task: int, key: Any, step: Any, sample: Any, out: Any) -> None:
    first, pairs = 4 * TILE * task, empty(2 * TILE, np.uint64)
    count, numbers = min(4 * TILE, out.size - first), at(out, first)
    philox_tile(key, step, sample, np.uint64(TILE * task), count // 4, pairs)
    words = view(pairs, np.uint32)
    _normal_pairs(count // 2, (words, at(words, 1)), (numbers, at(numbers, 1)), ())
    free(pairs)


@kernel("u8, u8, u8, f4[::1]")
def _normal_loop(key: Any, step: Any, sample: Any, out: Any) -> None:
    """`out` is a multiple of 4 long."""
    in_parallel((out.size + 4 * TILE - 1) // (4 * TILE), _normals, (key, step, sample, out))


def bits_batch(key: int, step: int, first_sample: int, rows: int, n: int) -> NDArray[np.uint32]:
    """(rows, n) words; row i is sample first_sample + i."""
    if not compiled.available():
        return np.ascontiguousarray(_bits_numpy(key, step, first_sample, rows, n))
    out = np.empty((rows, n), np.uint32)
    _bits_loop(np.uint64(key), np.uint64(step), np.uint64(first_sample), out)
    return out


def uniform_batch(
    key: int, step: int, first_sample: int, num_samples: int, n: int, out: NDArray[np.float32]
) -> NDArray[np.float32]:
    """Fill out (num_samples, n) with numbers in [0, 1); row i is sample first_sample + i."""
    rows = out.reshape(num_samples, n)
    if not np.shares_memory(rows, out):
        raise ValueError("uniform_batch needs an output that can be seen as (num_samples, n)")
    words = bits_batch(key, step, first_sample, num_samples, n)
    np.multiply((words >> np.uint32(8)).astype(np.float32), _TO_UNIT, out=rows)
    return out


def bits(key: int, step: int, sample: int, n: int) -> NDArray[np.uint32]:
    """n words of 32 random bits."""
    return bits_batch(key, step, sample, 1, n).reshape(n)


def uniform(key: int, step: int, sample: int, n: int) -> NDArray[np.float32]:
    """n numbers in [0, 1), multiples of 2**-24."""
    return uniform_batch(key, step, sample, 1, n, np.empty(n, np.float32))


def normal(key: int, step: int, sample: int, n: int) -> NDArray[np.float32]:
    """n standard normal numbers: Box-Muller on word pairs, computed in float64.

    Compiled, it runs on the threads that `compiled.use_threads` last set.
    """
    if not compiled.available():
        words = bits(key, step, sample, n + n % 2).astype(np.float64)
        radius = np.sqrt(-2.0 * np.log((words[0::2] + 1.0) * 2.0**-32))
        angle = words[1::2] * _TURN
        pairs = np.stack((radius * np.cos(angle), radius * np.sin(angle)), axis=-1)
        return pairs.reshape(-1)[:n].astype(np.float32)
    out = np.empty(-(-n // 4) * 4, np.float32)
    _normal_loop(np.uint64(key), np.uint64(step), np.uint64(sample), out)
    return out[:n]


def randint(key: int, step: int, sample: int, high: int) -> int:
    """An integer in [0, high), high <= 2**32 (scaled, so the bias is below high / 2**32)."""
    return int(bits(key, step, sample, 1)[0]) * high >> 32
