"""extract_features: blobs of a net over its data as databases of floats, as Caffe's tool."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from contextlib import ExitStack

import numpy as np

from .. import schema
from ..backend.choice import choose_backend
from ..data.datum import encode_datum
from ..data.work import progress
from ..data.writer import DatabaseWriter
from ..errors import BackendError, NetError
from ..pycaffe.net import Net
from ..registry import did_you_mean
from .common import positive
from .gflags import FlagParser, run_tool

COMMANDS = """
  extract_features pretrained_net_param feature_extraction_proto_file
                   blob_name1[,blob_name2,...] save_name1[,save_name2,...]
                   num_mini_batches db_type [CPU|GPU] [DEVICE_ID=0]
  extract_features caffenet.caffemodel train_val.prototxt fc7,prob fc7_lmdb,prob_lmdb 10 lmdb
"""


def _parser() -> FlagParser:
    parser = FlagParser("extract_features", COMMANDS)
    parser.add_argument("weights", help="the trained weights (.caffemodel)")
    parser.add_argument("net", help="the net, whose TEST phase reads the data")
    parser.add_argument("blobs", help="names of blobs, separated by commas")
    parser.add_argument("databases", help="a database to make for each of them")
    parser.add_argument("batches", type=positive, help="how many batches to run")
    parser.add_argument("backend", choices=("lmdb", "leveldb"), help="the kind of database")
    parser.add_argument("mode", nargs="?", default="CPU", help="CPU or GPU")
    parser.add_argument("device", nargs="?", default="0", help="which GPU")
    return parser


def _extract(options: argparse.Namespace) -> None:
    blobs, databases = options.blobs.split(","), options.databases.split(",")
    if len(blobs) != len(databases):
        raise NetError(f"{len(blobs)} blobs, but {len(databases)} databases to save them in")
    if options.mode.upper() not in ("CPU", "GPU"):
        raise BackendError(f'the mode must be CPU or GPU, got "{options.mode}"')
    backend = choose_backend(options.device if options.mode.upper() == "GPU" else None)
    net = Net(options.net, schema.TEST, weights=options.weights, backend=backend)
    try:
        for name in blobs:
            if name not in net.blobs:
                raise NetError(
                    f'no blob "{name}" in {options.net}{did_you_mean(name, list(net.blobs))}; it '
                    f"has: {', '.join(net.blobs)}"
                )
        counts = _run(net, blobs, databases, options)
    finally:
        net.close()
    for database, name, count in zip(databases, blobs, counts, strict=True):
        print(f"{database}: {count:,} features of {name}")


def _run(
    net: Net, blobs: list[str], databases: list[str], options: argparse.Namespace
) -> list[int]:
    counts = [0] * len(blobs)
    with ExitStack() as stack:
        writers = [
            stack.enter_context(DatabaseWriter(database, options.backend)) for database in databases
        ]
        advance = stack.enter_context(progress("extracting", options.batches))
        for _ in range(options.batches):
            net.forward()
            for i, (name, writer) in enumerate(zip(blobs, writers, strict=True)):
                blob = net.blobs[name]
                shape = (blob.num, blob.channels, blob.height, blob.width)
                for row in np.asarray(blob.data, np.float32).reshape(shape):
                    writer.put(b"%010d" % counts[i], encode_datum(row, None))
                    counts[i] += 1
            advance(1)
    return counts


def main(arguments: Sequence[str] | None = None) -> int:
    return run_tool(_parser(), _extract, arguments)


if __name__ == "__main__":
    sys.exit(main())
