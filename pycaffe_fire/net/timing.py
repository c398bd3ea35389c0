"""How long a net's passes and the layers in them take, measured while it runs as it always does.

A layer that runs fused with another one shows no time of its own: its leader's includes it.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass

from .. import schema
from ..layers import LAYERS
from ..schema.proto import NetParameter, NetState
from .graph import filter_net
from .net import Net

log = logging.getLogger("pycaffe_fire")


@dataclass
class LayerTimes:
    """Mean seconds of one layer; `inside` is the layer whose op does its work, if any."""

    name: str
    forward: float = 0.0
    backward: float = 0.0
    inside: str = ""


@dataclass
class NetTimes:
    """Mean seconds of the passes, of all of it and of every layer."""

    layers: list[LayerTimes]
    forward: float = 0.0
    backward: float = 0.0
    total: float = 0.0


def has_loss(param: NetParameter, state: NetState) -> bool:
    """Whether a net in this state computes a loss; without one it has no backward pass."""
    net = schema.NetParameter()
    net.CopyFrom(param)
    net.state.MergeFrom(state)
    return any(
        any(layer.loss_weight)
        if layer.loss_weight
        else layer.type in LAYERS and LAYERS[layer.type].default_loss_weight
        for layer in filter_net(net).layer
    )


def time_net(net: Net, iterations: int, each: Callable[[int, float], None]) -> NetTimes:
    """Run forward and backward this often, telling `each` the number and seconds of every one.

    The net should have run before: its first passes plan and allocate.
    """
    times = NetTimes([LayerTimes(layer.name) for layer in net.layers])
    for i, layer in enumerate(times.layers):
        if net.leader(i) != i:
            layer.inside = net.layers[net.leader(i)].name

    def add(index: int, which: str, seconds: float) -> None:
        layer = times.layers[index]
        setattr(layer, which, getattr(layer, which) + seconds)

    clock = LayerClock(net, add)
    clock.attach()
    try:
        for number in range(iterations):
            net.clear_gradients()
            began = time.perf_counter()
            net.run_forward()
            between = time.perf_counter()
            net.run_backward()
            ended = time.perf_counter()
            net.context.step += 1
            times.forward += (between - began) / iterations
            times.backward += (ended - between) / iterations
            each(number, ended - began)
    finally:
        clock.detach()
    for layer in times.layers:
        layer.forward /= iterations
        layer.backward /= iterations
    times.total = times.forward + times.backward
    return times


def benchmark(net: Net, iterations: int) -> NetTimes:
    """Time the net over this many iterations, logged as Caffe does."""
    log.info("Performing Forward")
    log.info("Initial loss: %g", float(net.run_forward()))
    log.info("Performing Backward")
    net.run_backward()
    log.info("*** Benchmark begins ***")
    log.info("Testing for %d iterations.", iterations)
    times = time_net(
        net, iterations,
        lambda number, seconds: log.info(
            "Iteration: %d forward-backward time: %g ms.", number + 1, 1e3 * seconds
        ),
    )  # fmt: skip
    log.info("Average time per layer: ")
    for layer in times.layers:
        log.info("%10s\tforward: %g ms.", layer.name, 1e3 * layer.forward)
        log.info("%10s\tbackward: %g ms.", layer.name, 1e3 * layer.backward)
    log.info("Average Forward pass: %g ms.", 1e3 * times.forward)
    log.info("Average Backward pass: %g ms.", 1e3 * times.backward)
    log.info("Average Forward-Backward: %g ms.", 1e3 * times.total)
    log.info("Total Time: %g ms.", 1e3 * times.total * iterations)
    log.info("*** Benchmark ends ***")
    return times


class LayerClock:
    """Tells `note` of every layer that runs: its number, "forward" or "backward", and seconds."""

    def __init__(self, net: Net, note: Callable[[int, str, float], None]) -> None:
        self._backend, self._note, self._began = net.backend, note, 0.0
        hooks = net.hooks
        self._pairs = (
            (hooks.before_forward, self._start),
            (hooks.after_forward, self._forward),
            (hooks.before_backward, self._start),
            (hooks.after_backward, self._backward),
        )

    def attach(self) -> None:
        for called, hook in self._pairs:
            called.append(hook)

    def detach(self) -> None:
        for called, hook in self._pairs:
            called.remove(hook)

    def _start(self, index: int) -> None:
        self._began = time.perf_counter()

    def _forward(self, index: int) -> None:
        self._end(index, "forward")

    def _backward(self, index: int) -> None:
        self._end(index, "backward")

    def _end(self, index: int, which: str) -> None:
        self._backend.wait()  # it has only been told what to do
        self._note(index, which, time.perf_counter() - self._began)
