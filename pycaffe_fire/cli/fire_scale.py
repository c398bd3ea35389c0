"""fire_scale: predict how training a net scales over nodes and networks."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace

from .. import schema
from ..backend import cpu_backend
from ..backend.choice import choose_backend
from ..errors import NetError, SolverError
from ..layers import Context, layer_class
from ..net import Net
from ..net.graph import filter_net
from ..net.synthetic import with_synthetic_data
from ..parallel.communicators.wire import WIRES
from ..parallel.cost import (
    ALGORITHMS,
    GPU_SUM_RATE,
    NETWORKS,
    SUM_RATE,
    Network,
    Profile,
    scaling,
)
from ..parallel.job import world
from ..parallel.measure import measure_net, measure_network
from ..report.scaling import (
    Sources,
    assumption_lines,
    paper_table,
    plot,
    scaling_table,
)
from ..report.style import check_plot_name
from ..schema.proto import NetParameter
from ..solver import read_param
from ..solver.nets import find_train_net
from .common import Parser, image_shape, positive, run

COMMANDS = """
  fire_scale --solver models/googlenet/solver.prototxt --measure --network 10gbe
                                            time the net here, predict 1 to 1024 nodes
  mpiexec -n 2 fire_scale --model models/nin/train_val.prototxt --measure
                                            measure the network between two ranks, too
  fire_scale --model models/nin/train_val.prototxt --seconds-per-sample 0.008 --batch-size 1024 \\
      --latency 20 --bandwidth 25           everything given: us and Gbit/s
  fire_scale --model models/googlenet/train_val_b1024.prototxt --device gpu \\
      --seconds-per-sample 0.001 --network 100gbe --per-host 8 --inner nvlink --gradients bfloat16
                                            eight GPUs on each host
  fire_scale --solver models/googlenet/solver.prototxt --measure --network 1gbe --plot scale.png
                                            and draw it
  fire_scale --paper                        the FireCaffe paper's runs against this model
"""
MOST_NODES = 1024
MEASURED_BATCH = 32  # at most: what a node would hold, and fits into memory


def _parser() -> Parser:
    parser = Parser("fire_scale", COMMANDS)
    flag = parser.add_argument
    net = parser.add_mutually_exclusive_group()
    net.add_argument("--solver", metavar="FILE", help="a solver prototxt")
    net.add_argument("--model", metavar="FILE", help="a train_val prototxt")
    flag("--paper", action="store_true", help="compare the model with the paper's runs")
    flag("--measure", action="store_true", help="time a few passes of the net on this machine")
    flag(
        "--seconds-per-sample", type=_number, metavar="S",
        help="instead: one rank's forward and backward",
    )  # fmt: skip
    flag(
        "--seconds-per-pass", type=_number, metavar="S",
        help="with it: what a pass takes whatever the batch (default: nothing)",
    )  # fmt: skip
    flag(
        "--device", choices=["cpu", "gpu"], default="cpu",
        help="where a rank computes and adds gradients (default: cpu)",
    )  # fmt: skip
    flag(
        "--threads", type=positive, metavar="N",
        help="CPU threads to measure with (default: all cores)",
    )  # fmt: skip
    flag(
        "--sum-rate", type=_number, metavar="GB/S",
        help="gradients that a rank adds per second (default: measured with --measure, else "
        f"{SUM_RATE / 1e9:g} on a CPU and {GPU_SUM_RATE / 1e9:g} on a GPU)",
    )  # fmt: skip
    flag("--network", metavar="NAME", help=f"one of {', '.join(NETWORKS)}")
    flag("--latency", type=_number, metavar="US", help="instead: of a message, in microseconds")
    flag("--bandwidth", type=_number, metavar="GBIT", help="with --latency: in Gbit/s")
    flag(
        "--message-cost", type=_number, default=0.0, metavar="US",
        help="of a host's time for each message, in microseconds (default: none)",
    )  # fmt: skip
    flag(
        "--per-host", type=positive, default=1, metavar="G",
        help="ranks (GPUs) on each host, which share its link (default: 1)",
    )  # fmt: skip
    flag("--inner", metavar="NAME", help="with --per-host: the network within a host, by its name")
    flag(
        "--gradients", choices=list(WIRES), default="float32",
        help="gradients on the wire (default: float32)",
    )  # fmt: skip
    flag(
        "--ranks", type=_ranks, metavar="LIST",
        help="numbers of ranks, as 1,6,12 (default: powers of two up to 1024)",
    )  # fmt: skip
    flag("--batch-size", type=positive, metavar="N", help="(default: the prototxt's batch_size)")
    flag(
        "--batch", choices=["global", "per-rank"], default="global",
        help="divide the batch over the nodes (default), or give each node a whole one",
    )  # fmt: skip
    flag("--no-overlap", action="store_true", help="send gradients only after backward")
    flag(
        "--synthetic", type=image_shape, metavar="C,H,W", help="size of images without a crop_size"
    )
    flag("--plot", metavar="FILE.png", help="draw the speedups")
    return parser


def _number(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f'needs a number above 0, got "{text}"')
    return value


def _ranks(text: str) -> list[int]:
    return sorted({positive(part) for part in text.split(",")})


def main(arguments: Sequence[str] | None = None) -> int:
    return run(_parser(), _scale, arguments)


def _scale(options: argparse.Namespace) -> None:
    if options.paper:
        print("\n".join(paper_table()))
        return
    _check(options)
    if options.plot:
        check_plot_name(options.plot)
    network = _network(options)
    if network is None:
        return  # another rank does the rest
    param, batch = _net(options)
    profile = _profile(options, param, batch)
    nodes = options.ranks or [1 << i for i in range(MOST_NODES.bit_length())]
    per_rank, overlap = options.batch == "per-rank", not options.no_overlap
    curves = {
        name: scaling(profile, network, name, batch, nodes, per_rank, overlap)
        for name in ALGORITHMS
    }
    how = "on each rank" if per_rank else "in all"
    print("\n".join(assumption_lines(profile, network, _sources(options))))
    print(f"batch {batch} {how}; gradients {'beside' if overlap else 'after'} backward")
    print("\n".join(["", *scaling_table(curves)]))
    if len(curves["tree"]) < len(nodes):
        print(f"A batch of {batch} is too small for more; see --batch-size and --batch per-rank")
    if network.name == "gemini":
        print("\n".join(["", *paper_table()]))
    if options.plot:
        plot(options.plot, curves, f"{profile.name}, batch {batch} {how}, {network.name}")
        print(f"wrote {options.plot}")


def _check(options: argparse.Namespace) -> None:
    if not options.solver and not options.model:
        raise SolverError("give a net with --solver or --model, or --paper for the paper's runs")
    if bool(options.measure) == bool(options.seconds_per_sample):
        raise SolverError("give --measure to time the net here, or --seconds-per-sample, not both")
    if (options.latency is None) != (options.bandwidth is None):
        raise SolverError("--latency and --bandwidth belong together")
    for flag, needed in (("seconds_per_pass", "seconds_per_sample"), ("inner", "per_host")):
        if getattr(options, flag) and getattr(options, needed) in (None, 1):
            names = (f"--{name.replace('_', '-')}" for name in (flag, needed))
            raise SolverError(" needs ".join(names))
    if options.network and options.latency is not None:
        raise SolverError("give --network, or --latency and --bandwidth, not both")


# The network.


def _network(options: argparse.Namespace) -> Network | None:
    """What was asked for, or what is between these ranks; None on all ranks but the first."""
    comm = world()
    if options.network:
        network = NETWORKS[options.network]
    elif options.latency is not None:
        network = Network("as given", options.latency * 1e-6, options.bandwidth * 1e9 / 8)
    elif comm is None:
        raise SolverError(
            "name a --network, give --latency and --bandwidth, or start this with mpiexec -n 2 to "
            f"measure the one in between; known networks: {', '.join(NETWORKS)}"
        )
    else:
        network = measure_network(comm, options.per_host)
    network = replace(
        network, per_message=options.message_cost * 1e-6, per_host=options.per_host,
        inner=NETWORKS[options.inner] if options.inner else network.inner,
    )  # fmt: skip
    return network if comm is None or comm.Get_rank() == 0 else None


def _sources(options: argparse.Namespace) -> Sources:
    measured = bool(options.measure)
    if options.network:
        network = "fitted to the paper's rows" if options.network == "gemini" else "nominal"
    else:
        network = "given" if options.latency is not None else "measured"
    return Sources(
        profile="measured" if measured else "given",
        per_pass="measured" if measured else "given" if options.seconds_per_pass else "assumed",
        sums="given" if options.sum_rate else "measured" if measured else "assumed",
        network=network,
        inner="nominal" if options.inner else network,
    )


# The net.


def _net(options: argparse.Namespace) -> tuple[NetParameter, int]:
    """The net to train, with made-up data, and its batch size."""
    if options.solver:
        found = find_train_net(read_param(options.solver), schema.NetState())
        param, path = filter_net(found.param), found.path or options.solver
    else:
        param, path = schema.read_net(options.model), options.model
        param.state.phase = schema.TRAIN
        param = filter_net(param)
    try:
        made = with_synthetic_data(param, options.synthetic)
    except NetError as error:
        raise NetError(f"{path}: {error}") from None
    batch = options.batch_size or _batch(param)
    if not batch:
        raise SolverError(f"{path}: no data layer names a batch_size; give --batch-size")
    return made, batch


def _batch(param: NetParameter) -> int:
    sizes = (layer_class(layer.type).batch_size(layer) for layer in param.layer)
    return next((size for size in sizes if size), 0)


def _profile(options: argparse.Namespace, param: NetParameter, batch: int) -> Profile:
    on_gpu = options.device == "gpu"
    if options.measure:
        backend = choose_backend("0", options.threads) if on_gpu else cpu_backend(options.threads)
        profile = measure_net(param, min(batch, MEASURED_BATCH), backend)
    else:
        net = Net(param, cpu_backend(options.threads), Context())
        try:
            profile = Profile(
                net.name, 4.0 * net.parameters.size, options.seconds_per_sample,
                options.seconds_per_pass or 0.0, sum_rate=GPU_SUM_RATE if on_gpu else SUM_RATE,
            )  # fmt: skip
        finally:
            net.close()
    if options.sum_rate:
        profile = replace(profile, sum_rate=options.sum_rate * 1e9)
    return replace(profile, wire_share=1.0 if options.gradients == "float32" else 0.5)


if __name__ == "__main__":
    sys.exit(main())
