"""Kernels are compiled with less; other users of numba in the process notice nothing of it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pycaffe_fire.backend import compiled
from pycaffe_fire.backend.lean_compiler import lean

pytestmark = pytest.mark.skipif(not compiled.available(), reason="there is no numba")


def usual() -> tuple[Any, Any]:
    """What is exchanged meanwhile."""
    core = compiled.numba().core
    codegen = core.registry.cpu_target.target_context.codegen()
    return codegen._library_class, core.types.functions.BaseFunction.get_call_type


def test_all_is_as_before_afterwards() -> None:
    before = usual()
    with lean():
        assert not set(usual()) & set(before)
    assert usual() == before
    with pytest.raises(ValueError, match="in between"), lean():
        raise ValueError("in between")
    assert usual() == before


def scaled_copy(numbers: Any, factor: Any) -> Any:
    made = np.empty_like(numbers)
    for i in range(numbers.size):
        made[i] = numbers[i] * factor + i
    return made


def test_functions_that_make_arrays_still_compile() -> None:
    numbers = np.arange(5, dtype=np.float32)
    expected = numbers * 3 + np.arange(5)
    assert np.array_equal(compiled.jit(scaled_copy)(numbers, 3), expected)
    with lean():
        pass
    assert np.array_equal(compiled.numba().njit(scaled_copy)(numbers, 3), expected)


def mixed(flags: Any, out: Any) -> None:
    """The same operators on numbers of several kinds."""
    for i in range(out.size):
        whole, real = flags[i] + 1, out[i] + 1
        out[i] = real * whole + (whole > 2) + (real > 2)


def test_an_operator_is_remembered_for_each_kind_of_numbers() -> None:
    kernel = compiled.Kernel(mixed, "i8[::1], f8[::1]", _nrt=False)
    flags, out = np.arange(6), np.linspace(0, 3, 6)
    expected = (out + 1) * (flags + 1) + (flags + 1 > 2) + (out + 1 > 2)
    kernel(flags, out)
    assert np.allclose(out, expected, rtol=1e-15)
