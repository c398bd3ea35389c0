"""Latency, start and memory of a net in TEST phase, here and in the runtimes that are installed.

python tools/bench/infer.py models/resnet50/deploy.prototxt
python tools/bench/infer.py models/mobilenet_v1/deploy.prototxt --batch 1,16 --json out.json
python tools/bench/infer.py models/googlenet/deploy.prototxt --opencv venv/bin/python
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from google.protobuf import text_format
from runtimes import RUNTIMES
from timing import BenchError, Sample, Worker, environment, interleave, least_disturbed

from pycaffe_fire import schema
from pycaffe_fire.backend import available_cores, cpu_backend
from pycaffe_fire.convert import Settings, convert
from pycaffe_fire.errors import FireError
from pycaffe_fire.layers import Context
from pycaffe_fire.net.net import Net
from pycaffe_fire.schema.files import replacing

HERE = Path(__file__).parent
OURS = "pycaffe_fire"
TOLERANCE = 0.06  # the share of all cores that others may use during a clean sample
DIFFERENCE = 1e-3  # how far the scores of two runtimes may be apart, of the largest
SEED = 1


@dataclass(frozen=True)
class Figures:
    """Seconds of one forward, from the start of the process to the first scores, and bytes."""

    version: str
    median: float
    percentile95: float
    minimum: float
    start: float
    peak_memory: int
    steps: int
    clean: int
    samples: int


def main(arguments: list[str] | None = None) -> int:
    options = _parse(arguments)
    try:
        batches = {}
        with tempfile.TemporaryDirectory() as folder:
            _make_weights(options.net, Path(folder))
            for batch in options.batch:
                place = Path(folder) / str(batch)
                _make_files(options.net, batch, Path(folder), place)
                batches[str(batch)] = _race(place, batch, options)
        if options.json:
            report = {"net": options.net, "threads": options.threads, "batches": batches}
            with replacing(options.json, FireError) as temporary:
                temporary.write_text(json.dumps(report, indent=1) + "\n")
    except (BenchError, FireError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


def _parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("net", help="a deploy prototxt with one input")
    parser.add_argument("--batch", type=_numbers, default=[1, 4, 16], metavar="N,N")
    parser.add_argument("--threads", type=int, default=available_cores())
    parser.add_argument("--repeat", type=int, default=5, help="clean samples wanted of each")
    parser.add_argument("--starts", type=int, default=3, help="how often each is started")
    parser.add_argument(
        "--limit", type=float, default=120, help="seconds after which disturbed samples count too"
    )
    parser.add_argument(
        "--without", type=lambda text: text.split(","), default=[], metavar="NAME,NAME",
        help=f"leave out some of {', '.join(list(RUNTIMES)[1:])}",
    )  # fmt: skip
    parser.add_argument(
        "--opencv", metavar="PYTHON", default=sys.executable,
        help="the interpreter of an environment that has the OpenCV to measure",
    )  # fmt: skip
    parser.add_argument("--json", metavar="FILE", help="also write the figures to FILE")
    options = parser.parse_args(arguments)
    for name in options.without:
        if name not in RUNTIMES or name == OURS:
            parser.error(f"--without {name}: choose from {', '.join(list(RUNTIMES)[1:])}")
    return options


def _numbers(text: str) -> list[int]:
    try:
        numbers = [int(part) for part in text.split(",")]
    except ValueError:
        numbers = [0]
    if min(numbers) < 1:
        raise argparse.ArgumentTypeError(f"wants batches like 1,4,16, got {text!r}")
    return numbers


# The net, in all forms that the contenders read.


def _make_weights(path: str, folder: Path) -> None:
    """Weights of the net's fillers, and BatchNorm statistics of random images."""
    param = schema.read_net(path)
    param.state.phase = schema.TEST
    for layer in param.layer:
        if layer.type == "BatchNorm":
            layer.batch_norm_param.use_global_stats = False
    net = Net(param, cpu_backend(), Context(seed=SEED), source=path)
    if len(net.inputs) != 1 or len(net.outputs) != 1:
        raise BenchError(f"{path}: wants a net with one input and one output")
    blob = net.blobs[net.inputs[0]]
    blob.data[...] = _image(blob.shape)
    net.run_forward()
    net.save(str(folder / "net.caffemodel"))


def _image(shape: tuple[int, ...]) -> Any:
    return np.random.default_rng(SEED).standard_normal(shape, np.float32)


def _make_files(path: str, batch: int, weights: Path, place: Path) -> None:
    """net.prototxt, net.caffemodel, net.onnx, the same as graph.json and constants.npz, an input.

    BatchNorm and Scale are folded while converting, so that no runtime depends on its own folding.
    The check of every blob is left out: nets with random weights blow up rounding; scores will do.
    """
    place.mkdir()
    param = schema.read_net(path)
    (given,) = (layer for layer in param.layer if layer.type == "Input")
    shape = given.input_param.shape[0].dim
    shape[0] = batch
    prototxt, model = place / "net.prototxt", place / "net.caffemodel"
    prototxt.write_text(text_format.MessageToString(param))
    model.symlink_to(weights / "net.caffemodel")
    convert(prototxt, model, place / "net.onnx", settings=Settings(fold_bn=True, check_with=()))
    (place / "shape.json").write_text(json.dumps(list(shape)))
    np.save(place / "input.npy", _image(tuple(shape)))
    _list_nodes(place)


def _list_nodes(place: Path) -> None:
    import onnx

    graph = onnx.load(place / "net.onnx").graph
    constants = {each.name: onnx.numpy_helper.to_array(each) for each in graph.initializer}
    np.savez(place / "constants.npz", **constants)
    nodes = [
        (node.op_type, list(node.input), node.output[0], _attributes(node)) for node in graph.node
    ]
    listed = {"nodes": nodes, "input": graph.input[0].name, "output": graph.output[0].name}
    (place / "graph.json").write_text(json.dumps(listed))


def _attributes(node: Any) -> dict[str, Any]:
    import onnx

    found = {each.name: onnx.helper.get_attribute_value(each) for each in node.attribute}
    return {name: value for name, value in found.items() if not isinstance(value, bytes)}


# The race.


def _race(place: Path, batch: int, options: argparse.Namespace) -> dict[str, Any]:
    with ExitStack() as stack:
        workers, starts, versions = _start_all(place, options, stack)
        for worker in workers:
            worker.ask("warm")
        samples = interleave(workers, options.repeat, TOLERANCE, options.limit)
        figures = {
            worker.name: _figures(
                samples[worker.name], options.repeat, versions[worker.name], starts[worker.name],
                worker.ask("memory"),
            )
            for worker in workers
        }  # fmt: skip
    _print_table(batch, figures)
    return {name: asdict(each) for name, each in figures.items()}


def _start_all(
    place: Path, options: argparse.Namespace, stack: ExitStack
) -> tuple[list[Worker], dict[str, list[float]], dict[str, str]]:
    """Start everybody in turn, some times over; the last of each stay."""
    names = [name for name in RUNTIMES if name not in options.without]
    workers, starts, versions = [], dict[str, list[float]](), dict[str, str]()
    for turn in range(options.starts):
        last = turn == options.starts - 1
        for name in list(names):
            began = time.perf_counter()
            python = options.opencv if name == "OpenCV" else sys.executable
            script, env = str(HERE / "runtimes.py"), environment(options.threads)
            worker = Worker(name, script, env, python)
            (stack if last else ExitStack()).push(worker)
            try:
                made = worker.ask("first", runtime=name, folder=str(place), threads=options.threads)
            except BenchError as error:
                if name == OURS:
                    raise
                print(f"without {error}")
                names.remove(name)
                continue
            starts.setdefault(name, []).append(time.perf_counter() - began)
            versions[name] = made["version"]
            if last:
                _compare(name, place)
                workers.append(worker)
            else:
                worker.close()
    return workers, starts, versions


def _compare(name: str, place: Path) -> None:
    """Contenders that compute different things cannot be compared."""
    ours, theirs = (np.load(place / f"{each}.npy").ravel() for each in (OURS, name))
    apart = np.abs(ours - theirs).max() / np.abs(ours).max()
    if not apart <= DIFFERENCE:
        raise BenchError(f"the nets differ: scores of {name} are {apart:.1e} of ours apart")


def _figures(
    samples: list[Sample], want: int, version: str, starts: list[float], memory: int
) -> Figures:
    used = least_disturbed(samples, want, TOLERANCE)
    steps = sorted(seconds for sample in used for seconds in sample.steps)
    return Figures(
        version=version,
        median=statistics.median(steps),
        percentile95=steps[min(len(steps) - 1, round(0.95 * len(steps)))],
        minimum=steps[0],
        start=statistics.median(starts),
        peak_memory=memory,
        steps=len(steps),
        clean=sum(sample.foreign < TOLERANCE for sample in used),
        samples=len(used),
    )


def _print_table(batch: int, figures: dict[str, Figures]) -> None:
    mine = figures[OURS]
    print(
        f"\nbatch {batch:<24}{'median ms':>10}{'95 % ms':>10}{'min ms':>10}{'ratio':>8}"
        f"{'by minima':>11}{'start s':>9}{'peak MB':>9}  clean"
    )
    for name, each in figures.items():
        print(
            f"{name + ' ' + each.version:<30}{each.median * 1e3:>10.2f}"
            f"{each.percentile95 * 1e3:>10.2f}{each.minimum * 1e3:>10.2f}"
            f"{each.median / mine.median:>8.2f}{each.minimum / mine.minimum:>11.2f}"
            f"{each.start:>9.2f}{each.peak_memory / 2**20:>9.0f}  {each.clean} of {each.samples}"
        )


if __name__ == "__main__":
    sys.exit(main())
