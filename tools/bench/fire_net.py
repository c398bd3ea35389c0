"""Our contender: a net of pycaffe_fire, run step by step for train.py, which starts this file."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Any

import numpy as np
from synthetic import label_readers
from timing import Repeater, Stopwatch, forget_peak_memory, peak_memory, serve

import pycaffe_fire
from pycaffe_fire import schema
from pycaffe_fire.backend import cpu_backend
from pycaffe_fire.errors import FireError
from pycaffe_fire.layers import Layer


class FireNet:
    """The commands that train.py gives."""

    def build(self, net: str, threads: int) -> dict[str, Any]:
        """Set up the net in the file `net` (a serialized NetParameter) and fill its inputs."""
        with open(net, "rb") as file:
            param = schema.NetParameter.FromString(file.read())
        labels = label_readers(param)
        self.net = pycaffe_fire.Net(param, pycaffe_fire.TRAIN, backend=cpu_backend(threads))
        self.net.share_gradients()
        self.inputs = self._inputs(param)
        for name in self.inputs:
            self.net.blobs[name].data[...] = self._values(name, labels.get(name, []))
        self._update = updater(self.net)
        self._repeater = Repeater(self.step)
        forget_peak_memory()
        return {
            "backend": self.net.backend.describe(),
            "weights": sum(p.blob.count for p in self.net.parameters.items),
            "layers": len(self.net.layers),
        }

    def _inputs(self, param: Any) -> list[str]:
        return [top for layer in param.layer if layer.type == "Input" for top in layer.top]

    def _values(self, name: str, scores: list[str]) -> Any:
        """Normal numbers, or labels that every layer reading them has a class for."""
        random = np.random.default_rng(zlib.crc32(name.encode()))
        shape = self.net.blobs[name].shape
        if scores:
            return random.integers(0, min(self.net.blobs[s].shape[1] for s in scores), shape)
        return random.standard_normal(shape, np.float32)

    def step(self, watch: Stopwatch) -> None:
        net = self.net
        net.context.step += 1
        net.clear_param_diffs()
        self.loss = net.run_forward()
        watch.lap("forward")
        net.run_backward()
        watch.lap("backward")
        if self._update:
            self._update()
            watch.lap("update")

    def warm(self) -> None:
        self._repeater.warm()

    def sample(self) -> dict[str, Any]:
        return self._repeater.sample()

    def memory(self) -> int:
        return peak_memory()

    def reference(self, folder: str) -> dict[str, Any]:
        """Weights and inputs into files, with the loss and the gradients that belong to them."""
        for name, values in ((name, self.net.blobs[name].data) for name in self.inputs):
            np.save(f"{folder}/{self.inputs.index(name)}.npy", values)
        items = self.net.parameters.items
        starts, start = {}, 0
        with open(f"{folder}/weights.f32", "wb") as file:
            for p in items:
                file.write(np.ascontiguousarray(p.blob.data, np.float32).tobytes())
                starts[id(p.blob.value)] = (start, p.lr_mult, p.decay_mult)
                start += p.blob.count
        self.net.clear_param_diffs()
        loss = self.net.forward_backward()
        return {
            "loss": loss,
            "gradients": {
                starts[id(p.blob.value)][0]: float(np.linalg.norm(p.blob.diff))
                for p in items
                if p.lr_mult
            },
            "weights": {
                layer.name: [(list(b.shape), *starts[id(b.value)]) for b in layer.blobs]
                for layer in self.net.layers
                if layer.blobs
            },
            "inputs": {name: f"{folder}/{i}.npy" for i, name in enumerate(self.inputs)},
            "file": f"{folder}/weights.f32",
        }

    def profile(self, repeats: int) -> dict[str, Any]:
        """Least seconds of each layer's forward and backward, and of the whole pass."""
        clocks = [LayerClock(layer) for layer in self.net.layers]
        whole: list[dict[str, float]] = []
        for _ in range(repeats):
            watch = Stopwatch()
            self.step(watch)
            whole.append(watch.phases)
        return {
            "layers": [[c.layer.name, c.layer.type, c.forward, c.backward] for c in clocks],
            "forward": min(phases["forward"] for phases in whole),
            "backward": min(phases["backward"] for phases in whole),
        }


class LayerClock:
    """Keeps the shortest time of a layer's forward and backward; a fused layer stays at 0."""

    def __init__(self, layer: Layer) -> None:
        self.layer = layer
        self.forward = self.backward = 0.0
        for phase in ("forward", "backward"):
            setattr(layer, phase, self._timed(phase, getattr(layer, phase)))

    def _timed(self, phase: str, run: Callable[..., None]) -> Callable[..., None]:
        def timed(*arguments: Any) -> None:
            watch = Stopwatch()
            run(*arguments)
            watch.lap(phase)
            seconds = watch.phases[phase]
            setattr(self, phase, min(getattr(self, phase) or seconds, seconds))

        return timed


def updater(net: pycaffe_fire.Net) -> Callable[[], None] | None:
    """What updates the weights after backward; None leaves the update out of the step."""
    return None


if __name__ == "__main__":
    fire = FireNet()
    serve(
        {
            "build": fire.build, "warm": fire.warm, "sample": fire.sample, "memory": fire.memory,
            "reference": fire.reference, "profile": fire.profile,
        },
        FireError,
    )  # fmt: skip
