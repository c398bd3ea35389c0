"""Kernels with shapes as constants: they compute what the kernel for all shapes computes, divide
by nothing, and are few."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from pycaffe_fire.backend.cuda import launch
from pycaffe_fire.backend.cuda.geometry import lifted
from pycaffe_fire.backend.cuda.launch import OPTIONS, Fixed, fixed_source, kernel_names, source_of
from tests.backend.op_cases import CONVS, POOLS, Planner, blob
from tests.cuda.nvrtc import Compiler, find
from tests.cuda.test_kernels_compile import ARCHITECTURES, CUPY_OPTIONS

WINDOW = (
    32, *lifted([28, 28]), *lifted([3, 3]), *lifted([2, 2]), *lifted([1, 1], 0), *lifted([1, 1]),
    *lifted([14, 14]),
)  # fmt: skip
SHAPES = {"channels": 96, "inner": 784, "parts": 5, "width": 784, "first": 98}


def with_shapes() -> dict[str, Fixed]:
    """All kernels that have FIXED parameters, with values for those."""
    entries = {name: launch._catalogue()[name].parameters for name in kernel_names()}
    return {
        name: tuple(WINDOW if p.pointer else SHAPES.get(p.name, 196) for p in given if p.fixed)
        for name, given in entries.items()
        if any(p.fixed for p in given)
    }


@pytest.fixture(scope="module")
def compiler() -> Compiler:
    path = find()
    if path is None:
        pytest.skip("the wheel nvidia-cuda-nvrtc is not installed")
    return Compiler(path)


DIVISION = re.compile(r"\b(?:div|rem)\.s(?:32|64)")  # loops count their rounds unsigned


@pytest.mark.parametrize("kind", ["float32", "bfloat16"])
def test_nothing_is_divided_by_a_shape(compiler: Compiler, kind: str) -> None:
    found = {
        name: len(DIVISION.findall(compiler.ptx(fixed_source(name, kind, fixed), 80, OPTIONS)))
        for name, fixed in with_shapes().items()
    }
    assert len(found) > 15 and set(found.values()) == {0}, found
    assert DIVISION.search(compiler.ptx(source_of("pooling", kind), 80, OPTIONS))


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_variants_compile(compiler: Compiler, architecture: int) -> None:
    name = ("max_pool", "normalize_sums", "im2col", "join_parts")[ARCHITECTURES.index(architecture)]
    source = fixed_source(name, "float16", with_shapes()[name])
    found = compiler.resources(source, architecture, (*OPTIONS, *CUPY_OPTIONS))
    assert list(found) == [name] and found[name][0] <= 64 and found[name][1] == 0


def _pooling(backend: Any, method: str) -> dict[str, Any]:
    case = POOLS["padded and overhanging"]
    x, y = blob(backend._backend, values_of(case.shape)), blob(backend._backend, case.out)
    plan = backend.pooling(x, y, method, case.window)
    plan.forward()
    y.diff[...] = values_of(case.out)
    plan.backward()
    return {"y": y.data, "dx": x.diff}


def _convolution(backend: Any, name: str) -> dict[str, Any]:
    case = CONVS[name]
    shapes = (case.shape, case.weights, (case.outputs,))
    x, w, b = (blob(backend._backend, values_of(shape)) for shape in shapes)
    y = blob(backend._backend, case.out)
    plan = backend.convolution(x, w, b, y, case.window, case.groups, 0.0, False)
    plan.forward()
    y.diff[...] = values_of(case.out)
    plan.backward(True, True, True)
    return {"y": y.data, "dx": x.diff, "dw": w.diff, "db": b.diff}


def _norm(backend: Any) -> dict[str, Any]:
    x, y = blob(backend._backend, values_of((3, 4, 4, 2))), blob(backend._backend, (3, 4, 4, 2))
    scale, shift = blob(backend._backend, values_of((4,))), blob(backend._backend, values_of((4,)))
    plan = backend.batch_norm(x, y, scale, shift, 1e-5, False, True)
    plan.forward()
    y.diff[...] = values_of((3, 4, 4, 2))
    plan.backward(True, True, True)
    return {"y": y.data, "dx": x.diff, "dscale": scale.diff, "dshift": shift.diff}


def _prelu(backend: Any) -> dict[str, Any]:
    x, y = blob(backend._backend, values_of((2, 3, 5, 1))), blob(backend._backend, (2, 3, 5, 1))
    slope = blob(backend._backend, values_of((3,)))
    plan = backend.prelu(x, y, slope)
    plan.forward()
    y.diff[...] = values_of((2, 3, 5, 1))
    plan.backward(True, True)
    return {"y": y.data, "dx": x.diff, "dslope": slope.diff}


def _concat(backend: Any) -> dict[str, Any]:
    xs = [blob(backend._backend, values_of((2, c, 3))) for c in (1, 4, 3, 2, 2)]
    y = blob(backend._backend, (2, 12, 3))
    plan = backend.concat(xs, y, 1)
    plan.forward()
    y.diff[...] = values_of((2, 12, 3))
    plan.backward([True] * 5)
    return {"y": y.data, **{f"dx{i}": x.diff for i, x in enumerate(xs)}}


def values_of(shape: tuple[int, ...]) -> Any:
    return np.random.default_rng(len(shape)).standard_normal(shape).astype(np.float32)


CASES: dict[str, tuple[Callable[..., dict[str, Any]], tuple[Any, ...]]] = {
    "max pooling": (_pooling, ("MAX",)),
    "average pooling": (_pooling, ("AVE",)),
    "convolution": (_convolution, ("dilated",)),
    "depthwise": (_convolution, ("depthwise",)),
    "batch norm": (_norm, ()),
    "prelu": (_prelu, ()),
    "concat": (_concat, ()),
}


@pytest.mark.parametrize("case", CASES)
def test_they_compute_the_same(case: str, cuda: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    run, arguments = CASES[case]
    want = {name: np.array(v) for name, v in run(Planner(cuda), *arguments).items()}
    assert not cuda.kernels.variants
    monkeypatch.setattr(launch, "WORTH_BLOCKS", 1)
    got = run(Planner(cuda), *arguments)
    assert cuda.kernels.variants
    for name, values in want.items():
        np.testing.assert_array_equal(got[name], values, err_msg=name)
    made = len(cuda.kernels.variants)
    run(Planner(cuda), *arguments)
    assert len(cuda.kernels.variants) == made  # the same shapes again


def test_there_are_not_more_than_so_many(cuda: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch, "WORTH_BLOCKS", 1)
    monkeypatch.setattr(launch, "MOST_VARIANTS", 1)
    bias = cuda.xp.asarray(np.array([1, 2, 3, 4], np.float32))
    for channels in (2, 4):
        values = cuda.xp.zeros(8, np.float32)
        cuda.kernels["bias_relu"](8, bias, channels, 2, 0, 0.0, 0, values)
        np.testing.assert_array_equal(
            values.get(), np.resize(np.repeat([1, 2, 3, 4], 2)[: 2 * channels], 8)
        )
    assert [fixed for _, _, fixed in cuda.kernels.variants] == [(2, 2, 0)]
