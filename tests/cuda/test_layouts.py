"""Blobs with their channels last: every op computes what it computes otherwise, 16-bit nets lie
that way between their edges, and the outside never notices."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pycaffe_fire as caffe
from pycaffe_fire import Net, schema
from pycaffe_fire.backend.cuda import CudaBackend, cudnn
from pycaffe_fire.backend.cuda.layouts import Rows, rearrange
from pycaffe_fire.backend.cuda.tensor import own
from pycaffe_fire.backend.numpy import NumPyBackend
from pycaffe_fire.backend.tensor import ChannelsLast
from tests.backend import test_backends_agree as agree
from tests.backend.op_cases import POOLS, Planner, Pool, blob
from tests.cuda.cuda_nets import SOLVER, inception, solver_of, train
from tests.cuda.fake_cudnn import FakeCudnn
from tests.cuda.fake_cupy.races import checker
from tests.cuda.test_storage import ROUNDING, distance, stored_as
from tests.cuda.test_variants import values_of

SHAPES = [(2, 3, 4, 5), (1, 16, 3, 3), (3, 72, 2, 2), (2, 8, 7), (1, 2, 3, 2, 2), (2, 4, 1, 1)]


def channels_last(backend: Any, values: Any) -> Any:
    """A blob with its channels last, where the backend knows of such a thing."""
    made = blob(backend, values.shape)
    inner = getattr(made, "_blob", made)
    if isinstance(inner.backend, CudaBackend):
        inner.lay_out(ChannelsLast(values.shape))
    made.data[...] = values
    return made


@pytest.mark.parametrize("method", ["MAX", "AVE"])
@pytest.mark.parametrize("case", POOLS.values(), ids=POOLS.keys())
def test_pooling(cuda: Any, case: Pool, method: str) -> None:
    agree.test_pooling(cuda, case, method, channels_last)
    agree.test_max_pooling_keeps_nan(cuda, case, channels_last)


def test_pooling_in_packs(cuda: Any) -> None:
    case = Pool((2, 16, 7, 7), POOLS["padded and overhanging"].window)
    for method in ("MAX", "AVE"):
        agree.test_pooling(cuda, case, method, channels_last)
    agree.test_max_pooling_of_equals(cuda, channels_last)


@pytest.mark.parametrize("across", [True, False])
@pytest.mark.parametrize("shape", [(2, 7, 5, 4), (1, 16, 3, 3)])
def test_lrn(cuda: Any, shape: tuple[int, ...], across: bool) -> None:
    agree.test_lrn(cuda, shape, 5, across, channels_last)


@pytest.mark.parametrize("in_place", [False, True])
@pytest.mark.parametrize("shape", SHAPES)
def test_elementwise(cuda: Any, shape: tuple[int, ...], in_place: bool) -> None:
    agree.test_relu(cuda, shape, 0.1, in_place, channels_last)
    agree.test_relu(cuda, shape, -0.5, in_place, channels_last)
    agree.test_dropout(cuda, shape, in_place, channels_last)
    agree.test_prelu(cuda, shape, False, in_place, channels_last)
    agree.test_scale_shift(cuda, shape, "both", in_place, channels_last)


@pytest.mark.parametrize(("where", "count"), [(None, 3), (0, 2), (1, 6)])
@pytest.mark.parametrize("shape", SHAPES)
def test_add(cuda: Any, shape: tuple[int, ...], where: int | None, count: int) -> None:
    agree.test_add(cuda, shape, where, count, channels_last)


@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("channels", [(16, 5, 20), (8, 8, 8)])
def test_concat(cuda: Any, channels: tuple[int, ...], axis: int) -> None:
    agree.test_concat(cuda, channels, axis, channels_last)


@pytest.mark.parametrize("in_place", [False, True])
@pytest.mark.parametrize(
    "shape", [(3, 4, 4, 2), (2, 72, 3, 3), (1, 5, 1, 3), (70, 64, 4, 4)], ids=str
)
def test_batch_norm(cuda: Any, shape: tuple[int, ...], in_place: bool) -> None:
    """The last shape is large enough for several blocks of rows."""

    def run(backend: Any) -> dict[str, Any]:
        x = channels_last(backend, values_of(shape) + 3)
        y = x if in_place else channels_last(backend, np.zeros(shape, np.float32))
        scale, shift = (blob(backend, values_of((shape[1],)) + i) for i in (0, 1))
        plan = Planner(backend).batch_norm(x, y, scale, shift, 1e-5, False, True)
        plan.forward()
        found = {"y": np.array(y.data)}
        y.diff[...] = values_of(shape)[::-1]
        plan.backward(True, True, True)
        return {**found, "dx": x.diff, "dscale": scale.diff, "dshift": shift.diff}

    got, want = run(cuda), run(NumPyBackend())
    for name, values in want.items():
        limit = 3e-5 * max(1.0, float(np.abs(values).max()))
        np.testing.assert_allclose(got[name], values, rtol=1e-4, atol=limit, err_msg=name)


@pytest.mark.parametrize("shape", [(2, 3, 5, 7), (3, 40, 6, 6), (1, 8, 4)])
@pytest.mark.parametrize("kinds", [("float32", "float16"), ("bfloat16", "float32"),
                                   ("float16", "float16"), ("bfloat16", "float16")])  # fmt: skip
def test_rearranging(cuda: Any, shape: tuple[int, ...], kinds: tuple[str, str]) -> None:
    """There and back, with gaps and without."""
    values = np.round(8 * values_of(shape))
    given = cuda.converted(cuda.xp.asarray(values.reshape(-1)), kinds[0])
    channels, pixels = shape[1], int(np.prod(shape[2:]))
    row, image = channels + 8, (channels + 8) * pixels
    dtype = cuda.converted(cuda.xp.zeros(1, np.float32), kinds[1]).dtype
    there = cuda.xp.zeros(shape[0] * image, dtype)
    back = cuda.xp.zeros(values.size, given.dtype)
    rearrange(cuda.kernels, shape, Rows(given, 0), False, Rows(there, row), True)
    found = cuda.converted(there, "float32").get().reshape(shape[0], pixels, row)
    want = np.moveaxis(values.reshape(shape[0], channels, pixels), 1, 2)
    np.testing.assert_array_equal(found[:, :, :channels], want)
    assert not found[:, :, channels:].any()
    rearrange(cuda.kernels, shape, Rows(there, row), True, Rows(back, 0), False)
    np.testing.assert_array_equal(back.get(), given.get())
    apart = cuda.xp.zeros(shape[0] * image, dtype)
    rearrange(cuda.kernels, shape, Rows(given, 0), False, Rows(apart, image), False)
    found = cuda.converted(apart, "float32").get().reshape(shape[0], -1)
    np.testing.assert_array_equal(found[:, : values[0].size], values.reshape(shape[0], -1))


@pytest.fixture
def library(cupy: Any, monkeypatch: pytest.MonkeyPatch) -> FakeCudnn:
    fake = FakeCudnn()
    monkeypatch.setattr(cudnn, "load", lambda: fake)
    return fake


def turns(work: list[str]) -> list[str]:
    return [what for what in work if what.startswith("kernel turn")]


@pytest.mark.parametrize("kind", ["float16", "bfloat16"])
def test_only_edges_are_converted(library: FakeCudnn, kind: str, tmp_path: Path) -> None:
    """The images, and the blob of several pixels that dropout and a product read."""
    backend = CudaBackend(0)
    solver = solver_of(stored_as(inception(tmp_path), kind), backend, share_gradients=True)
    solver.step(2)
    net = solver.net
    inside = [name for name, b in net.blobs.items() if len(b.shape) == 4 and name != "data"]
    assert all(own(net.blobs[name].value).last for name in inside)
    assert not own(net.blobs["data"].value).last
    weights = [p.blob for p in net.parameters.items if len(p.blob.shape) == 4]
    kernels = [w for w in weights if w.shape[2] > 1]
    assert kernels and all(own(w.value).last and own(w.gradient).last for w in kernels)
    checker.work.clear()
    solver.step(1)
    assert len(turns(checker.work[backend.compute.ptr])) <= 7
    solver.close()


def test_float32_is_not_turned(library: FakeCudnn, tmp_path: Path) -> None:
    backend = CudaBackend(0)
    solver = solver_of(inception(tmp_path), backend)
    solver.step(1)
    assert not any(own(b.value).last for b in solver.net.blobs.values())
    assert not turns(checker.work[backend.compute.ptr])
    solver.close()


def test_what_has_no_plan_with_channels_last_goes_without(
    library: FakeCudnn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = cudnn.Planner.plan

    def refusing(self: Any, product: cudnn.Product) -> Any:
        if product.last and product.weights[2] == 3:
            raise cudnn.Refused
        return plan(self, product)

    monkeypatch.setattr(cudnn.Planner, "plan", refusing)
    want = train(inception(tmp_path), NumPyBackend(), 2)
    backend = CudaBackend(0)
    got = train(stored_as(inception(tmp_path), "float16"), backend, 2)
    assert library.calls["wgrad"] == 14
    for name, values in want.items():
        assert distance(got[name], values) <= 16 * ROUNDING["float16"], name


NET = """
default_forward_type: FLOAT16 default_backward_type: FLOAT16 force_backward: true
layer { name: "in" type: "Input" top: "in" input_param { shape { dim: 2 dim: 3 dim: 4 dim: 5 } } }
layer { name: "conv" type: "Convolution" bottom: "in" top: "conv"
  convolution_param { num_output: 4 kernel_size: 3 pad: 1 weight_filler { type: "xavier" } } }
layer { name: "relu" type: "ReLU" bottom: "conv" top: "conv" }
layer { name: "pool" type: "Pooling" bottom: "conv" top: "pool" top: "mask"
  pooling_param { kernel_size: 2 } }
"""


def test_the_outside_sees_the_order_of_shapes(library: FakeCudnn) -> None:
    """Values, gradients, masks and weights, read and written."""
    text = NET
    cpu_text = text.replace("default_forward_type: FLOAT16 default_backward_type: FLOAT16", "")
    nets = [
        Net(schema.parse_text(t, schema.NetParameter()), caffe.TRAIN, backend=backend)
        for t, backend in ((text, CudaBackend(0)), (cpu_text, NumPyBackend()))
    ]
    weights = np.float32(np.float16(values_of((4, 3, 3, 3))))
    image = np.float32(np.float16(values_of((2, 3, 4, 5))))
    found = []
    for net in nets:
        net.params["conv"][0].data[...] = weights
        net.params["conv"][0].data[1, 2, 0, 1] = 2
        net.blobs["in"].data[...] = image
        net.forward()
        net.blobs["pool"].diff[...] = image[:, :1, :3, :4]
        net.backward()
        blobs = {f"{n}.data": b.data.copy() for n, b in net.blobs.items()}
        blobs |= {"in.diff": net.blobs["in"].diff.copy(), "dw": net.params["conv"][0].diff.copy()}
        blobs["w"] = net.params["conv"][0].data.copy()
        found.append(blobs)
    assert own(nets[0].blobs["pool"].value).last
    for name, want in found[1].items():
        assert distance(found[0][name], want) <= 8 * ROUNDING["float16"], name
    np.testing.assert_array_equal(found[0]["w"], found[1]["w"])
    nets[0].blobs["conv"].data[0, 1] = 7  # and a pass over a part of it goes on from there
    nets[0].forward(start="pool")
    assert (nets[0].blobs["pool"].data[0, 1] == 7).all()


def test_weights_are_rounded_in_one_pass(library: FakeCudnn, tmp_path: Path) -> None:
    backend = CudaBackend(0)
    solver = solver_of(stored_as(inception(tmp_path), "float16"), backend)
    solver.step(2)
    checker.work.clear()
    solver.step(1)
    work = checker.work[backend.compute.ptr]
    assert work.count("kernel narrow") == 1, [w for w in work if "narrow" in w]
    weight = solver.net.params["three"][0]
    before = weight.data.copy()
    weight.data[...] = 0  # one alone
    solver.net.run_forward()
    assert not solver.net.blobs["three"].data[:, :, 0, 0].max() > 0.11
    weight.data[...] = before
    solver.close()


def test_snapshots_do_not_know(library: FakeCudnn, tmp_path: Path) -> None:
    """A run that is resumed goes on as one that never stopped, history included."""
    made = {}
    settings = f'{SOLVER} snapshot_prefix: "{tmp_path}/run"'
    for name, stops in (("whole", False), ("resumed", True)):
        net = stored_as(inception(tmp_path), "float16")
        solver = solver_of(net, CudaBackend(0), settings)
        solver.step(2)
        if stops:
            solver.snapshot()
            solver.close()
            solver = solver_of(net, CudaBackend(0), settings)
            solver.restore(f"{tmp_path}/run_iter_2.solverstate")
        solver.step(1)
        made[name] = {n: [b.data.copy() for b in bs] for n, bs in solver.net.params.items()}
        solver.close()
    for name, blobs in made["whole"].items():
        for a, b in zip(blobs, made["resumed"][name], strict=True):
            np.testing.assert_array_equal(a, b, err_msg=name)
