"""What `caffe test` and `caffe time` say, in Caffe's words, and a chart of the latter."""

from __future__ import annotations

import logging

from ..net import Net
from ..net.summary import facts
from ..net.timing import LayerTimes, NetTimes, time_net
from ..parallel.leaves import Output, output_names, output_values
from .summary import gigaflop
from .text import describe

log = logging.getLogger("pycaffe_fire")

BAR, WIDEST_NAME = 40, 32


def score(net: Net, iterations: int) -> list[Output]:
    """The net's outputs as means over this many batches, logged on the way as Caffe does."""
    log.info("Running for %d iterations.", iterations)
    names = output_names(net)
    loss, sums = 0.0, [0.0] * len(names)
    for batch in range(iterations):
        loss += float(net.run_forward())
        net.context.step += 1
        for i, ((name, _), value) in enumerate(zip(names, output_values(net), strict=True)):
            sums[i] += value
            log.info("Batch %d, %s = %g", batch, name, value)
    log.info("Loss: %g", loss / iterations)
    found = [
        Output(name, total / iterations, weight)
        for (name, weight), total in zip(names, sums, strict=True)
    ]
    for output in found:
        log.info("%s", describe(output))
    return found


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


def chart_lines(net: Net, times: NetTimes) -> list[str]:
    """A bar for every layer, `#` forward and `=` backward, with its speed where it multiplies."""
    wide = min(WIDEST_NAME, max((len(layer.name) for layer in times.layers), default=0))
    longest = max((layer.forward + layer.backward for layer in times.layers), default=0.0)
    head = f"{'layer':<{wide}}  {'ms':>9}  {'':<{BAR}}  {'GFLOP/s forward':>15}  {'backward':>9}"
    lines = [f"# forward, = backward, {1e3 * times.total:.4g} ms in all", head.rstrip()]
    for i, (layer, about) in enumerate(zip(times.layers, facts(net).layers, strict=True)):
        work = gigaflop(about.multiply_adds)
        # Backward has a product for the weights and one for the gradient it passes on, if any.
        back = work * sum((any(net.layers[i].param_propagate_down), any(net.propagate_down[i])))
        speeds = f"{_speed(work, layer.forward):>15}  {_speed(back, layer.backward):>9}"
        row = f"{layer.name[:wide]:<{wide}}  {1e3 * (layer.forward + layer.backward):>9.3f}"
        lines.append(f"{row}  {_bar(layer, longest):<{BAR}}  {speeds}".rstrip())
    return lines


def _speed(work: float, seconds: float) -> str:
    if not work or seconds <= 0:
        return ""
    speed = work / seconds
    return f"{speed:.3g}" if speed < 100 else f"{speed:,.0f}"


def _bar(layer: LayerTimes, longest: float) -> str:
    unit = BAR / longest if longest else 0.0
    ahead = round(layer.forward * unit)
    bar = "#" * ahead + "=" * (round((layer.forward + layer.backward) * unit) - ahead)
    return bar or (f"(within {layer.inside})"[:BAR] if layer.inside else "")
