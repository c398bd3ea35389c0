"""Our contender: a net of pycaffe_fire, run step by step for train.py, which starts this file."""

from __future__ import annotations

import time
import zlib
from math import inf
from typing import Any

import numpy as np
from timing import (
    BenchError,
    Contender,
    Stopwatch,
    forget_peak_memory,
    serve,
    wait_for_quiet,
)

from pycaffe_fire import schema
from pycaffe_fire.backend import cpu_backend
from pycaffe_fire.backend.base import Backend
from pycaffe_fire.backend.onednn import OneDNNBackend
from pycaffe_fire.backend.tensor import FLOAT32
from pycaffe_fire.errors import FireError
from pycaffe_fire.net.synthetic import class_counts
from pycaffe_fire.net.timing import LayerClock
from pycaffe_fire.solver import Solver, SolverOptions

PHASES = ("forward", "backward")
SEED = 1  # every process fills the same weights


class FireNet(Contender):
    """The commands that train.py gives."""

    def build(
        self, net: str, threads: int, sgd: dict[str, Any], leaves: int = 1, products: str = FLOAT32
    ) -> dict[str, Any]:
        """Set up a solver for the net in the file `net` (a NetParameter) and fill its inputs."""
        with open(net, "rb") as file:
            param = schema.NetParameter.FromString(file.read())
        for layer in param.layer:  # a data layer would cut its batch by itself
            for shape in layer.input_param.shape:
                shape.dim[0] //= leaves
        self.solver = Solver(
            schema.SolverParameter(type="SGD", lr_policy="fixed", train_net_param=param, **sgd),
            SolverOptions(
                self.backend(threads, products), SEED, leaves=leaves, share_gradients=True
            ),
        )
        self.net = self.solver.net
        self.inputs = [top for each in param.layer if each.type == "Input" for top in each.top]
        classes = class_counts(param)
        for name in self.inputs:
            for leaf_net in self.solver.leaves.nets:
                leaf_net.blobs[name].data[...] = self._values(name, classes.get(name))
        self._split_steps()
        forget_peak_memory()
        return {
            "backend": self.solver.backend.describe(),
            "weights": sum(p.blob.count for p in self.net.parameters.items),
            "layers": len(self.net.layers),
        }

    def backend(self, threads: int, products: str) -> Backend:
        if products == FLOAT32:
            return cpu_backend(threads)
        backend = OneDNNBackend(threads, products)
        if backend.rounds_operands:
            raise BenchError(f"this CPU multiplies no {products} (avx512_bf16 or AMX)")
        return backend

    def _values(self, name: str, classes: int | None) -> Any:
        """Normal numbers, or labels that every layer reading them has a class for."""
        random = np.random.default_rng(zlib.crc32(name.encode()))
        shape = self.net.blobs[name].shape
        if classes:
            return random.integers(0, classes, shape)
        return random.standard_normal(shape, np.float32)

    def _split_steps(self) -> None:
        """Note when the solver's own iteration passes from one phase to the next."""
        forward, gradients = self.net.run_forward, self.solver.compute_gradients

        def timed_forward() -> float:
            loss = forward()
            self._watch.lap("forward")
            return loss

        def timed_gradients(collect: bool) -> tuple[float, list[Any]]:
            found = gradients(collect)
            self._watch.lap("backward")
            return found

        vars(self.net)["run_forward"] = timed_forward
        vars(self.solver)["compute_gradients"] = timed_gradients

    def step(self, watch: Stopwatch) -> None:
        self._watch = watch
        self.solver.step(1)
        watch.lap("update")

    def reference(self, folder: str) -> dict[str, Any]:
        """Weights and inputs into files, with the loss and the gradients that belong to them."""
        inputs = {name: f"{folder}/{i}.npy" for i, name in enumerate(self.inputs)}
        for name, path in inputs.items():
            np.save(path, self.net.blobs[name].data)
        items = self.net.parameters.items
        places, start = {}, 0
        with open(f"{folder}/weights.f32", "wb") as file:
            for p in items:
                file.write(np.ascontiguousarray(p.blob.data, np.float32).tobytes())
                places[id(p.blob.value)] = (start, p.lr_mult, p.decay_mult)
                start += p.blob.count
        weights: dict[str, list[Any]] = {}
        for layer in self.net.layers:
            if not all(id(blob.value) in places for blob in layer.blobs):
                raise BenchError(f'layer "{layer.name}" shares weights in a way PyTorch cannot')
            weights[layer.name] = [(list(b.shape), *places[id(b.value)]) for b in layer.blobs]
        self._watch = Stopwatch()
        self.net.clear_gradients()
        loss = self.net.forward_backward()
        gradients = {
            places[id(p.blob.value)][0]: float(np.linalg.norm(p.blob.diff))
            for p in items
            if p.lr_mult
        }
        return {
            "loss": loss, "gradients": gradients, "weights": weights, "inputs": inputs,
            "file": f"{folder}/weights.f32",
        }  # fmt: skip

    def profile(self, repeats: int, tolerance: float, limit: float) -> dict[str, Any]:
        """Least seconds of each layer's forward and backward, and of what lies between them."""
        layers = self.net.layers
        last = {phase: [0.0] * len(layers) for phase in PHASES}
        least = {phase: [inf] * len(layers) for phase in PHASES}

        def note(index: int, phase: str, seconds: float) -> None:
            leader = self.net.leader(index)
            if leader != index and (phase == "forward" or layers[leader].fuses_backward):
                seconds = 0.0  # the leader's op did its work
            last[phase][index] = seconds
            least[phase][index] = min(least[phase][index], seconds)

        LayerClock(self.net, note).attach()
        between: list[list[float]] = []
        until = time.monotonic() + limit
        for _ in range(repeats):
            wait_for_quiet(tolerance, until)
            watch = Stopwatch()
            self.step(watch)
            between.append([watch.phases[phase] - sum(last[phase]) for phase in PHASES])
        return {
            "layers": [
                [layer.name, layer.type, *(least[phase][i] for phase in PHASES)]
                for i, layer in enumerate(layers)
            ],
            "between": [min(column) for column in zip(*between, strict=True)],
        }


def answer(fire: FireNet) -> None:
    """Do what train.py asks, until it ends."""
    serve(
        {
            "build": fire.build, "warm": fire.warm, "sample": fire.sample, "memory": fire.memory,
            "reference": fire.reference, "profile": fire.profile,
        },
        FireError,
    )  # fmt: skip


if __name__ == "__main__":
    answer(FireNet())
