"""Philox against its published answers, and the native kernels against NumPy's definitions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pycaffe_fire.backend import random
from pycaffe_fire.backend.cpu import library
from pycaffe_fire.backend.cpu.random import RandomNormal, RandomUniform, RandomWords
from pycaffe_fire.errors import BackendError

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


GOLDEN_WORDS = [
    [172096488, 3622981763, 1907748307, 3751164762, 183211733],
    [700196285, 1966004416, 3761367784, 2064108057, 4283420804],
]
GOLDEN_NORMALS = ["-0x1.63866ap-2", "0x1.eb4a90p+0", "-0x1.05487ep+1", "0x1.3b03bap-2"]
COUNTS = [1, 3, 4, 9, 64, 255, 256, 259, 16384, 16387, 50_001]


@pytest.mark.parametrize("n", COUNTS)
def test_kernels_give_the_bits_of_numpy(isa: str, n: int, monkeypatch: pytest.MonkeyPatch) -> None:
    places = [
        (random.key(7, "dropout"), 2**33 + 5, 2**34 + 1),
        (2**64 - 1, 2**48 - 1, 2**48 - 2),  # the last sample, and the first again
        (5, 0, 2**32 - 2),  # samples whose high half changes
    ]
    for place in places:
        words = random.bits_batch(*place, 3, n)
        numbers = random.uniform_batch(*place, 3, n, np.empty((3, n), np.float32))
        with monkeypatch.context() as patch:
            patch.setattr(library, "available", lambda: False)
            assert np.array_equal(words, random.bits_batch(*place, 3, n))
            slow = random.uniform_batch(*place, 3, n, np.empty((3, n), np.float32))
        assert np.array_equal(numbers, slow)


@pytest.mark.parametrize("n", [1, 2, 5, 200_003])
def test_normal_numbers_are_those_of_numpy(
    isa: str, n: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = random.key(7, "fill")
    found = random.normal(key, 0, 0, n)
    monkeypatch.setattr(library, "available", lambda: False)
    expected = random.normal(key, 0, 0, n)
    np.testing.assert_allclose(found, expected, rtol=1e-7)  # the last bit of one in millions
    assert (found != expected).sum() <= 1


@pytest.mark.parametrize(
    ("kind", "dtype"),
    [(RandomWords, np.uint32), (RandomUniform, np.float32), (RandomNormal, np.float32)],
)
def test_bits_depend_on_no_instruction_set_and_no_threads(kind: Any, dtype: Any) -> None:
    rows, count = 3, 70_001
    found = []
    for isa in library.supported() if library.available() else ():
        with library.using(isa):
            for threads in (1, 2, 3):
                out = np.zeros((rows, count), dtype)
                kind(
                    threads=threads, key=2**63 + 5, step=3, sample=2**32 - 2, rows=rows,
                    count=count, out=out,
                ).run()  # fmt: skip
                found.append(out)
    assert all(np.array_equal(out, found[0]) for out in found)


@pytest.mark.skipif(not library.available(), reason="the CPU kernels are not compiled")
def test_a_kernel_needs_room_for_its_numbers() -> None:
    with pytest.raises(BackendError, match="random_words: out has 9 elements, .* needs 10"):
        RandomWords(threads=1, rows=2, count=5, out=np.zeros(9, np.uint32)).run()


def test_golden_bits() -> None:
    """Those of every release, instruction set and device."""
    words = random.bits_batch(random.key(1701, "data"), 2**33 + 5, 2**34 + 1, 2, 5)
    assert words.tolist() == GOLDEN_WORDS
    numbers = random.normal(random.key(1701, "fill"), 0, 0, 4)
    assert numbers.tolist() == [float.fromhex(text) for text in GOLDEN_NORMALS]


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
