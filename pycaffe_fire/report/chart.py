"""What `caffe time -chart` prints: a bar for every layer."""

from __future__ import annotations

from ..net import Net
from ..net.summary import facts
from ..net.timing import LayerTimes, NetTimes
from .summary import gigaflop

BAR, WIDEST_NAME = 40, 32


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
