"""Philox against its published answers, and the numba and NumPy paths against each other."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pycaffe_fire.backend import compiled, random

# (counter words, key words, output words) of Philox4x32-10 from the Random123 answer file.
KNOWN = [
    ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
    ((0xFFFFFFFF,) * 4, (0xFFFFFFFF,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
    (
        (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
        (0xA4093822, 0x299F31D0),
        (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
    ),
]


@pytest.mark.parametrize(("counter", "key", "expected"), KNOWN)
def test_known_answers(counter: Any, key: Any, expected: Any) -> None:
    block, sample_low, step_low, high = counter
    sample = sample_low | (high & 0xFFFF) << 32
    step = step_low | (high >> 16) << 32
    pairs = random.philox(
        np.uint64(key[0] | key[1] << 32), np.uint64(step), np.uint64(sample), np.uint64(block)
    )
    assert tuple(int(p) >> shift & 0xFFFFFFFF for p in pairs for shift in (0, 32)) == expected


@pytest.mark.parametrize("n", [1, 3, 4, 9, 64])
def test_numpy_gives_the_same_bits(n: int, monkeypatch: pytest.MonkeyPatch) -> None:
    arguments = (random.key(7, "dropout"), 2**33 + 5, 2**34 + 1, 3, n)
    fast = random.bits_batch(*arguments)
    fast_uniform = random.uniform_batch(*arguments, np.empty((3, n), np.float32))
    monkeypatch.setattr("pycaffe_fire.backend.compiled.available", lambda: False)
    assert np.array_equal(fast, random.bits_batch(*arguments))
    slow_uniform = random.uniform_batch(*arguments, np.empty((3, n), np.float32))
    assert np.array_equal(fast_uniform, slow_uniform)


@pytest.mark.parametrize("n", [1, 2, 5, 200_003])
def test_normal_numbers_do_not_depend_on_threads_or_compiler(
    n: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    key, found = random.key(7, "fill"), []
    for threads in (1, 2):
        compiled.use_threads(threads)
        found.append(random.normal(key, 0, 0, n))
    monkeypatch.setattr(compiled, "available", lambda: False)
    found.append(random.normal(key, 0, 0, n))
    assert np.array_equal(found[0], found[1])
    np.testing.assert_allclose(found[0], found[2], rtol=1e-7)  # the last bit of one in millions
    assert (found[0] != found[2]).sum() <= 1


def test_rows_are_samples_and_streams_differ() -> None:
    key = random.key(1, "a")
    rows = random.bits_batch(key, 4, 10, 5, 8)
    for i in range(5):
        assert np.array_equal(rows[i], random.bits(key, 4, 10 + i, 8))
    assert len(np.unique(rows)) == 40
    assert random.key(1, "a") != random.key(1, "b") != random.key(2, "b")
    assert not np.array_equal(random.bits(key, 4, 10, 4), random.bits(key, 5, 10, 4))


def test_prefix_is_stable() -> None:
    key = random.key(1, "a")
    assert np.array_equal(random.bits(key, 0, 0, 5), random.bits(key, 0, 0, 99)[:5])


def test_key_is_stable_across_releases() -> None:
    assert random.key(1701, "data") == 0x593E403A80E9431F


def test_distributions() -> None:
    key = random.key(3, "stats")
    u = random.uniform(key, 0, 0, 200_000)
    assert u.dtype == np.float32 and u.min() >= 0 and u.max() < 1
    assert abs(u.mean() - 0.5) < 0.003 and abs(u.var() - 1 / 12) < 0.001
    z = random.normal(key, 0, 1, 200_001)
    assert z.dtype == np.float32 and len(z) == 200_001
    assert abs(z.mean()) < 0.01 and abs(z.std() - 1) < 0.01 and abs((z**4).mean() - 3) < 0.1
    draws = [random.randint(key, 0, s, 6) for s in range(600)]
    assert set(draws) == set(range(6))


def test_uniform_batch_fills_any_shape_in_place() -> None:
    out = np.empty((2, 3, 5), np.float32)
    assert random.uniform_batch(5, 0, 7, 2, 15, out) is out
    assert np.array_equal(out[1].ravel(), random.uniform(5, 0, 8, 15))
    with pytest.raises(ValueError, match="seen as"):
        random.uniform_batch(5, 0, 7, 2, 12, np.empty((2, 4, 3), np.float32).transpose(0, 2, 1))
