"""Products in bfloat16 on a CPU: operands are rounded, sums and weights are float32.

On a CPU without such instructions operands are rounded and multiplied as float32, which is the same
arithmetic. tools/hidden_bf16 runs these tests on instructions that a hypervisor hides.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pycaffe_fire.backend import choice
from pycaffe_fire.backend.base import Backend
from pycaffe_fire.backend.choice import GpuOptions, choose_backend
from pycaffe_fire.backend.numpy import NumPyBackend
from pycaffe_fire.backend.onednn import OneDNNBackend, library, precision_trial
from pycaffe_fire.backend.onednn.library import BF16
from pycaffe_fire.backend.tensor import BFLOAT16, FLOAT32
from pycaffe_fire.errors import BackendError
from pycaffe_fire.parallel.communicators.wire import BFloat16
from tests.backend.op_cases import CONVS, Array, Conv, Planner, blob, onednn, window
from tests.random_numbers import RNG

SHAPES = {
    **{name: CONVS[name] for name in ("basic", "groups", "depthwise", "dilated", "1-D", "3-D")},
    "blocks": Conv((2, 16, 7, 7), 32, window((3, 3), 1, 1)),
    "block and a bit": Conv((1, 17, 6, 5), 19, window((3, 3), 2, 1)),
    "a Winograd one": Conv((2, 64, 12, 16), 96, window((3, 3), 1, 1)),
    "deconvolution": Conv((2, 16, 4, 4), 32, window((4, 4), 2, 1), 1, True),
}
ALWAYS_ROUNDED = "blocks", "a Winograd one"  # the library has kernels of 16 bits for these


@pytest.fixture
def backend() -> OneDNNBackend:
    onednn(1)  # skips where there is none
    return OneDNNBackend(2, BFLOAT16)


def rounded(values: Array) -> Array:
    out, wire = np.empty_like(values), BFloat16()
    wire.decode(wire.encode(values), out)
    return out


def normal(*shapes: tuple[int, ...]) -> list[Array]:
    return [RNG.standard_normal(shape).astype(np.float32) for shape in shapes]


def run(plan: Any, x: Any, w: Any, b: Any, y: Any, dy: Array) -> dict[str, Array]:
    plan.forward()
    y.diff[...] = dy
    plan.backward(True, True, True)
    return {"y": y.data.copy(), "dx": x.diff.copy(), "dw": w.diff.copy(), "db": b.diff.copy()}


def assert_close(got: dict[str, Array], right: dict[str, Array]) -> None:
    for what, values in right.items():
        np.testing.assert_allclose(got[what], values, rtol=1e-4, atol=1e-3, err_msg=what)


def compare(got: dict[str, Array], right: dict[str, Array], exact: dict[str, Array]) -> None:
    """The gradient of a bias, too, is the sum of gradients as products see them."""
    for what, values in right.items():
        limit = 2e-5 * float(np.abs(values).max())
        np.testing.assert_allclose(got[what], values, rtol=2e-5, atol=limit, err_msg=what)
        # A sum of few gradients may come close to the exact one, but never as close as to its own.
        off = [np.abs(got[what] - other).max() for other in (values, exact[what])]
        assert off[1] > 10 * off[0], f"{what} is not rounded"


@pytest.mark.parametrize("name", SHAPES)
def test_convolutions_multiply_rounded_numbers(backend: OneDNNBackend, name: str) -> None:
    """All but those that stay float32 as a whole, on a CPU that multiplies others in 16 bits."""
    case, stay_exact = SHAPES[name], False
    x, w, b, dy = normal(case.shape, case.weights, (case.outputs,), case.out)

    def run_on(kind: Backend, x: Array, w: Array, dy: Array) -> dict[str, Array]:
        nonlocal stay_exact
        blobs = blob(kind, x), blob(kind, w), blob(kind, b)
        y, planner = blob(kind, case.out), Planner(kind)
        plan = planner.convolution(*blobs, y, case.window, case.groups, None, case.transposed)
        if kind is backend:
            stay_exact = not backend.rounds_operands and plan._kind != BF16
        found = run(plan, *blobs, y, dy)
        np.testing.assert_array_equal(blobs[0].data, x)  # operands themselves are as they were
        np.testing.assert_array_equal(blobs[1].data, w)
        return found

    got, exact = run_on(backend, x, w, dy), run_on(NumPyBackend(), x, w, dy)
    if stay_exact:
        assert name not in ALWAYS_ROUNDED
        assert_close(got, exact)
    else:
        compare(got, run_on(NumPyBackend(), *map(rounded, (x, w, dy))), exact)


@pytest.mark.parametrize("transpose", [False, True])
@pytest.mark.parametrize(("shape", "axis"), [((3, 5), 1), ((4, 16, 3, 3), 1), ((2, 3, 4), 2)])
def test_inner_products_multiply_rounded_numbers(
    backend: OneDNNBackend, shape: tuple[int, ...], axis: int, transpose: bool
) -> None:
    inputs, outputs = int(np.prod(shape[axis:])), 7
    pair = (inputs, outputs) if transpose else (outputs, inputs)
    x, w, b, dy = normal(shape, pair, (outputs,), (*shape[:axis], outputs))

    def run_on(kind: Backend, x: Array, w: Array, dy: Array) -> dict[str, Array]:
        blobs, y = (blob(kind, x), blob(kind, w), blob(kind, b)), blob(kind, dy.shape)
        return run(Planner(kind).inner_product(*blobs, y, axis, transpose), *blobs, y, dy)

    got, exact = run_on(backend, x, w, dy), run_on(NumPyBackend(), x, w, dy)
    compare(got, run_on(NumPyBackend(), *map(rounded, (x, w, dy))), exact)


def test_weights_take_steps_that_bfloat16_has_not(backend: OneDNNBackend) -> None:
    """A weight of 1 and a step of 2^-12 are one number in 16 bits, and two in the weights."""
    w = blob(backend, np.ones((1, 1), np.float32))
    x, y = blob(backend, np.ones((1, 1), np.float32)), blob(backend, (1, 1))
    plan = Planner(backend).inner_product(x, w, None, y, 1, False)
    for _ in range(16):
        w.data[...] += 2.0**-12
    plan.forward()
    assert w.data.item() == 1 + 2.0**-8
    assert y.data.item() == 1.0  # halfway, so rounded to even
    w.data[...] += 2.0**-12
    plan.forward()
    assert y.data.item() == 1 + 2.0**-7


def test_a_copy_for_leaves_multiplies_alike(backend: OneDNNBackend) -> None:
    assert backend.another(1).products == BFLOAT16
    assert "products in bfloat16" in backend.describe()


def test_shapes_without_a_fast_kernel_stay_float32(
    backend: OneDNNBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a CPU whose library has 16 bits for some shapes only; here it says so of all."""
    monkeypatch.setattr(type(backend.library), "implementation", lambda *_: "ref:any")
    backend.operand_kind, backend.rounds_operands = BF16, False
    case = SHAPES["blocks"]
    x, w, b, dy = normal(case.shape, case.weights, (case.outputs,), case.out)
    found = []
    for kind in (backend, NumPyBackend()):
        blobs, y = (blob(kind, x), blob(kind, w), blob(kind, b)), blob(kind, case.out)
        plan = Planner(kind).convolution(*blobs, y, case.window, 1)
        found.append(run(plan, *blobs, y, dy))
    assert_close(*found)


def test_a_cpu_that_would_be_slower_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    onednn(1)
    kind = type(library())
    monkeypatch.setattr(kind, "multiplies_bf16", property(lambda _: False))
    with pytest.raises(BackendError, match="avx512_bf16 or AMX.*float32 is faster"):
        choose_backend(None, 1, options=GpuOptions(precision=BFLOAT16))
    monkeypatch.setattr(kind, "multiplies_bf16", property(lambda _: True))
    monkeypatch.setattr(choice, "speedup", lambda plain, other: 0.5)
    with pytest.raises(BackendError, match="takes 2.0 times as long .* leave the flag out"):
        choose_backend(None, 1, options=GpuOptions(precision=BFLOAT16))
    monkeypatch.setattr(choice, "speedup", lambda plain, other: 1.7)
    chosen: Any = choose_backend(None, 2, options=GpuOptions(precision=BFLOAT16))
    assert (chosen.products, chosen.threads, chosen.operand_kind) == (BFLOAT16, 2, BF16)
    with pytest.raises(BackendError, match="--precision float16 needs a GPU"):
        choose_backend(None, 1, options=GpuOptions(precision="float16"))


def test_the_faster_of_the_least_times_counts(
    backend: OneDNNBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a clock that only passes move: 3 and 2 s, but for rounds that others have disturbed."""
    took = {FLOAT32: iter([9.0, 3.0] + 10 * [4.0]), BFLOAT16: iter([2.0] + 10 * [8.0])}
    clock = [0.0]

    def passes(kind: OneDNNBackend) -> Any:
        def run() -> None:
            clock[0] += next(took[kind.products])

        return run

    monkeypatch.setattr(precision_trial, "_passes", passes)
    monkeypatch.setattr("time.perf_counter", lambda: clock[0])
    assert precision_trial.speedup(OneDNNBackend(1), backend) == 1.5


@pytest.mark.parametrize("products", [FLOAT32, BFLOAT16])
def test_a_trial_is_a_pass_forward_and_backward(
    products: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    onednn(1)
    kind = OneDNNBackend(1, products)
    made: list[Any] = []
    plan = kind.convolution

    def noted(*given: Any) -> Any:
        made.append(given)
        return plan(*given)

    monkeypatch.setattr(kind, "convolution", noted)
    run = precision_trial._passes(kind)
    for x, w, b, y, *_ in made:
        x.data[...], w.data[...], b.data[...], y.diff[...] = 1, 1, 1, 1
    run()
    (x, w, b, y, *_), (_, inner, *_) = made
    assert y.data[0, 0, 0, 0] == 256 + 1  # a sum over channels, and the bias
    assert x.diff[0, 0, 0, 0] == 256
    assert (w.diff > 0).all() and (b.diff > 0).all() and inner.shape[2:] == (3, 3)
