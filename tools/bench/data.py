"""Images per second of the data room: raw 256x256x3 records, 227 crop and mirror, into batches.

python tools/bench/data.py                 1 and 2 threads, 400 records
python tools/bench/data.py --seconds 10 --threads 1 2 4
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np

from pycaffe_fire.backend import random
from pycaffe_fire.data.datum import encode_datum
from pycaffe_fire.data.loader import Loader
from pycaffe_fire.data.order import SequentialOrder, leaf_schedule
from pycaffe_fire.data.source import DatabaseSource
from pycaffe_fire.data.transformer import Transformer
from pycaffe_fire.data.writer import DatabaseWriter


def make_database(path: Path, records: int) -> None:
    """Random pictures; their content does not matter to the speed."""
    key = random.key(1, "bench")
    with DatabaseWriter(path) as writer:
        for i in range(records):
            pixels = random.bits(key, 0, i, 3 * 256 * 256 // 4).view(np.uint8)
            writer.put(b"%08d" % i, encode_datum(pixels.reshape(3, 256, 256), i % 1000))


def measure(path: Path, batch: int, threads: int, seconds: float) -> float:
    """Images per second through source and loader."""
    param = SimpleNamespace(
        crop_size=227, mirror=True, mean_value=[104, 117, 123], mean_file="", scale=1.0,
        force_color=False, force_gray=False,
    )  # fmt: skip
    transformer = Transformer(param, train=True, key=random.key(1, "bench"))
    source = DatabaseSource(path, "LMDB", transformer, SequentialOrder())
    with Loader(source, leaf_schedule(batch, 1, [0]), batch, threads=threads) as loader:
        for _ in range(5):  # compile, fault pages in
            loader.next()
        began, batches = time.perf_counter(), 0
        while time.perf_counter() - began < seconds:
            loader.next()
            batches += 1
        return batches * batch / (time.perf_counter() - began)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--records", type=int, default=400)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--seconds", type=float, default=3.0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "bench_lmdb"
        make_database(path, options.records)
        for threads in options.threads:
            rate = measure(path, options.batch, threads, options.seconds)
            print(f"raw 256x256x3 -> 227 crop+mirror, {threads} threads: {rate:,.0f} images/s")


if __name__ == "__main__":
    main()
