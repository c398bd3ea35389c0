"""Scaling predictions as tables for people and as a plot."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle

from ..parallel.cost import PAPER_ROWS, Network, Point, Profile, predict_paper
from .style import COLOURS, PALE, dress, new_figure, save

Curves = Mapping[str, Sequence[Point]]  # by algorithm


@dataclass(frozen=True)
class Sources:
    """Where the numbers of a prediction come from: "measured", "given", "nominal" or "assumed"."""

    profile: str
    per_pass: str
    sums: str
    network: str
    inner: str


def assumption_lines(profile: Profile, network: Network, sources: Sources) -> list[str]:
    """Everything that goes into a prediction, and where it comes from."""
    measured = sources.profile == "measured"
    buckets = profile.buckets()
    wire = "float32" if profile.wire_share == 1 else "16-bit numbers"
    lines = [
        f"{profile.name}: {profile.gradient_bytes / 1e6:.1f} MB of gradients in {len(buckets)} "
        f"buckets, complete {'when measured' if measured else 'evenly'} during backward; {wire} "
        f"on the wire",
        f"compute: {1e3 * profile.seconds_per_sample:.3g} ms per sample ({sources.profile}) + "
        f"{1e3 * profile.seconds_per_pass:.3g} ms per pass ({sources.per_pass}), "
        f"{profile.backward_share:.0%} of it backward ({'measured' if measured else 'assumed'})",
        f"sums: {profile.sum_rate / 1e9:.3g} GB/s ({sources.sums})",
        f"{describe_network(network)} ({sources.network}); {1e6 * network.per_message:.3g} us of a "
        f"host's time per message",
    ]
    if network.per_host > 1:
        inner = network.inner
        within = f"{describe_network(inner)} ({sources.inner})" if inner else "the same network"
        lines.append(
            f"{network.per_host} ranks on each host, which share its link; within: {within}"
        )
    return [
        *lines,
        "latency: for every bucket (server, tree), or once (halving, ring: buckets overlap)",
        "not in it: reading data, updates, slower ranks, switches that many links share",
    ]


def describe_network(network: Network) -> str:
    rates = [_gigabits(network.bandwidth)]
    if network.both_ways:
        rates.append(f"{_gigabits(network.both_ways)} both ways at once")
    if network.in_steps:
        rates.append(f"{_gigabits(network.in_steps)} step by step")
    return f"network {network.name}: {1e6 * network.latency:.3g} us, {', '.join(rates)}"


def _gigabits(bandwidth: float) -> str:
    return f"{8e-9 * bandwidth:.3g} Gbit/s"


def scaling_table(curves: Curves) -> list[str]:
    """One line per number of nodes: iteration, speedup and efficiency of every algorithm."""
    names = list(curves)
    lines = [
        f"{'':>5} {'samples':>8}" + "".join(f"  {name:^27}" for name in names),
        f"{'nodes':>5} {'per node':>8}" + f"  {'ms':>10}{'speedup':>9}{'effic.':>8}" * len(names),
    ]
    for row in zip(*curves.values(), strict=True):
        cells = "".join(
            f"  {1e3 * p.iteration.total:>10.1f}{p.speedup:>9.2f}{p.efficiency:>8.1%}" for p in row
        )
        lines.append(f"{row[0].nodes:>5} {row[0].samples:>8.4g}{cells}")
    return lines


def paper_table() -> list[str]:
    """The paper's multi-node rows beside what the model says of them."""
    lines = [
        "The FireCaffe paper's runs (K20 GPUs, Cray Gemini, plain tree) and this model. Gemini's",
        "bandwidth (2.9 GB/s) was fitted to these rows, so they show that the shape is right, not",
        "more; hours, and speedups but the two of 128 GPUs, are recalled, not read.",
        f"{'net':<10}{'GPUs':>5}{'batch':>6} {'hours':>7}{'model':>7}{'off by':>8}"
        f" {'speedup':>9}{'model':>7}{'off by':>8}",
    ]
    for row in PAPER_ROWS:
        hours, speedup = predict_paper(row)
        lines.append(
            f"{row.net.name:<10}{row.gpus:>5}{row.batch:>6} "
            f"{row.hours:>7.1f}{hours:>7.1f}{hours / row.hours - 1:>+8.1%} "
            f"{row.speedup:>9.0f}{speedup:>7.1f}{speedup / row.speedup - 1:>+8.1%}"
        )
    return lines


def plot(path: str, curves: Curves, title: str) -> None:
    """Speedup against nodes, both axes logarithmic, with the ideal line."""
    figure = new_figure()
    axes = figure.add_subplot()
    nodes = [point.nodes for point in next(iter(curves.values()))]
    axes.plot(nodes, nodes, "--", color=PALE, label="ideal")
    for (name, points), colour in zip(curves.items(), cycle(COLOURS)):
        speedups = [point.speedup for point in points]
        axes.plot(nodes, speedups, color=colour, lw=1.6, marker="o", ms=3.5, label=name)
    axes.set_xscale("log", base=2)
    axes.set_yscale("log", base=2)
    axes.set_xticks(nodes, [str(n) for n in nodes])
    axes.yaxis.set_major_formatter("{x:g}")
    dress(axes, title, "nodes", "speedup")
    save(figure, path)
