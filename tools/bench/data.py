"""Images per second of the data room: 256x256x3 records, 227 crop and mirror, into batches.

python tools/bench/data.py                      raw and JPEG records, 2 threads
python tools/bench/data.py --rounds 9 --threads 1 2 4
python tools/bench/data.py --train models/googlenet/train_val.prototxt
                                                what an iteration takes from LMDB and without data

For JPEG the decoder alone (Pillow opens and decodes each record, on as many threads, and throws it
away) is measured in turn with the loader, so that both see the same machine. The best of all rounds
counts: whatever else runs on the machine only ever takes time away. Every round is a process of its
own, because where libjpeg's working memory happens to lie makes either slower by up to a half.

With --train iterations of a net on all cores are timed: images from LMDB, raw and JPEG, against
constant numbers. Solvers take iterations in turn, and the median of the ratios within turns counts,
so that a machine whose speed changes does not matter. A loader reads ahead as its own iteration
begins and is done before that ends. Beside it stands the processor time that loaders take.
"""

from __future__ import annotations

import argparse
import io
import statistics
import tempfile
import threading
import time
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from PIL import Image

from pycaffe_fire import schema
from pycaffe_fire.backend import cpu_backend, random
from pycaffe_fire.data.datum import encode_datum, image_datum, parse_datum
from pycaffe_fire.data.db import open_database
from pycaffe_fire.data.loader import Loader
from pycaffe_fire.data.order import SequentialOrder, leaf_schedule
from pycaffe_fire.data.source import DatabaseSource
from pycaffe_fire.data.transformer import Transformer
from pycaffe_fire.data.writer import DatabaseWriter
from pycaffe_fire.net.graph import filter_net
from pycaffe_fire.net.synthetic import with_synthetic_data
from pycaffe_fire.parallel.measure import with_constant_data
from pycaffe_fire.schema.proto import NetParameter
from pycaffe_fire.solver import Solver, SolverOptions

SIDE = 256
QUALITY = 90
KEY = random.key(1, "bench")
AHEAD = 6  # batches that a loader may have ready when a turn begins, and some more


def make_image(number: int) -> Image.Image:
    """Smooth patches with some grain: about as hard to decode as a photograph of this size."""
    words = random.bits(KEY, 0, number, 12 * 12 * 3 + SIDE * SIDE * 3 // 4)
    patches = (words[: 12 * 12 * 3] >> 24).astype(np.uint8).reshape(12, 12, 3)
    smooth = Image.fromarray(patches).resize((SIDE, SIDE), Image.Resampling.BICUBIC)
    grain = words[12 * 12 * 3 :].view(np.uint8).reshape(SIDE, SIDE, 3) % 24
    mixed = np.clip(np.asarray(smooth).astype(np.int16) + grain - 12, 0, 255)
    return Image.fromarray(mixed.astype(np.uint8))


def make_databases(folder: Path, records: int) -> None:
    with DatabaseWriter(folder / "raw") as raw, DatabaseWriter(folder / "jpeg") as jpeg:
        for i in range(records):
            image = make_image(i)
            pixels = np.asarray(image)[:, :, ::-1].transpose(2, 0, 1)
            file = io.BytesIO()
            image.save(file, "JPEG", quality=QUALITY)
            raw.put(b"%08d" % i, encode_datum(pixels, i % 1000, encoded=False))
            jpeg.put(b"%08d" % i, image_datum(file.getvalue(), i % 1000))


def loader_rate(path: Path, batch: int, threads: int, seconds: float) -> float:
    """Images per second through source and loader."""
    param = schema.TransformationParameter(crop_size=227, mirror=True, mean_value=[104, 117, 123])
    transformer = Transformer(param, train=True, key=KEY)
    source = DatabaseSource(path, "LMDB", transformer, SequentialOrder())
    with Loader(source, leaf_schedule(batch, 1, [0]), batch, threads=threads) as loader:
        for _ in range(5):  # compile, fault pages in, use up what was prepared in advance
            loader.next()
        began, batches = time.perf_counter(), 0
        while time.perf_counter() - began < seconds:
            loader.next()
            batches += 1
        return batches * batch / (time.perf_counter() - began)


def decoder_rate(path: Path, threads: int, seconds: float) -> float:
    """Images per second of Pillow's decoder on the same records, and nothing else."""
    database = open_database(path)
    files = [bytes(parse_datum(database.record(i), "").data) for i in range(len(database))]
    stop = time.perf_counter() + seconds
    counts = [0] * threads

    def work(number: int) -> None:
        at = number
        while time.perf_counter() < stop:
            Image.open(io.BytesIO(files[at % len(files)])).load()
            at += threads
            counts[number] += 1

    workers = [threading.Thread(target=work, args=(i,)) for i in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return sum(counts) / seconds


def reading(net: NetParameter, database: Path) -> NetParameter:
    """A copy of the net whose TRAIN data come from there."""
    made = schema.NetParameter()
    made.CopyFrom(net)
    for layer in made.layer:
        if layer.type == "Data":
            layer.data_param.source = str(database)
    return made


def training_solver(param: NetParameter) -> Solver:
    """After iterations that plan, and that use up what was read meanwhile."""
    solver = Solver(
        schema.SolverParameter(lr_policy="fixed", base_lr=1e-4, train_net_param=param),
        SolverOptions(cpu_backend(), seed=1),
    )
    solver.step(AHEAD)
    return solver


def loader_seconds() -> float:
    """Processor time of all loaders' threads so far; 0 where the system does not tell."""
    tasks = Path("/proc/self/task")
    loaders = [each for each in threading.enumerate() if each.name.startswith("loader-")]
    files = [tasks / str(each.native_id) / "schedstat" for each in loaders]
    return sum(int(file.read_text().split()[0]) for file in files if file.exists()) / 1e9


class Step(NamedTuple):
    seconds: float
    loading: float  # processor time


def timed_step(solver: Solver) -> Step:
    began, loaded = time.perf_counter(), loader_seconds()
    solver.step(1)
    return Step(time.perf_counter() - began, loader_seconds() - loaded)


def compare_training(path: str, folder: Path, turns: int) -> None:
    """Print what an iteration takes with and without data."""
    net = schema.read_net(path)
    net.state.phase = schema.TRAIN
    net = filter_net(net)
    batch = next(each.data_param.batch_size for each in net.layer if each.type == "Data")
    nets = {
        "constant numbers": with_constant_data(with_synthetic_data(net), batch),
        "raw records": reading(net, folder / "raw"),
        "JPEG records": reading(net, folder / "jpeg"),
    }
    solvers = {name: training_solver(param) for name, param in nets.items()}
    taken = [{name: timed_step(each) for name, each in solvers.items()} for _ in range(turns)]
    print(f"{net.name}, batch {batch}, all cores: ms per iteration (medians of {turns} turns)")
    for name in nets:
        step = 1e3 * statistics.median(turn[name].seconds for turn in taken)
        loading = 1e3 * statistics.median(turn[name].loading for turn in taken)
        more = [turn[name].seconds / turn["constant numbers"].seconds - 1 for turn in taken]
        print(f"  {name:<17}{step:8.0f}{statistics.median(more):+8.1%}"
              f"  (loading takes {loading:.1f} ms of a processor)")  # fmt: skip
    for solver in solvers.values():
        solver.close()


class Rates(NamedTuple):
    """Images per second."""

    raw: float
    jpeg: float
    decoder: float


def measure(folder: Path, batch: int, threads: int, seconds: float) -> Rates:
    """One round."""
    return Rates(
        loader_rate(folder / "raw", batch, threads, seconds),
        loader_rate(folder / "jpeg", batch, threads, seconds),
        decoder_rate(folder / "jpeg", threads, seconds),
    )


def measure_rounds(rounds: int, *arguments: Any) -> list[Rates]:
    with get_context("spawn").Pool(1, maxtasksperchild=1) as processes:
        return [processes.apply(measure, arguments) for _ in range(rounds)]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--records", type=int, default=400)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--threads", type=int, nargs="+", default=[2])
    parser.add_argument("--seconds", type=float, default=1.0, help="of one measurement")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--train", metavar="NET", help="time iterations of this train_val.prototxt")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        make_databases(folder, options.records)
        if options.train:
            compare_training(options.train, folder, options.rounds)
            return
        batch, seconds = options.batch, options.seconds
        for threads in options.threads:
            taken = measure_rounds(options.rounds, folder, batch, threads, seconds)
            raw, jpeg, decoder = (max(values) for values in zip(*taken, strict=True))
            middle = statistics.median(each.jpeg / each.decoder for each in taken)
            print(f"{threads} threads, 256x256x3 -> 227 crop and mirror, images/s:")
            print(f"  raw {raw:,.0f}")
            print(f"  JPEG {jpeg:,.0f}; the decoder alone {decoder:,.0f} ({jpeg / decoder:.0%}; "
                  f"within a round {middle:.0%} in the median)")  # fmt: skip


if __name__ == "__main__":
    main()
