"""Backward before the first forward pass: it works, or a sentence says what to do."""

from __future__ import annotations

import numpy as np
import pytest

from pycaffe_fire.backend import cpu_backend
from pycaffe_fire.backend.numpy import NumPyBackend
from pycaffe_fire.errors import LayerError
from tests.fuzz.nets.values import rows
from tests.layers.case import Case, Trial

from .net_cases import inputs, ip, layer, make, softmax_loss

TRIALS = [
    pytest.param(row, in_place, id=f"{row.name}{' in place' if in_place else ''}")
    for row in rows()
    for in_place in ((False, True) if row.in_place else (False,))
    if row.has_backward
]


@pytest.mark.parametrize(("row", "in_place"), TRIALS)
def test_backward_first_is_refused_or_finite(row: Case, in_place: bool) -> None:
    """Uninitialized winners or statistics must never reach a gradient."""
    for backend in (cpu_backend(1), NumPyBackend(1)):
        trial = Trial(row, backend, in_place=in_place)
        trial.put(row.values())
        for name in trial.tops:
            trial.net.blobs[name].diff[...] = 1
        try:
            with np.errstate(all="ignore"):
                trial.net.backward()
        except LayerError as error:
            assert "run forward first" in str(error)
            assert trial.layer.needs_forward
        else:
            assert all(np.abs(blob.diff).max(initial=0) < 1e6 for blob in trial.learners)


POOLED = inputs() + layer(
    "Pooling", "pool", "data", extra="pooling_param { pool: MAX kernel_size: 2 stride: 2 }"
)


def test_a_reshape_forgets_the_forward_pass() -> None:
    net = make("force_backward: true " + POOLED)
    net.forward()
    net.backward()
    net.blobs["data"].reshape(2, 3, 8, 8)
    net.reshape()
    with pytest.raises(LayerError, match='"pool".*run forward first, also after a reshape'):
        net.backward()
    net.forward()
    net.backward()


def test_layers_without_memory_run_backward_at_once() -> None:
    net = make("force_backward: true " + inputs() + ip("ip", "data"))
    net.blobs["ip"].diff[...] = 1
    net.backward()
    assert np.abs(net.blobs["data"].diff).max() > 0


def test_a_pass_over_a_part_counts_for_its_layers_alone() -> None:
    net = make("force_backward: true " + POOLED + ip("ip", "pool") + softmax_loss("ip"))
    net.forward(start="ip")
    net.backward(end="ip")
    with pytest.raises(LayerError, match='"pool"'):
        net.backward()
