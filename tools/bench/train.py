"""Images per second of forward, backward and a whole training step, alone or against others.

python tools/bench/train.py models/googlenet/train_val.prototxt --batch 32 --threads 2
python tools/bench/train.py models/googlenet/train_val.prototxt --against torch --json out.json
python tools/bench/train.py models/lenet/train_val.prototxt --shape 1,28,28 --profile
python tools/bench/train.py models/googlenet/train_val.prototxt --batch 16 --library none
python tools/bench/train.py models/googlenet/train_val.prototxt --library none --against caffe
python tools/bench/train.py models/googlenet/train_val.prototxt --against bfloat16
python tools/bench/train.py models/googlenet/train_val.prototxt --before ../checkout
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import sys
import tempfile
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Any

from synthetic import batch_of, steps, synthetic_net, without_dropout
from timing import BenchError, Summary, Worker, environment, interleave, summarize

from pycaffe_fire.backend import available_cores
from pycaffe_fire.backend.tensor import BFLOAT16
from pycaffe_fire.errors import FireError
from pycaffe_fire.schema.files import replacing

HERE = Path(__file__).parent
OURS, EAGER, COMPILED = "pycaffe_fire", "torch channels_last", "torch.compile"
DEFAULT, CAFFE = "torch default", "as Caffe 1.0"
TORCH = (EAGER, COMPILED, DEFAULT)
TOLERANCE = 0.06  # the share of all cores that others may use during a clean sample
# A small rate, so that weights and losses stay sane however many steps are taken.
SGD = {"base_lr": 1e-4, "momentum": 0.9, "weight_decay": 5e-4}
LOSS_TOLERANCE, GRADIENT_TOLERANCE = 1e-4, 1e-2
# Before a BatchNorm some gradients are zero but for rounding (those of MobileNet's first Scale have
# norms of 8e-6 here and 5e-4 in PyTorch), and the others carry more of it.
NORMALISED_TOLERANCE, NORMALISED_FLOOR = 5e-2, 3e-4
# PyTorch frees and allocates its activations every step; with these limits raised, glibc keeps
# the memory instead of returning it to the kernel and faulting it in again.
KEEP_MEMORY = {
    "MALLOC_MMAP_THRESHOLD_": str(2**40),
    "MALLOC_TRIM_THRESHOLD_": str(2**40),
    "MALLOC_TOP_PAD_": str(2**26),
}


def main(arguments: list[str] | None = None) -> int:
    options = _parse(arguments)
    try:
        if options.against == "torch" and importlib.util.find_spec("torch") is None:
            raise BenchError("--against torch needs PyTorch: pip install torch==2.13.0")
        net = synthetic_net(options.net, options.batch, options.shape)
        options.batch = batch_of(net)
        with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
            if options.profile:
                report = _profile(net, options, Path(folder), stack)
            else:
                report = _race(net, options, Path(folder), stack)
        if options.json:
            _write(options.json, report)
    except (BenchError, FireError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


def _parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("net", help="a train_val prototxt")
    parser.add_argument("--batch", type=_positive, help="images per step (default: the prototxt's)")
    parser.add_argument("--threads", type=_positive, default=available_cores())
    parser.add_argument(
        "--leaves", type=_positive, default=1, help="of our net, side by side (fire_train --leaves)"
    )
    parser.add_argument("--shape", type=_shape, metavar="C,H,W", help="of an image without a crop")
    parser.add_argument(
        "--against", choices=["torch", "caffe", BFLOAT16],
        help="PyTorch; Caffe's way on a CPU: im2col and OpenBLAS (caffe_path.py says how); or our "
        "net with products of bfloat16 (fire_train --precision)",
    )  # fmt: skip
    parser.add_argument(
        "--without", type=_modes, default=[], metavar="NAME,NAME",
        help=f"leave out some of {', '.join(TORCH)}",
    )  # fmt: skip
    parser.add_argument(
        "--library", action="append", default=[], metavar="FILE",
        help='also our net on this libdnnl; "none" is NumPy\'s BLAS, as where no libdnnl loads',
    )  # fmt: skip
    parser.add_argument(
        "--before", action="append", default=[], metavar="FOLDER",
        help="also our net as another checkout of this project runs it",
    )  # fmt: skip
    parser.add_argument("--repeat", type=_positive, default=5, help="clean samples wanted of each")
    parser.add_argument(
        "--limit", type=float, default=300, help="seconds after which disturbed samples count too"
    )
    parser.add_argument("--profile", action="store_true", help="time per layer of our net")
    parser.add_argument("--json", metavar="FILE", help="also write the figures to FILE")
    return parser.parse_args(arguments)


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1, got {value}")
    return value


def _modes(text: str) -> list[str]:
    names = text.split(",")
    if not set(names) < set(TORCH):
        raise argparse.ArgumentTypeError(f"wants some of {', '.join(TORCH)}, got {text!r}")
    return names


def _shape(text: str) -> list[int]:
    try:
        sizes = [_positive(part) for part in text.split(",")]
    except ValueError:
        raise argparse.ArgumentTypeError(f"wants numbers like 3,224,224, got {text!r}") from None
    return sizes


def _title(options: argparse.Namespace) -> str:
    path = Path(options.net)
    name = path.resolve().parent.name if path.stem.startswith("train_val") else path.stem
    threads = f"{options.threads} thread{'s' if options.threads > 1 else ''}"
    return f"{name} batch {options.batch}, {threads}"


# Starting the contenders.


def _start(name: str, script: str, options: argparse.Namespace, **extra: str) -> Worker:
    return Worker(name, str(HERE / script), environment(options.threads, extra))


def _build(
    worker: Worker, net: Any, options: argparse.Namespace, file: Path, **more: Any
) -> dict[str, Any]:
    """Have our worker set up `net`, handed over in `file`."""
    file.write_bytes(net.SerializeToString())
    built: dict[str, Any] = worker.ask(
        "build", net=str(file), threads=options.threads, sgd=SGD, **more
    )
    return built


def _ours(net: Any, options: argparse.Namespace, folder: Path, stack: ExitStack) -> Worker:
    worker = stack.enter_context(_start(OURS, "fire_net.py", options))
    built = _build(worker, net, options, folder / "net", leaves=options.leaves)
    print(f"{OURS}: {built['layers']} layers, {built['weights']:,} weights, {built['backend']}")
    return worker


def _on_libraries(
    net: Any, options: argparse.Namespace, folder: Path, stack: ExitStack
) -> list[Worker]:
    """Our net on other libraries than the one it would take."""
    workers = []
    for file in options.library:
        name = Path(file).name
        extra = {"PYCAFFE_FIRE_DNNL": file}
        worker = stack.enter_context(_start(name, "fire_net.py", options, **extra))
        built = _build(worker, net, options, folder / "net", leaves=options.leaves)
        print(f"{name}: {built['backend']}")
        workers.append(worker)
    return workers


def _as_before(
    net: Any, options: argparse.Namespace, folder: Path, stack: ExitStack
) -> list[Worker]:
    """Our net in other checkouts."""
    workers = []
    for checkout in map(Path, options.before):
        script = checkout.resolve() / "tools" / "bench" / "fire_net.py"
        if not script.exists():
            raise BenchError(f"--before {checkout}: there is no {script}")
        env = environment(options.threads, {"PYTHONPATH": str(script.parents[2])})
        worker = stack.enter_context(Worker(f"before ({checkout.name})", str(script), env))
        _build(worker, net, options, folder / "net", leaves=options.leaves)
        workers.append(worker)
    return workers


def _torches(net: Any, options: argparse.Namespace, folder: Path, stack: ExitStack) -> list[Worker]:
    """PyTorch in all its modes, holding our weights and checked to compute the same loss."""
    with _start(OURS, "fire_net.py", options) as worker:
        _build(worker, without_dropout(net), options, folder / "check")
        reference = worker.ask("reference", folder=str(folder))
    plan = steps(net, reference["weights"])
    workers = []
    for name in (mode for mode in TORCH if mode not in options.without):
        extra = KEEP_MEMORY if name != DEFAULT else {}
        worker = stack.enter_context(_start(name, "torch_net.py", options, **extra))
        built = worker.ask(
            "build",
            steps=plan,
            reference=reference,
            threads=options.threads,
            channels_last=name != DEFAULT,
            compiled=name == COMPILED,
            sgd=SGD,
        )
        _compare(name, reference, built, _is_normalised(net))
        workers.append(worker)
    print(
        f"torch {built['version']}: loss without dropout {built['loss']:.6f}, "
        f"ours {reference['loss']:.6f}; {len(built['gradients'])} gradients agree"
    )
    return workers


def _as_caffe(net: Any, options: argparse.Namespace, folder: Path, stack: ExitStack) -> Worker:
    """Caffe's way to compute, checked to give the same loss and gradients."""
    worker = stack.enter_context(_start(CAFFE, "caffe_path.py", options))
    found = []
    with _start(OURS, "fire_net.py", options) as ours:
        for each in (ours, worker):
            _build(each, without_dropout(net), options, folder / "check")
            found.append(each.ask("reference", folder=str(folder)))
    reference, theirs = found
    _compare(CAFFE, reference, theirs, _is_normalised(net))
    built = _build(worker, net, options, folder / "net")
    print(f"{CAFFE}: {built['backend']}; {len(reference['gradients'])} gradients agree")
    return worker


def _in_bfloat16(net: Any, options: argparse.Namespace, folder: Path, stack: ExitStack) -> Worker:
    worker = stack.enter_context(_start(BFLOAT16, "fire_net.py", options))
    more = {"leaves": options.leaves, "products": BFLOAT16}
    built = _build(worker, net, options, folder / "net", **more)
    print(f"{BFLOAT16}: {built['backend']}")
    return worker


def _is_normalised(net: Any) -> bool:
    return any(layer.type == "BatchNorm" for layer in net.layer)


def _compare(
    name: str, ours: dict[str, Any], theirs: dict[str, Any], normalised: bool = False
) -> None:
    """Contenders that compute different things cannot be compared."""
    a, b = ours["loss"], theirs["loss"]
    if not abs(a - b) <= LOSS_TOLERANCE * abs(a):
        raise BenchError(f"the nets differ: loss {a:.6f} here, {b:.6f} in {name}")
    norms, layer_of = theirs["gradients"], {}
    for layer, blobs in ours["weights"].items():
        for i, (_, start, *_) in enumerate(blobs):
            layer_of[str(start)] = f'weight {i} of layer "{layer}"'
    relative, floor = GRADIENT_TOLERANCE, 0.0
    if normalised:
        relative = NORMALISED_TOLERANCE
        floor = NORMALISED_FLOOR * max(ours["gradients"].values())
    for start, norm in ours["gradients"].items():
        if start in norms and not abs(norm - norms[start]) <= relative * norm + floor:
            raise BenchError(
                f"the nets differ: the gradient of {layer_of[start]} has norm {norm:.6g} here, "
                f"{norms[start]:.6g} in {name}"
            )


# The race.


def _race(net: Any, options: argparse.Namespace, folder: Path, stack: ExitStack) -> dict[str, Any]:
    others = []
    if options.against == "torch":
        others = _torches(net, options, folder, stack)
    elif options.against == "caffe":
        others = [_as_caffe(net, options, folder, stack)]
    elif options.against == BFLOAT16:
        others = [_in_bfloat16(net, options, folder, stack)]
    workers = [_ours(net, options, folder, stack), *others]
    workers += _on_libraries(net, options, folder, stack)
    workers += _as_before(net, options, folder, stack)
    for worker in workers:
        worker.ask("warm")
    samples = interleave(workers, options.repeat, TOLERANCE, options.limit)
    results = {name: summarize(taken, options.repeat, TOLERANCE) for name, taken in samples.items()}
    peaks = {worker.name: worker.ask("memory") for worker in workers}
    print()
    _print_table(results, peaks, options.batch)
    print()
    print(_verdict(_title(options), results, peaks))
    return {
        "net": options.net, "batch": options.batch, "threads": options.threads,
        "contenders": {
            name: {**asdict(result), "peak_memory": peaks[name]} for name, result in results.items()
        },
        "ratios": {
            name: {
                phase: result.median[phase] / results[OURS].median[phase]
                for phase in results[OURS].median
            }
            for name, result in results.items()
            if name != OURS
        },
        "best": _best(results) if options.against == "torch" else None,
    }  # fmt: skip


def _print_table(results: dict[str, Summary], peaks: dict[str, int], batch: int) -> None:
    phases = ("forward", "backward", "pass", "update", "step", "cpu")
    print(f"{'median ms (min)':<22}" + "".join(f"{p:>18}" for p in phases) + "  images/s   peak MB")
    for name, result in results.items():
        cells = [f"{result.median[p] * 1e3:.1f} ({result.minimum[p] * 1e3:.1f})" for p in phases]
        print(
            f"{name:<22}"
            + "".join(f"{cell:>18}" for cell in cells)
            + f"{batch / result.median['step']:>10.1f}{peaks[name] / 2**20:>10.0f}"
        )
    for name, result in results.items():
        note = f"{result.clean} of {result.samples} samples clean"
        if result.clean < result.samples:
            note += f"; others used up to {result.foreign:.0%} of the machine"
        print(f"  {name}: {note}")


def _verdict(title: str, results: dict[str, Summary], peaks: dict[str, int]) -> str:
    """The line to quote: our time, everybody else's with the ratio, and the memory."""
    mine = results[OURS]
    others = [name for name in results if name != OURS]
    line = f"{title}: step {mine.median['step'] * 1e3:.0f} ms"
    versus = [
        f"{name} {results[name].median['step'] * 1e3:.0f} ms "
        f"({results[name].median['step'] / mine.median['step']:.2f}x, by minima "
        f"{results[name].minimum['step'] / mine.minimum['step']:.2f}x)"
        for name in others
    ]
    if versus:
        line += f" vs {', '.join(versus)}"
    if any(name in TORCH for name in others):
        best = _best(results)
        line += f"; PyTorch's best is {best} "
        line += f"({results[best].median['step'] / mine.median['step']:.2f}x)"
    memory = " vs ".join(f"{peaks[name] / 2**30:.2f} GB" for name in (OURS, *others))
    return f"{line}; peak memory {memory}"


def _best(results: dict[str, Summary]) -> str:
    """PyTorch's fastest mode in this race."""
    others = [name for name in results if name in TORCH]
    return min(others, key=lambda name: results[name].median["step"])


# The profile.


def _profile(
    net: Any, options: argparse.Namespace, folder: Path, stack: ExitStack
) -> dict[str, Any]:
    worker = _ours(net, options, folder, stack)
    worker.ask("warm")
    result: dict[str, Any] = worker.ask(
        "profile", repeats=options.repeat, tolerance=TOLERANCE, limit=options.limit
    )
    rows = sorted(result["layers"], key=lambda row: -(row[2] + row[3]))
    rows.append(["(between the layers)", "", *result["between"]])
    whole = sum(forward + backward for _, _, forward, backward in rows)
    print(f"\n{_title(options)}: forward+backward {whole * 1e3:.1f} ms, by layer")
    print(f"{'layer':<36}{'type':<18}{'forward ms':>11}{'backward ms':>12}{'share':>8}")
    for name, kind, forward, backward in rows:
        _print_row(f"{name:<36}{kind:<18}", forward, backward, whole)
    print("\nby type")
    kinds: dict[str, list[float]] = {}
    for _, kind, forward, backward in rows[:-1]:
        total = kinds.setdefault(kind, [0.0, 0.0])
        total[0] += forward
        total[1] += backward
    for kind, (forward, backward) in sorted(kinds.items(), key=lambda item: -sum(item[1])):
        _print_row(f"{kind:<54}", forward, backward, whole)
    return {"net": options.net, "batch": options.batch, "threads": options.threads, **result}


def _print_row(label: str, forward: float, backward: float, whole: float) -> None:
    share = (forward + backward) / whole
    if share >= 0.0005:
        print(f"{label}{forward * 1e3:>11.2f}{backward * 1e3:>12.2f}{share:>8.1%}")


def _write(path: str, report: dict[str, Any]) -> None:
    with replacing(path, FireError) as temporary:
        temporary.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    sys.exit(main())
