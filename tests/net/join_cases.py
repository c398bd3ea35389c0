"""Nets with a join and without, run side by side: what tests of both kinds of joins ask of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

import pycaffe_fire as caffe
from pycaffe_fire import schema
from pycaffe_fire.backend.base import Backend
from pycaffe_fire.backend.onednn import OneDNNBackend

CONV = """layer { name: "%s" type: "Convolution" bottom: "%s" top: "%s" convolution_param {
  num_output: %d kernel_size: 1 weight_filler { type: "msra" } bias_filler { type: "gaussian" } } }
"""


def make(text: str, joined: bool, backend: Backend | None = None) -> caffe.Net:
    caffe.set_random_seed(3)
    param = schema.parse_text(text, schema.NetParameter())
    net = caffe.Net(param, caffe.TRAIN, backend=backend or OneDNNBackend(1))
    if joined:
        assert len(list(net.joins)) == 1
    else:
        net.joins.dissolve()
    return net


def run(net: caffe.Net, seed: int = 5) -> None:
    rng = np.random.default_rng(seed)
    net.blobs["data"].data[...] = rng.standard_normal(net.blobs["data"].shape)
    net.forward()
    for name in net.outputs:
        net.blobs[name].diff[...] = rng.standard_normal(net.blobs[name].shape)
    net.backward()


def everything(net: caffe.Net) -> dict[str, Any]:
    """All that a user can look at; of a Split's tops the gradients are its own business."""
    found = {f"{n} data": b.data.copy() for n, b in net.blobs.items()}
    found |= {f"{n} diff": b.diff.copy() for n, b in net.blobs.items() if "split" not in n}
    for name, blobs in net.params.items():
        for i, blob in enumerate(blobs):
            found |= {f"{name}[{i}]": blob.data.copy(), f"{name}[{i}] diff": blob.diff.copy()}
    return found


def assert_same(joined: caffe.Net, plain: caffe.Net) -> None:
    expected = everything(plain)
    for name, value in everything(joined).items():
        np.testing.assert_allclose(value, expected[name], rtol=2e-4, atol=5e-5, err_msg=name)


def ran(net: caffe.Net) -> bool:
    return all(join.runs for join in net.joins)


def both(text: str) -> tuple[caffe.Net, caffe.Net]:
    """A net with its join, and layer by layer."""
    return make(text, True), make(text, False)


def assert_same_after(seed: int, joined: caffe.Net, plain: caffe.Net) -> None:
    for net in (joined, plain):
        run(net, seed)
    assert ran(joined)
    assert_same(joined, plain)


def check_equal(text: str, norms: Sequence[str]) -> None:
    """A join against its layers; statistics of `norms` are given, for those that use them."""
    joined, plain = both(text)
    for blobs in (net.params[name] for net in (joined, plain) for name in norms):
        for blob, value in zip(blobs, (2.0, 3.0, 2.0), strict=True):
            blob.data[...] = value
    for seed in range(2):  # gradients add up, running averages fade
        assert_same_after(seed, joined, plain)
        assert_same(joined, plain)  # looking twice changes nothing


def check_cut_forward(text: str, cut: str) -> None:
    """A forward pass that stops after a layer and goes on."""
    joined, plain = both(text)
    for net in (joined, plain):
        run(net)
        net.blobs["data"].data[...] *= -2
        net.forward(end=cut)
    assert_same(joined, plain)
    for net in (joined, plain):
        net.forward(start=net.layers[net._index(cut) + 1].name)
        net.backward()
    assert_same(joined, plain)
    assert_same_after(6, joined, plain)


def check_cut_backward(text: str, cut: str) -> None:
    """A backward pass that stops before a layer and goes on."""
    joined, plain = both(text)
    for net in (joined, plain):
        run(net)
        net.backward(end=net.layers[net._index(cut) + 1].name)
    assert_same(joined, plain)
    for net in (joined, plain):
        net.backward(start=cut)
    assert_same(joined, plain)
    assert_same_after(6, joined, plain)


def check_looking(text: str, *names: str) -> None:
    """Looks at blobs between the passes."""
    joined, plain = both(text)
    for net in (joined, plain):
        rng = np.random.default_rng(1)
        net.blobs["data"].data[...] = rng.standard_normal(net.blobs["data"].shape)
        net.forward()
        for name in net.outputs:
            net.blobs[name].diff[...] = rng.standard_normal(net.blobs[name].shape)
    for name in names:
        seen = [net.blobs[name].data.copy() for net in (joined, plain)]
        np.testing.assert_allclose(seen[0], seen[1], rtol=1e-4, atol=1e-5)
    for net in (joined, plain):
        net.backward()
    assert ran(joined)
    assert_same(joined, plain)


def check_held(text: str, name: str) -> None:
    """An array of a blob that is held, and then is not."""
    joined, plain = both(text)
    held = [net.blobs[name].data for net in (joined, plain)]
    for seed in range(2):
        for net in (joined, plain):
            run(net, seed)
        assert not ran(joined)
        np.testing.assert_allclose(held[0], held[1], rtol=1e-4, atol=1e-5)
        assert_same(joined, plain)
    held.clear()
    assert_same_after(3, joined, plain)


def check_same_buffers(text: str) -> list[str]:
    """Passes go on in the same memory; returns the names of blobs that have none."""
    net = make(text, True)
    run(net)
    net.run_forward()  # forgets what the test's looks have left

    def buffers() -> dict[str, Any]:
        return {name: blob.value.buffer for name, blob in net.blobs.items()}

    before = buffers()
    for _ in range(2):
        net.run_forward()
        net.run_backward()
    assert all(buffer is before[name] for name, buffer in buffers().items())
    return [name for name, buffer in before.items() if buffer is None]
