"""What leaves and ranks cost and whether they keep their promise of the same bits.

python tools/bench/leaves.py threads  leaves side by side against multi-threaded primitives
python tools/bench/leaves.py ranks    2 ranks against 1, each with one thread and the same batch
python tools/bench/leaves.py bits     the same weights from 1, 2, 3, 4, 8 ranks and 1, 2 threads
"""

from __future__ import annotations

import argparse
import hashlib
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from ranks import run_ranks

from pycaffe_fire import schema
from pycaffe_fire.backend import available_cores, cpu_backend
from pycaffe_fire.errors import FireError, SolverError
from pycaffe_fire.net.graph import filter_net
from pycaffe_fire.net.synthetic import with_synthetic_data
from pycaffe_fire.parallel.measure import with_constant_data
from pycaffe_fire.solver import Solver, SolverOptions

GOOGLENET = Path(__file__).parents[2] / "models" / "googlenet" / "train_val.prototxt"
MOST_COST = 0.03  # of leaves side by side
LEAST_GAIN = 1.9  # of two ranks
RANKS, THREADS, LEAVES = (1, 2, 3, 4, 8), (1, 2), 8


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "what", choices=["threads", "ranks", "bits", "rank-of-ranks", "rank-of-bits"]
    )
    parser.add_argument("--net", default=str(GOOGLENET), help="default: GoogLeNet")
    parser.add_argument("--batch", type=int, default=32, help="samples on each rank")
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--threads", type=int, default=available_cores())
    parser.add_argument("--folder", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    work = {
        "threads": compare_threads, "ranks": start_ranks, "bits": compare_bits,
        "rank-of-ranks": compare_ranks, "rank-of-bits": print_bits,
    }  # fmt: skip
    try:
        return 0 if work[options.what](options) else 1
    except FireError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1


# Speed.


def timed_solver(options: argparse.Namespace, batch: int, threads: int, **how: Any) -> Solver:
    """A solver of the net on constant data; its first iterations are done."""
    net = schema.read_net(options.net)
    net.state.phase = schema.TRAIN
    solver = schema.SolverParameter(base_lr=1e-4, lr_policy="fixed", momentum=0.9, random_seed=1)
    solver.train_net_param.CopyFrom(with_constant_data(with_synthetic_data(filter_net(net)), batch))
    made = Solver(solver, SolverOptions(cpu_backend(threads), 1, share_gradients=True, **how))
    made.step(2)
    return made


def step(solver: Solver) -> float:
    began = time.perf_counter()
    solver.step(1)
    return time.perf_counter() - began


def compare_threads(options: argparse.Namespace) -> bool:
    leaves = 1 << (options.threads - 1).bit_length()
    solvers = [
        timed_solver(options, options.batch, options.threads, leaves=count) for count in (1, leaves)
    ]
    one, several = np.min([[step(s) for s in solvers] for _ in range(options.repeat)], axis=0)
    cost = several / one - 1
    print(
        f"batch {options.batch}, {options.threads} threads: one leaf {one:.3f} s, {leaves} leaves "
        f"side by side {several:.3f} s: {cost:+.1%} (at most {MOST_COST:+.0%})"
    )
    return bool(cost <= MOST_COST)


def start_ranks(options: argparse.Namespace) -> bool:
    flags = ["--net", options.net, "--batch", str(options.batch), "--repeat", str(options.repeat)]
    return not run_ranks(__file__, 2, ["rank-of-ranks", *flags]).returncode


def compare_ranks(options: argparse.Namespace) -> bool:
    """Rank 0 alone and both ranks together, in turns; the idle rank sleeps."""
    from mpi4py import MPI

    from pycaffe_fire.parallel.communicators import COMMUNICATORS

    comm = MPI.COMM_WORLD
    if comm.size != 2:
        raise SolverError("start this as: python tools/bench/leaves.py ranks")
    together = timed_solver(
        options, 2 * options.batch, 1, leaves=2, communicator=COMMUNICATORS["halving"](comm.Dup())
    )
    alone = timed_solver(options, options.batch, 1) if comm.rank == 0 else None
    best = [float("inf")] * 2
    for _ in range(options.repeat):
        if alone is not None:
            best[0] = min(best[0], step(alone))
        request = comm.Ibarrier()
        while not request.Test():
            time.sleep(1e-3)
        best[1] = min(best[1], comm.allreduce(step(together), MPI.MAX))
    best[0] = comm.bcast(best[0])
    gain = 2 * best[0] / best[1]
    if comm.rank == 0:
        print(
            f"batch {options.batch} per rank, 1 thread each: 1 rank {best[0]:.3f} s, 2 ranks "
            f"{best[1]:.3f} s: {gain:.2f} times the samples per second (at least {LEAST_GAIN})"
        )
    return gain >= LEAST_GAIN


# Bits.

NET = """
name: "bits"
layer { name: "data" type: "ImageData" top: "data" top: "label"
  image_data_param { source: "%s/list.txt" root_folder: "%s/" batch_size: 16 shuffle: true }
  transform_param { crop_size: 28 mirror: true scale: 0.01 } }
layer { name: "image" type: "Convolution" bottom: "data" top: "image"
  convolution_param { num_output: 64 kernel_size: 3 weight_filler { type: "msra" } } }
layer { name: "conv" type: "Convolution" bottom: "image" top: "conv"
  convolution_param { num_output: 64 kernel_size: 3 weight_filler { type: "msra" } } }
layer { name: "norm" type: "BatchNorm" bottom: "conv" top: "conv" }
layer { name: "scale" type: "Scale" bottom: "conv" top: "conv" scale_param { bias_term: true } }
layer { name: "relu" type: "ReLU" bottom: "conv" top: "conv" }
layer { name: "drop" type: "Dropout" bottom: "conv" top: "conv" }
layer { name: "ip" type: "InnerProduct" bottom: "conv" top: "ip"
  inner_product_param { num_output: 4 weight_filler { type: "xavier" } } }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip" bottom: "label" top: "loss" }
"""


def compare_bits(options: argparse.Namespace) -> bool:
    """Train a small net with everything that draws numbers on all divisions of the work."""
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        draw_images(Path(folder))
        for ranks in RANKS:
            for threads in THREADS:
                flags = ["rank-of-bits", "--threads", str(threads), "--folder", folder]
                done = run_ranks(__file__, ranks, flags, threads, capture=True)
                if done.returncode:
                    raise SolverError(f"the run on {ranks} ranks failed")
                found[ranks, threads] = done.stdout.split()[-1]
                print(f"{ranks} ranks, {threads} threads: {found[ranks, threads]}", flush=True)
    same = len(set(found.values())) == 1
    print(f"{LEAVES} leaves: {'the same bits everywhere' if same else 'NOT the same bits'}")
    return same


def draw_images(folder: Path) -> None:
    random = np.random.default_rng(7)
    lines = []
    for i in range(48):
        pixels = random.integers(0, 256, (32, 32, 3), np.uint8)
        Image.fromarray(pixels).save(folder / f"{i}.png")
        lines.append(f"{i}.png {i % 4}\n")
    (folder / "list.txt").write_text("".join(lines))


def print_bits(options: argparse.Namespace) -> bool:
    from mpi4py import MPI

    from pycaffe_fire.parallel.communicators import COMMUNICATORS

    comm = MPI.COMM_WORLD
    param = schema.SolverParameter(
        base_lr=0.05, lr_policy="fixed", momentum=0.9, weight_decay=1e-3, random_seed=3,
        clip_gradients=2.0,
    )  # fmt: skip
    schema.parse_text(NET % (options.folder, options.folder), param.net_param)
    ranks = COMMUNICATORS["halving"](comm.Dup())
    solver = Solver(
        param,
        SolverOptions(
            cpu_backend(options.threads), param.random_seed, communicator=ranks, leaves=LEAVES
        ),
    )
    solver.step(10)
    digest = hashlib.sha256()
    for blobs in solver.net.params.values():
        for blob in blobs:
            digest.update(np.ascontiguousarray(blob.data).tobytes())
    everybody = set(comm.allgather(digest.hexdigest()[:16]))
    solver.close()
    if comm.rank == 0:
        print(" ".join(everybody) if len(everybody) == 1 else "ranks-differ", flush=True)
    return len(everybody) == 1


if __name__ == "__main__":
    sys.exit(main())
