"""A depthwise window between two norms, as one op, gives what the layers give one by one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import pycaffe_fire as caffe
from pycaffe_fire import schema
from pycaffe_fire.backend.cpu import library
from pycaffe_fire.backend.numpy import NumPyBackend
from pycaffe_fire.backend.onednn import OneDNNBackend

from .join_cases import (
    CONV,
    assert_same,
    assert_same_after,
    both,
    check_cut_backward,
    check_cut_forward,
    check_equal,
    check_held,
    check_looking,
    check_same_buffers,
    everything,
    make,
    ran,
    run,
)

pytestmark = pytest.mark.skipif(not library.available(), reason="the CPU kernels are not compiled")

NORM = 'layer { name: "norm%(n)s" type: "BatchNorm" bottom: "%(blob)s" top: "%(blob)s" %(more)s }\n'
SCALE = """layer { name: "scale%(n)s" type: "Scale" bottom: "%(blob)s" top: "%(blob)s" %(more)s
  scale_param { bias_term: %(bias)s filler { type: "uniform" min: 0.5 max: 1.5 }
  bias_filler { type: "gaussian" } } }
"""
RELU = 'layer { name: "relu%(n)s" type: "ReLU" bottom: "%(blob)s" top: "%(blob)s" }\n'
WINDOW = """layer { name: "window" type: "Convolution" bottom: "x" top: "z" %(more)s
  convolution_param { num_output: %(channels)d group: %(channels)d kernel_size: 3 pad: 1
  stride: %(stride)d bias_term: false weight_filler { type: "gaussian" std: 0.3 } %(geometry)s } }
"""
FROZEN = "param { lr_mult: 0 }"
GLOBAL = "batch_norm_param { use_global_stats: true }"


def norm(
    n: int, blob: str, stats: str = "", scale: bool = True, bias: str = "true", relu: bool = True,
    more: str = "",
) -> str:  # fmt: skip
    names = {"n": n, "blob": blob, "bias": bias}
    text = NORM % {**names, "more": stats}
    text += SCALE % {**names, "more": more} if scale else ""
    return text + (RELU % names if relu else "")


def block(
    batch: int = 3, channels: int = 16, size: tuple[int, int] = (5, 6), stride: int = 1,
    before: dict[str, Any] | None = None, after: dict[str, Any] | None = None, window: str = "",
    geometry: str = "",
) -> str:  # fmt: skip
    """A depthwise window between norms, between convolutions of 1x1."""
    height, width = size
    text = 'name: "block" force_backward: true layer { name: "data" type: "Input" top: "data" '
    text += f"input_param {{ shape {{ dim: {batch} dim: 5 dim: {height} dim: {width} }} }} }}\n"
    text += CONV % ("wide", "data", "x", channels) + norm(1, "x", **(before or {}))
    text += WINDOW % {
        "channels": channels, "stride": stride, "more": window, "geometry": geometry
    }  # fmt: skip
    return text + norm(2, "z", **(after or {})) + CONV % ("narrow", "z", "narrow", 3)


CASES: dict[str, dict[str, Any]] = {
    "as in a MobileNet": {},
    "in steps of 2": {"stride": 2},
    "in steps of 2, odd sizes": {"stride": 2, "size": (7, 9)},
    "in steps of 2, even sizes": {"stride": 2, "size": (8, 4)},
    "one sample": {"batch": 1},
    "one pixel": {"size": (1, 1), "batch": 8},
    "one pixel, in steps of 2": {"size": (1, 1), "batch": 8, "stride": 2},
    "one row": {"size": (1, 9)},
    "one column": {"size": (9, 1), "stride": 2},
    "odd channels": {"channels": 13},
    "few channels": {"channels": 3, "stride": 2},
    "many pixels": {"size": (12, 15), "batch": 2, "channels": 24},
    "no scales": {"before": {"scale": False}, "after": {"scale": False}},
    "no shifts": {"before": {"bias": "false"}, "after": {"bias": "false"}},
    "no ReLU before": {"before": {"relu": False}},
    "no ReLU after": {"after": {"relu": False}, "stride": 2},
    "norms alone": {
        "before": {"relu": False, "scale": False}, "after": {"relu": False, "scale": False},
    },
    "given statistics before": {"before": {"stats": GLOBAL}},
    "given statistics after": {"after": {"stats": GLOBAL}, "stride": 2},
    "frozen scale": {"before": {"more": FROZEN}},
    "frozen shift": {"after": {"more": "param { lr_mult: 1 } " + FROZEN}},
    "frozen window": {"window": FROZEN},
}  # fmt: skip


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_a_join_equals_its_layers(case: dict[str, Any]) -> None:
    check_equal(block(**case), ["norm1", "norm2"])


CUTS = ["wide", "norm1", "scale1", "relu1", "window", "norm2", "scale2", "relu2"]


@pytest.mark.parametrize("cut", CUTS)
def test_a_forward_pass_may_be_cut_anywhere(cut: str) -> None:
    check_cut_forward(block(), cut)


@pytest.mark.parametrize("cut", CUTS)
def test_a_backward_pass_may_be_cut_anywhere(cut: str) -> None:
    check_cut_backward(block(), cut)


def test_looking_between_the_passes_changes_nothing() -> None:
    check_looking(block(), "x", "z")


def test_an_array_that_is_held_shows_every_pass() -> None:
    check_held(block(), "x")


def test_another_size_in_the_middle_of_training() -> None:
    joined, plain = both(block(stride=2))
    for batch, size in ((3, 5), (1, 8), (6, 3)):
        for net in (joined, plain):
            net.blobs["data"].reshape(batch, 5, size, size)  # without a call of net.reshape
        assert_same_after(batch, joined, plain)


@pytest.mark.parametrize("stride", [1, 2])
def test_bits_do_not_depend_on_threads(stride: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def one_thread(backend: OneDNNBackend) -> None:
        backend.library.set_threads(1)

    monkeypatch.setattr(OneDNNBackend, "use_threads", one_thread)
    text = block(batch=5, channels=40, size=(11, 10), stride=stride)
    param = schema.parse_text(text, schema.NetParameter())
    found = []
    for threads in (1, 2):
        caffe.set_random_seed(3)
        net = caffe.Net(param, caffe.TRAIN, backend=OneDNNBackend(threads))
        run(net)
        assert ran(net)
        found.append(everything(net))
    for name, value in found[0].items():
        assert np.array_equal(value, found[1][name]), name


NOT_JOINED = {
    "somebody else reads x": block() + CONV % ("more", "x", "more", 2),
    "a bias": block().replace("bias_term: false weight", "weight"),
    "a ReLU right after it": block().replace(
        NORM % {"n": 2, "blob": "z", "more": ""},
        RELU % {"n": "", "blob": "z"} + NORM % {"n": 2, "blob": "z", "more": ""},
    ),
    "two channels together": block().replace("group: 16", "group: 8"),
    "another blob": block(before={"scale": False, "relu": False})
    .replace('bottom: "x" top: "x"', 'bottom: "x" top: "y"')
    .replace('bottom: "x" top: "z"', 'bottom: "y" top: "z"'),
    "statistics of a part of the batch": block(
        batch=4, after={"stats": "batch_norm_param { stats_batch_size: 2 }"}
    ),
    "its own scale": block(before={"stats": "batch_norm_param { scale_bias: true }"}),
}  # fmt: skip


@pytest.mark.parametrize("text", NOT_JOINED.values(), ids=NOT_JOINED.keys())
def test_what_is_no_join(text: str) -> None:
    net = caffe.Net(schema.parse_text(text, schema.NetParameter()), caffe.TRAIN)
    assert not list(net.joins)


OTHER_WINDOWS = {
    "5x5": ("kernel_size: 3 pad: 1", "kernel_size: 5 pad: 2"),
    "without padding": ("pad: 1", "pad: 0"),
    "with holes": ("pad: 1", "pad: 2 dilation: 2"),
    "in steps of 3": ("stride: 1", "stride: 3"),
    "in steps of two kinds": ("stride: 1", "stride: 1 stride: 2"),
}


@pytest.mark.parametrize("change", OTHER_WINDOWS.values(), ids=OTHER_WINDOWS.keys())
def test_other_windows_run_layer_by_layer(change: tuple[str, str]) -> None:
    joined, plain = (make(block(size=(9, 9)).replace(*change), flag) for flag in (True, False))
    for net in (joined, plain):
        run(net)
    assert not ran(joined)
    assert_same(joined, plain)


def test_only_nets_that_train_have_joins() -> None:
    param = schema.parse_text(block(), schema.NetParameter())
    assert not list(caffe.Net(param, caffe.TEST).joins)
    assert not list(caffe.Net(param, caffe.TRAIN, backend=NumPyBackend()).joins)


def test_gradients_that_share_memory() -> None:
    """Nobody can look at those of blobs then; those of weights are the same."""
    nets = [make(block(stride=2), True) for _ in range(2)]
    nets[0].share_gradients()
    for seed in range(2):
        for net in nets:
            run(net, seed)
    for name, blobs in nets[0].params.items():
        for mine, other in zip(blobs, nets[1].params[name], strict=True):
            assert np.array_equal(mine.diff, other.diff), name


def test_passes_go_on_in_the_same_buffers() -> None:
    assert not check_same_buffers(block())
