"""Inner products whose weights lie in blocks for inference, and how they are chosen."""

from __future__ import annotations

import _thread
import gc
import json
import time
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pycaffe_fire as caffe
from pycaffe_fire import schema
from pycaffe_fire.backend.tensor import PACKED
from tests.backend.op_cases import Array, blob, window
from tests.backend.test_winograd import normal
from tests.pycaffe.test_inference import memory_of_passes

onednn = pytest.importorskip("pycaffe_fire.backend.onednn")
from pycaffe_fire.backend.onednn import plan_trials  # noqa: E402
from pycaffe_fire.backend.onednn.inner_product import InnerProduct  # noqa: E402
from pycaffe_fire.backend.onednn.packed_inner_product import (  # noqa: E402
    OutputBlocks,
    PackedInnerProduct,
)

pytestmark = pytest.mark.usefixtures("folder")


def plain(
    shape: tuple[int, ...], outputs: int, axis: int = 1, transpose: bool = False, bias: bool = True,
    relu: float | None = None, threads: int = 2,
) -> Any:  # fmt: skip
    backend = onednn.OneDNNBackend(threads)
    inputs = int(np.prod(shape[axis:]))
    weights = (inputs, outputs) if transpose else (outputs, inputs)
    x, w, y = (blob(backend, s) for s in (shape, weights, (*shape[:axis], outputs)))
    b = blob(backend, (outputs,)) if bias else None
    return InnerProduct(backend, x, w, b, y, axis, transpose, relu)


def packed(made: Any) -> Any:
    """The same with packed weights."""
    found = PackedInnerProduct.of(made)
    if found is None:
        pytest.skip("the library has no kernel for weights in blocks on this CPU")
    return found


def exact(x: Array, w: Array, b: Array | None, axis: int, transpose: bool) -> Array:
    rows = x.reshape(int(np.prod(x.shape[:axis])), -1).astype(np.float64)
    made = rows @ (w if transpose else w.T).astype(np.float64)
    return (made if b is None else made + b).reshape(*x.shape[:axis], -1)


@pytest.mark.parametrize("batch", [1, 2, 16, 33])
@pytest.mark.parametrize(
    ("shape", "outputs", "options"),
    [
        ((37,), 61, {}),
        ((128,), 96, {"relu": 0.0}),
        ((5, 3, 7), 77, {"relu": 0.1}),
        ((3, 50), 41, {"axis": 2}),
        ((70,), 75, {"transpose": True, "relu": 0.0}),
        ((64,), 64, {"transpose": True, "bias": False}),
        ((33,), 50, {"bias": False, "threads": 1}),
    ],
)  # fmt: skip
def test_results_and_weights(
    batch: int, shape: tuple[int, ...], outputs: int, options: dict[str, Any]
) -> None:
    """Results are those of the weights at the last `pack`; a look at them changes no bit."""
    made = plain((batch, *shape), outputs, **options)
    plan = packed(made)
    axis, transpose = options.get("axis", 1), options.get("transpose", False)
    for _ in range(2):
        x, w = normal(*made.x.shape), normal(*made.w.shape)
        b = normal(outputs) if made.b is not None else None
        made.x.data[...], made.w.data[...] = x, w
        if b is not None:
            made.b.data[...] = b
        plan.pack()
        assert made.w.value.fresh == PACKED
        plain_values = exact(x, w, b, axis, transpose)
        slope = options.get("relu")
        rectified = np.where(plain_values > 0, plain_values, (slope or 0) * plain_values)
        atol = 2e-6 * np.abs(plain_values).max()
        for activate in (True, False):
            plan.forward(activate)
            expected = rectified if activate and slope is not None else plain_values
            np.testing.assert_allclose(made.y.data, expected, atol=atol)
        assert made.w.data.tobytes() == w.tobytes()
        plan.forward()  # packs again
        assert made.w.value.fresh == PACKED
        np.testing.assert_allclose(
            made.y.data, rectified if slope is not None else plain_values, atol=atol
        )


def test_a_blocked_source() -> None:
    backend = onednn.OneDNNBackend(1)
    x, w, y = (blob(backend, s) for s in ((4, 24, 3, 3), (40, 216), (4, 40)))
    one = blob(backend, (24, 24, 1, 1))
    backend.convolution(blob(backend, x.shape), one, None, x, window((1, 1)), 1)
    assert not x.value.layout.is_plain
    plan = packed(InnerProduct(backend, x, w, None, y, 1, False, None))
    values, weights = normal(*x.shape), normal(*w.shape)
    x.data[...], w.data[...] = values, weights
    plan.pack()
    plan.forward()
    np.testing.assert_allclose(y.data, exact(values, weights, None, 1, False), atol=1e-4)


@pytest.mark.parametrize("transpose", [False, True])
@pytest.mark.parametrize("outputs", [1, 23, 24, 50])
def test_packing_is_undone_bit_for_bit(outputs: int, transpose: bool) -> None:
    bits = np.random.default_rng(1).integers(0, 2**32, outputs * 7, np.uint32)  # NaNs as well
    storage = bits.view(np.float32).copy()
    form = OutputBlocks(outputs, 7, 24, outputs // 24 * 24, transpose)
    form.pack(storage)
    form.unpack(storage)
    assert (storage.view(np.uint32) == bits).all()


def test_tensors_keep_their_value_whatever_is_done_to_them() -> None:
    made = plain((2, 8), 6)
    tensor, values = made.w.value, normal(6, 8)
    form = OutputBlocks(6, 8, 4, 4, False)
    acts: list[Callable[[], object]] = [
        lambda: tensor.move(np.empty(48, np.float32)),
        tensor.share,
        lambda: tensor.pack(OutputBlocks(6, 8, 2, 6, False)) or tensor.sync(),
        tensor.drop_copy,
    ]
    for act in acts:
        tensor.array[...] = values
        tensor.pack(form)
        assert tensor.form == form and tensor.buffer is not None
        assert tensor.buffer[:48].tobytes() != values.tobytes()
        act()
        assert tensor.form is None and (tensor.array == values).all()
    tensor.pack(form)
    assert (tensor.copied() == values).all()
    tensor.pack(form)
    tensor.replace(2 * values)
    assert (tensor.array == 2 * values).all()


def test_an_interrupted_user_keeps_the_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    made = plain((2, 8), 6)
    tensor, values, form = made.w.value, normal(6, 8), OutputBlocks(6, 8, 4, 4, False)
    tensor.array[...] = values
    for change in ("pack", "unpack"):
        original = getattr(OutputBlocks, change)

        def slow(form: OutputBlocks, storage: Array, original: Any = original) -> None:
            _thread.interrupt_main()
            time.sleep(0.05)
            original(form, storage)

        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
            patch.setattr(OutputBlocks, change, slow)
            tensor.pack(form)
            tensor.sync()
        assert (tensor.copied() == values).all()


# The choice.


def test_the_faster_one_is_kept_for_later_processes(timed: list[type], folder: Path) -> None:
    made = plain((8, 1024), 1000)
    packed(made)
    for _ in range(2):
        assert isinstance(plan_trials.faster_if_packed(made), PackedInnerProduct)
        assert timed == [InnerProduct, PackedInnerProduct]
        plan_trials._choices.cache_clear()  # a new process
    file = folder / "onednn_plans.json"
    kept = json.loads(file.read_text())
    file.write_text(json.dumps({a: dict.fromkeys(b, "plain") for a, b in kept.items()}))
    plan_trials._choices.cache_clear()
    assert plan_trials.faster_if_packed(made) is None and len(timed) == 2


def test_a_trial_takes_little_memory(monkeypatch: pytest.MonkeyPatch, timed: list[type]) -> None:
    monkeypatch.setattr(plan_trials, "MOST_TRIED", 100 * 1024)
    shapes: list[Any] = []
    monkeypatch.setattr(
        plan_trials, "Blob", lambda backend, shape: shapes.append(shape) or blob(backend, shape)
    )
    made = plain((8, 1024), 1000)
    packed(made)
    plan_trials.faster_if_packed(made)
    assert timed and set(shapes) == {(8, 1024), (100, 1024), (100,), (8, 100)}


def test_what_is_never_timed(monkeypatch: pytest.MonkeyPatch, timed: list[type]) -> None:
    for made in (plain((1, 4096), 4096), plain((2, 64), 64)):  # one row, and too small to matter
        assert plan_trials.faster_if_packed(made) is None
    made = plain((8, 1024), 1000)
    op = (made.x, made.w, made.b, made.y, 1, False, None)
    monkeypatch.setenv(onednn.SAME_IN_EVERY_BATCH, "1")
    with made.backend.per_sample(True):
        assert made.backend.packed_inner_product(*op) is None
    rounding = onednn.OneDNNBackend(1, "bfloat16")
    assert rounding.packed_inner_product(*op) is None
    made.w.value.share()
    assert made.backend.packed_inner_product(*op) is None
    assert not timed


# In nets.

NET = """
layer { name: "data" type: "Input" top: "data"
  input_param { shape { dim: 6 dim: 4 dim: 9 dim: 9 } } }
layer { name: "conv" type: "Convolution" bottom: "data" top: "conv"
  convolution_param { num_output: 16 kernel_size: 3 weight_filler { type: "msra" } } }
layer { name: "fc" type: "InnerProduct" bottom: "conv" top: "fc"
  inner_product_param { num_output: 75 weight_filler { type: "xavier" }
    bias_filler { type: "gaussian" std: 1 } } }
layer { name: "relu" type: "ReLU" bottom: "fc" top: "fc" }
layer { name: "drop" type: "Dropout" bottom: "fc" top: "fc" }
layer { name: "last" type: "InnerProduct" bottom: "fc" top: "last"
  inner_product_param { num_output: 75 weight_filler { type: "xavier" } } }
"""


@pytest.fixture
def always(monkeypatch: pytest.MonkeyPatch) -> None:
    """What can be packed is."""
    packed(plain((6, 784), 75))
    monkeypatch.setattr(plan_trials, "WORTH_A_TRIAL", 0)
    monkeypatch.setattr(plan_trials, "_faster_product", lambda plan: plan_trials.IN_BLOCKS)


def nets(text: str = NET) -> list[Any]:
    """A net with packed weights and the same net run layer by layer."""
    param = schema.parse_text(text, schema.NetParameter())
    both: list[Any] = [
        caffe.Net(param, caffe.TEST, backend=onednn.OneDNNBackend(1)) for _ in range(2)
    ]
    both[1].stop_inference()
    for name, blobs in both[0].params.items():
        for mine, other in zip(blobs, both[1].params[name], strict=True):
            other.data[...] = mine.data
    return both


def agree(both: list[Any], seed: int = 0, shape: tuple[int, ...] = (6, 4, 9, 9)) -> None:
    x = np.random.default_rng(seed).standard_normal(shape).astype(np.float32)
    found, expected = (net.forward(data=x)["last"].copy() for net in both)
    np.testing.assert_allclose(found, expected, atol=1e-5 * np.abs(expected).max())


def is_packed(net: Any, name: str = "fc") -> bool:
    return bool(net.params[name][0].value.form is not None)


@pytest.mark.usefixtures("always")
def test_weights_that_change_count() -> None:
    both = nets()
    agree(both)
    assert is_packed(both[0]) and is_packed(both[0], "last")
    for index in (0, 1):
        values = normal(*both[0].params["fc"][index].shape)
        for net in both:
            net.params["fc"][index].data[...] = values
        agree(both, seed=1)
    assert is_packed(both[0])
    held = [net.params["fc"][0].data for net in both]
    for factor in (2, 3):
        for array in held:
            array[...] *= factor
        agree(both, seed=2)
        assert not is_packed(both[0])
    del held, array
    agree(both)
    assert is_packed(both[0])


@pytest.mark.usefixtures("always")
def test_looking_saving_and_loading(tmp_path: Path) -> None:
    both = nets()
    loaded = both[1].params["fc"][0].data.copy()
    agree(both)
    assert is_packed(both[0])
    assert both[0].params["fc"][0].data.tobytes() == loaded.tobytes()
    agree(both)
    assert is_packed(both[0])
    files = [str(tmp_path / name) for name in ("packed.caffemodel", "plain.caffemodel")]
    for net, file in zip(both, files, strict=True):
        net.save(file)
    assert Path(files[0]).read_bytes() == Path(files[1]).read_bytes()
    agree(both)
    assert is_packed(both[0])
    both[1].params["fc"][0].data[...] = normal(*loaded.shape)
    both[1].save(files[1])
    both[0].copy_from(files[1])
    agree(both)


@pytest.mark.usefixtures("always")
def test_passes_between_packed_ones() -> None:
    """Parts of the net, other batches and backward passes find plain weights."""
    both = nets()
    agree(both)
    found, expected = (net.forward(start="fc", end="fc")["fc"].copy() for net in both)
    np.testing.assert_allclose(found, expected, atol=1e-5)
    for batch in (1, 5, 16, 6):
        for net in both:
            net.blobs["data"].reshape(batch, 4, 9, 9)
            net.reshape()
        agree(both, shape=(batch, 4, 9, 9))
        assert is_packed(both[0]) == (batch > 1)
    for net in both:
        net.blobs["last"].diff[...] = 1
        net.backward()
    found, expected = (net.params["fc"][0].diff.copy() for net in both)
    np.testing.assert_allclose(found, expected, atol=1e-4)
    agree(both)


@pytest.mark.usefixtures("always")
def test_shared_weights_stay_plain() -> None:
    named = 'type: "InnerProduct" param { name: "w" } '
    text = NET.replace('type: "InnerProduct" ', named).replace(
        'name: "relu" type: "ReLU" bottom: "fc" top: "fc"',
        'name: "square" type: "InnerProduct" bottom: "fc" top: "square" '
        'inner_product_param { num_output: 784 } } '
        'layer { name: "relu" type: "ReLU" bottom: "square" top: "fc2"',
    ).replace('name: "drop" type: "Dropout" bottom: "fc" top: "fc"',
              'name: "drop" type: "Dropout" bottom: "fc2" top: "fc3"'
    ).replace('bottom: "fc" top: "last"', 'bottom: "fc3" top: "last"').replace(
        'name: "square" type: "InnerProduct" param { name: "w" }',
        'name: "square" type: "InnerProduct"',
    )  # fmt: skip
    both = nets(text)
    agree(both)
    assert not is_packed(both[0]) and is_packed(both[0], "square")


@pytest.mark.usefixtures("always")
def test_nets_that_share_weights_find_them_plain() -> None:
    both = nets()
    agree(both)
    assert is_packed(both[0])
    other: Any = caffe.Net(both[0].to_proto(), caffe.TEST, backend=onednn.OneDNNBackend(1))
    other.share_with(both[0])
    for _ in range(2):
        agree([other, both[1]])
        agree(both)
        assert not is_packed(both[0])


@pytest.mark.usefixtures("always")
def test_there_is_one_copy_of_the_weights() -> None:
    net = nets()[0]
    agree([net, net])
    value, flat = net.params["fc"][0].value, net.parameters.weights
    assert is_packed(net) and np.shares_memory(value.buffer, flat)
    op = next(step.op for step in net.inference._steps if step.top[0] is net.blobs["fc"])
    assert np.shares_memory(op.plan._blocks.buffer, flat)


@pytest.mark.usefixtures("always")
def test_passes_allocate_nothing() -> None:
    net = nets()[0]
    for _ in range(2):
        net.forward()
    _, most = memory_of_passes(net)
    assert is_packed(net) and most < net.blobs["conv"].count * 4


@pytest.mark.usefixtures("always")
def test_a_net_that_is_dropped_is_gone_at_once() -> None:
    net = nets()[0]
    net.forward()
    assert is_packed(net)
    gone = [weakref.ref(net), weakref.ref(net.params["fc"][0].value)]
    gc.disable()
    try:
        del net
        assert [ref() for ref in gone] == [None, None]
    finally:
        gc.enable()
