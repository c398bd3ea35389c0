"""The tables of training and inference, measured again: nets after nets, an hour in all.

    python tools/bench/all.py                                 # goes on where it was stopped
    python tools/bench/all.py --again --opencv venv/bin/python
    python tools/bench/all.py --only infer --results /tmp/results

Raw figures are JSON files in tools/bench/results, beside machine.json, which says where they were
taken, and tables.md. A net that has its file is not measured again. Nothing else should run.
"""

from __future__ import annotations

import argparse
import json
import platform
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from timing import BenchError

from pycaffe_fire.backend import available_cores, cpu_backend
from pycaffe_fire.backend.host import processor
from pycaffe_fire.errors import FireError
from pycaffe_fire.schema.files import replacing

HERE = Path(__file__).parent
ROOT = HERE.resolve().parents[1]
MODELS = Path("models")  # from there
OURS = "pycaffe_fire"
PACKAGES = ("torch", "onnxruntime", "openvino", "opencv-python-headless", "numba", "numpy")
TRAINED = (
    ("googlenet", 32), ("nin", 32), ("caffenet", 32), ("resnet50", 16), ("vgg16", 8),
    ("squeezenet_v1.1", 32), ("mobilenet_v1", 32),
)  # fmt: skip
INFERRED = ("googlenet", "resnet50", "mobilenet_v1", "squeezenet_v1.1")


@dataclass(frozen=True)
class Job:
    """One run of a bench, and the file that holds its figures."""

    kind: str
    net: str
    arguments: tuple[str, ...]

    def file(self, folder: Path) -> Path:
        return folder / f"{self.kind}_{self.net}.json"


def jobs(options: argparse.Namespace) -> Iterator[Job]:
    threads = ("--threads", str(options.threads))
    if options.only in (None, "train"):
        for net, batch in TRAINED:
            prototxt = str(MODELS / net / "train_val.prototxt")
            race = ("--against", "torch", "--batch", str(batch), "--limit", "100", "--repeat", "3")
            yield Job("train", net, (prototxt, *race, *threads))
    if options.only in (None, "infer"):
        for net in INFERRED:
            prototxt = str(MODELS / net / "deploy.prototxt")
            opencv = str(Path(options.opencv).absolute())
            starts = ("--starts", "2", "--limit", "80", "--repeat", "12", "--opencv", opencv)
            yield Job("infer", net, (prototxt, *starts, *threads))


def machine(threads: int) -> dict[str, Any]:
    """What figures depend on."""
    flags, cpuinfo = set[str](), Path("/proc/cpuinfo")
    for line in cpuinfo.read_text().splitlines() if cpuinfo.exists() else ():
        name, _, value = line.partition(":")
        if name.strip() == "flags":
            flags = {f for f in value.split() if f.startswith(("avx", "amx", "fma"))}
    versions = {}
    for package in PACKAGES:
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            versions[package] = ""
    return {
        "processor": processor(), "instructions": sorted(flags), "cores": available_cores(),
        "threads": threads, "system": platform.platform(), "python": platform.python_version(),
        "backend": cpu_backend(threads).describe(), "versions": versions,
    }  # fmt: skip


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parse(arguments)
    folder = Path(options.results)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _note_machine(folder, options)
        failed = [job for job in jobs(options) if not _done(job, folder, options.again)]
        text = tables(folder)
        _write(folder / "tables.md", text)
    except (BenchError, FireError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print(f"\n{text}")
    for job in failed:
        print(f"error: {job.kind} {job.net} failed; see above", file=sys.stderr)
    return 1 if failed else 0


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", choices=["train", "infer"])
    parser.add_argument("--again", action="store_true", help="measure what has figures, too")
    parser.add_argument("--results", metavar="FOLDER", default=str(HERE / "results"))
    parser.add_argument("--threads", type=int, default=available_cores())
    parser.add_argument("--opencv", metavar="PYTHON", default=sys.executable, help="see infer.py")
    return parser.parse_args(arguments)


def _note_machine(folder: Path, options: argparse.Namespace) -> None:
    """Figures of two machines, or of two libraries, do not belong into one table."""
    file, now = folder / "machine.json", machine(options.threads)
    measured = any(job.file(folder).exists() for job in jobs(options))
    if file.exists() and measured and not options.again and json.loads(file.read_text()) != now:
        raise BenchError(
            f"{folder} has figures of another machine or of other versions (see {file}); give "
            f"--again to measure all of them here, or --results for another folder"
        )
    _write(file, json.dumps(now, indent=1) + "\n")


def _done(job: Job, folder: Path, again: bool) -> bool:
    file = job.file(folder)
    if file.exists() and not again:
        print(f"{file} is there")
        return True
    print(f"\n{job.kind} {job.net}", flush=True)
    bench = str(ROOT / "tools" / "bench" / f"{job.kind}.py")
    command = [sys.executable, bench, *job.arguments, "--json", str(file.resolve())]
    return _measure(command) == 0


def _measure(command: Sequence[str]) -> int:
    return subprocess.run(command, cwd=ROOT, check=False).returncode


def _write(file: Path, text: str) -> None:
    with replacing(str(file), FireError) as temporary:
        temporary.write_text(text)


# Tables.


def tables(folder: Path) -> str:
    """Both tables in Markdown, of the figures that are there."""
    trained = [row for net, _ in TRAINED for row in _train_rows(folder, net)]
    inferred = [row for net in INFERRED for row in _infer_rows(folder, net)]
    parts = []
    if trained:
        head = ("net, batch", "step, ms", "over PyTorch's best", "which is", "peak GB, ours / its")
        parts.append(_table(head, trained))
    if inferred:
        head = ("net, batch", "ms (95 %)", "over the others, by medians", "start s", "peak MB")
        parts.append(_table(head, inferred))
    return "\n\n".join(parts) + "\n"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _read(folder: Path, kind: str, net: str) -> dict[str, Any] | None:
    file = Job(kind, net, ()).file(folder)
    found: dict[str, Any] | None = json.loads(file.read_text()) if file.exists() else None
    return found


def _train_rows(folder: Path, net: str) -> Iterator[list[str]]:
    report = _read(folder, "train", net)
    if report is None:
        return
    mine, best = report["contenders"][OURS], report["best"]
    peaks = [report["contenders"][name]["peak_memory"] / 2**30 for name in (OURS, best)]
    yield [
        f"{net}, {report['batch']}", f"{mine['median']['step'] * 1e3:.0f}",
        f"{report['ratios'][best]['step']:.2f}", best, " / ".join(f"{peak:.2f}" for peak in peaks),
    ]  # fmt: skip


def _infer_rows(folder: Path, net: str) -> Iterator[list[str]]:
    report = _read(folder, "infer", net)
    for batch, figures in (report or {"batches": {}})["batches"].items():
        mine = figures[OURS]
        ratios = [
            f"{name} {each['version']} {each['median'] / mine['median']:.2f}"
            for name, each in figures.items()
            if name != OURS
        ]
        yield [
            f"{net}, {batch}", f"{mine['median'] * 1e3:.1f} ({mine['percentile95'] * 1e3:.1f})",
            ", ".join(ratios), f"{mine['start']:.1f}", f"{mine['peak_memory'] / 2**20:.0f}",
        ]  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
