"""Runs a case on one variant and records everything that a caller can see of it."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np

import pycaffe_fire as caffe
from pycaffe_fire import schema
from pycaffe_fire.backend import cpu_backend
from pycaffe_fire.backend.base import Backend
from pycaffe_fire.backend.blas import BlasBackend
from pycaffe_fire.backend.numpy import NumPyBackend
from pycaffe_fire.layers import Context

from .case import Case
from .values import values_for

Array = np.ndarray[Any, Any]
Record = tuple[str, Array]  # what it is ("2:bwd diff conv1"), and its values


@dataclass(frozen=True)
class Variant:
    """One way to run a net."""

    name: str
    backend: Callable[[int], Backend]
    fused: bool = False


FUSED = Variant("fused", cpu_backend, fused=True)
PLAIN = Variant("layer by layer", cpu_backend)
BLAS = Variant("fused on NumPy's BLAS", BlasBackend, fused=True)
NUMPY = Variant("numpy", lambda threads: NumPyBackend(1))
DOUBLE = Variant("float64", lambda threads: NumPyBackend(1, np.float64))


@lru_cache(4)
def _parsed(text: str) -> schema.NetParameter:
    return schema.parse_text(text, schema.NetParameter())


@dataclass
class Run:
    """A net on its way through the actions of a case."""

    case: Case
    variant: Variant
    noise: float = 0.0  # relative size of errors added to every blob and gradient
    noise_seed: int = 0
    records: list[Record] = field(default_factory=list)

    def __post_init__(self) -> None:
        param = schema.NetParameter()
        param.CopyFrom(_parsed(self.case.net))
        param.debug_info = not self.variant.fused
        phase = caffe.TRAIN if self.case.phase == "TRAIN" else caffe.TEST
        backend = self.variant.backend(self.case.threads)
        self.net = caffe.Net(param, phase, backend=backend, context=Context(seed=7))
        if not self.variant.fused:
            self.net.debug_info = False  # it has kept layers apart; its lines are not wanted
            self.net.run_one_by_one()
        elif self.case.shared:
            self.net.share_gradients()
        if self.noise:
            self._add_noise()
        self._held: list[tuple[str, Array]] = []
        self._label = ""
        self._move_averages()

    def _move_averages(self) -> None:
        """Give running averages values that differ from those of an untrained net."""
        rng = np.random.default_rng(5)
        for layer in self.net.layers:
            for blob in (layer.blobs[i] for i in layer.averages if i < len(layer.blobs)):
                blob.data[...] = rng.uniform(0.5, 1.5, blob.shape).astype(np.float32)

    def _add_noise(self) -> None:
        """Disturb every blob after it is written, as rounding would."""
        net, rng = self.net, np.random.default_rng(self.noise_seed)

        def disturb(values: Array) -> None:
            if values.size:
                size = np.abs(values).max()
                if np.isfinite(size):
                    values += rng.uniform(-self.noise, self.noise, values.shape) * size

        def after_forward(index: int) -> None:
            if net.bottoms[index] and not net.layers[index].idle:
                for blob in net.tops[index]:
                    disturb(blob.data)

        def after_backward(index: int) -> None:
            for blob, wanted in zip(net.bottoms[index], net.propagate_down[index], strict=True):
                if wanted and net.need_backward[index]:
                    disturb(blob.diff)
            for blob in net.layers[index].blobs:
                disturb(blob.diff)

        net.hooks.after_forward.append(after_forward)
        net.hooks.after_backward.append(after_backward)

    # Actions.

    def run(self) -> list[Record]:
        for number, (name, seed) in enumerate(self.case.actions):
            self._label = f"{number}:{name}"
            getattr(self, f"_do_{name}")(random.Random(seed), np.random.default_rng(seed))
            for what, array in self._held:
                self._record(f"held {what}", array)
        self._label = "end"
        self._record_everything()
        return self.records

    def _record(self, what: str, values: Array) -> None:
        self.records.append((f"{self._label} {what}", np.array(values)))

    def _do_fwd(self, choice: random.Random, rng: np.random.Generator) -> None:
        self._fill_inputs(rng)
        for name, values in self.net.forward().items():
            self._record(f"out {name}", values)

    def _fill_inputs(self, rng: np.random.Generator) -> None:
        for name in self.net.inputs:
            blob = self.net.blobs[name]
            blob.data[...] = values_for(name, blob.shape, rng).astype(np.float32)

    def _do_bwd(self, choice: random.Random, rng: np.random.Generator) -> None:
        self._fill_gradients(rng)
        self.net.backward()
        for name in self.net.inputs:
            self._record(f"diff {name}", self.net.blobs[name].diff)

    def _fill_gradients(self, rng: np.random.Generator) -> None:
        losses = self.net.blob_loss_weights
        for name in self.net.outputs:
            blob = self.net.blobs[name]
            values = rng.normal(size=blob.shape).astype(np.float32)
            if not losses[name]:
                blob.diff[...] = values

    def _range(self, choice: random.Random) -> tuple[int, int]:
        count = len(self.net.layers)
        first, last = sorted(choice.randrange(count) for _ in range(2))
        return first, last

    def _do_part_fwd(self, choice: random.Random, rng: np.random.Generator) -> None:
        first, last = self._range(choice)
        self.net._forward(first, last)

    def _do_part_bwd(self, choice: random.Random, rng: np.random.Generator) -> None:
        first, last = self._range(choice)
        self.net._backward(last, first)

    def _some_blob(self, choice: random.Random) -> str:
        return choice.choice(list(self.net.blobs))

    def _do_look(self, choice: random.Random, rng: np.random.Generator) -> None:
        name = self._some_blob(choice)
        self._record(f"data {name}", self.net.blobs[name].data)

    def _do_look_diff(self, choice: random.Random, rng: np.random.Generator) -> None:
        name = self._some_blob(choice)
        self._record(f"diff {name}", self.net.blobs[name].diff)

    def _do_hold(self, choice: random.Random, rng: np.random.Generator) -> None:
        name = self._some_blob(choice)
        self._held.append((f"data {name}", self.net.blobs[name].data))

    def _do_hold_diff(self, choice: random.Random, rng: np.random.Generator) -> None:
        name = self._some_blob(choice)
        self._held.append((f"diff {name}", self.net.blobs[name].diff))

    def _do_hold_weights(self, choice: random.Random, rng: np.random.Generator) -> None:
        if self.net.params:
            name = choice.choice(list(self.net.params))
            index = choice.randrange(len(self.net.params[name]))
            blob = self.net.params[name][index]
            held = blob.diff if choice.random() < 0.3 else blob.data
            self._held.append((f"weights {name}[{index}]", held))
            if choice.random() < 0.5:
                held[...] = held * np.float32(1.25)

    def _do_weights(self, choice: random.Random, rng: np.random.Generator) -> None:
        """The caller changes all weights, or those of one layer."""
        only = choice.choice([None, *self.net.params]) if self.net.params else None
        for layer in self.net.layers:
            if layer.name not in self.net.params or only not in (None, layer.name):
                continue
            for index, blob in enumerate(self.net.params[layer.name]):
                if index not in layer.averages:
                    factors = rng.uniform(0.7, 1.3, blob.shape).astype(np.float32)
                    blob.data[...] *= factors

    def _do_clear(self, choice: random.Random, rng: np.random.Generator) -> None:
        self.net.clear_param_diffs()

    def _do_write(self, choice: random.Random, rng: np.random.Generator) -> None:
        """The caller writes a blob and runs the layers after the one that wrote it."""
        name = self._some_blob(choice)
        blob = self.net.blobs[name]
        blob.data[...] *= rng.uniform(0.5, 1.5, blob.shape).astype(np.float32)
        writers = [i for i, tops in enumerate(self.net.top_names.values()) if name in tops]
        if writers and writers[-1] + 1 < len(self.net.layers):
            self.net._forward(writers[-1] + 1, len(self.net.layers) - 1)

    def _do_batch(self, choice: random.Random, rng: np.random.Generator) -> None:
        self._change_batch(choice.choice((1, 2, 3, 4)), choice, rng)

    def _do_empty(self, choice: random.Random, rng: np.random.Generator) -> None:
        """A batch of nothing."""
        self._change_batch(0, choice, rng)

    def _change_batch(self, batch: int, choice: random.Random, rng: np.random.Generator) -> None:
        self._held.clear()  # an array of a blob that is reshaped is the caller's own from then on
        for name in self.net.inputs:
            blob = self.net.blobs[name]
            if name.startswith(("data", "label", "positive")) and blob.shape:
                blob.reshape(batch, *blob.shape[1:])
        if choice.random() < 0.5:
            self.net.reshape()
        self._do_fwd(choice, rng)

    def _do_zero(self, choice: random.Random, rng: np.random.Generator) -> None:
        self._change_batch(0, choice, rng)

    def _do_fwd2(self, choice: random.Random, rng: np.random.Generator) -> None:
        self._change_batch(2, choice, rng)

    # What is compared.

    def _record_everything(self) -> None:
        for name, blob in self.net.blobs.items():
            self._record(f"data {name}", blob.data)
        for name in self._gradients():
            self._record(f"diff {name}", self.net.blobs[name].diff)
        for name, blobs in self.net.params.items():
            for index, blob in enumerate(blobs):
                self._record(f"weights {name}[{index}]", blob.data)
                self._record(f"weight diff {name}[{index}]", blob.diff)

    def _gradients(self) -> Iterator[str]:
        """The blobs whose gradients must be there: where memory is shared, those of inputs."""
        return iter(self.net.inputs if self.case.shared else self.net.blobs)
