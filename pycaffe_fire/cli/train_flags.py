"""The flags of fire_train, in groups by what they are about."""

from __future__ import annotations

import argparse
from collections.abc import Callable

from ..backend.choice import FP32, ON_CPU, ON_GPU, TF32
from ..errors import SolverError
from ..parallel.communicators import COMMUNICATORS
from ..parallel.communicators.wire import WIRES
from ..parallel.job import DEFAULT
from ..parallel.launch import STOPPED
from ..solver.health import NAN_POLICIES
from ..solver.large_batch import EPOCHS, ITERATIONS, PER_RANK
from ..solver.signals import DEFAULT_EFFECTS, EFFECTS
from .common import Parser, image_shape, positive, whole
from .demo import DEMOS

COMMANDS = """
  fire_train --demo lenet                                      try it: draws its data and trains
  fire_train --solver models/lenet/solver.prototxt             all cores of this machine
  fire_train -n 4 --solver models/lenet/solver.prototxt        four ranks on this machine
  mpiexec -n 8 fire_train --solver ...                         as your cluster does it;
  srun --mpi=pmi2 fire_train --solver ... --snapshot auto      tools/deploy has scripts
"""

# Flags that mean something only beside another one, with what to say where that is missing.
NEEDED = (
    ("out", "demo", "--demo lenet: a solver's own paths say where its files go"),
    ("allow_empty_weights", "weights", "--weights FILES"),
    ("stop_after", "keep_best", "--keep-best METRIC: which output is to improve?"),
    ("scale_lr", "batch", "--batch: the rate is scaled with the batch"),
    ("schedule", "batch", "--batch: what is to stay as it is when the batch changes?"),
    ("warmup", "scale_lr", "--scale-lr: to which rate should it rise?"),
    ("hosts", "ranks", "-n RANKS; where mpiexec or srun starts them, tell it the hosts"),
    ("hostfile", "ranks", "-n RANKS; where mpiexec or srun starts them, tell it the hosts"),
    ("restarts", "ranks", "-n RANKS: only what starts the ranks can start them again"),
)

Flag = Callable[..., object]


def parser() -> Parser:
    made = Parser("fire_train", COMMANDS)
    made.add_argument("--as", dest="prog", default=made.prog, help=argparse.SUPPRESS)
    for title, example, add in (
        ("what to train", "--solver my/solver.prototxt --weights old.caffemodel", _add_run_flags),
        ("data", "--solver models/googlenet/solver.prototxt --synthetic", _add_data_flags),
        ("this machine", "--solver models/lenet/solver.prototxt --threads 4", _add_machine_flags),
        ("several ranks", "-n 8 --hosts a,b --restarts 3 --solver ...", _add_rank_flags),
        ("the batch", "-n 4 --batch per-rank --scale-lr linear --solver ...", _add_batch_flags),
        ("snapshots", "--solver ... --snapshot auto --keep 3 --keep-best accuracy",
         _add_keeping_flags),
        ("when something happens", "--solver ... --on-nan rollback", _add_event_flags),
        ("what it shows", "--solver ... --quiet --tensorboard runs/board", _add_report_flags),
    ):  # fmt: skip
        add(made.add_argument_group(title, f"fire_train {example}").add_argument)
    return made


def check_company(options: argparse.Namespace) -> None:
    """Refuse flags that mean nothing without another one."""
    if bool(options.solver) == bool(options.demo):
        raise SolverError("give --solver FILE, the solver prototxt, or --demo lenet to try it out")
    if options.hosts and options.hostfile:
        raise SolverError("give --hosts or --hostfile, not both")
    for flag, needed, reason in NEEDED:
        if getattr(options, flag) and not getattr(options, needed):
            raise SolverError(f"--{flag.replace('_', '-')} needs {reason}")


def _add_run_flags(flag: Flag) -> None:
    flag("--solver", metavar="FILE", help="the solver prototxt")
    flag(
        "--demo", choices=list(DEMOS), metavar="NAME",
        help=f"draw the data of a model that came along and train it: {', '.join(DEMOS)}",
    )  # fmt: skip
    flag("--out", metavar="DIR", help="with --demo: the folder for its files (default: this one)")
    flag(
        "--weights", metavar="FILES",
        help="fine-tune: copy weights by layer name from these .caffemodels, separated by commas",
    )  # fmt: skip
    flag(
        "--ignore-mismatch", action="store_true",
        help="with --weights: copy what fits and leave out, with a warning, what does not",
    )  # fmt: skip
    flag(
        "--allow-empty-weights", action="store_true",
        help="with --weights: go on where no layer of the net has a name of the file's",
    )  # fmt: skip
    flag(
        "--iterations", type=positive, metavar="N",
        help="train as if max_iter said N (Caffe's train takes this flag, but ignores it)",
    )  # fmt: skip
    flag("--level", type=int, default=0, metavar="N", help="the net state's level")
    flag("--stage", default="", metavar="NAMES", help="the net state's stages, separated by commas")
    flag(
        "--allow-python-layers", action="store_true",
        help="import the modules that the net's Python layers name: they run as your own code",
    )  # fmt: skip
    flag(
        "--output-folder", default="", metavar="DIR",
        help="a folder in which the net's layers may write, besides the working directory",
    )  # fmt: skip


def _add_data_flags(flag: Flag) -> None:
    flag(
        "--synthetic", nargs="?", const=(), type=image_shape, metavar="C,H,W",
        help="made-up data in place of the data layers; C,H,W where they have no crop_size",
    )  # fmt: skip
    flag("--shuffle", action="store_true", help="read the training data in a new order every epoch")
    flag(
        "--bad-records", choices=["fail", "skip"], default="fail",
        help="a record that cannot be used ends the run (default), or is skipped",
    )  # fmt: skip


def _add_machine_flags(flag: Flag) -> None:
    flag(
        "--threads", type=positive, metavar="N",
        help="CPU threads of each rank (default: OMP_NUM_THREADS; else the cores it is bound to, "
        "shared with ranks that are bound to the same, at most SLURM_CPUS_PER_TASK)",
    )  # fmt: skip
    flag(
        "--leaves", type=positive, metavar="L",
        help="cut the batch into L equal parts that run side by side; results depend on L, but "
        "not on threads or ranks (default: 1, or what the resumed run had; on several ranks as "
        "few as keep all of them busy)",
    )  # fmt: skip
    flag(
        "--gpu", metavar="ID",
        help="a GPU's number; several (0,2) or all, one for each process on this host; auto: a GPU "
        "if one works, else the CPU (default: what solver_mode says, as auto)",
    )  # fmt: skip
    flag(
        "--cudnn", action=argparse.BooleanOptionalAction,
        help="convolutions by cuDNN, or by our kernels (default: cuDNN where it loads)",
    )  # fmt: skip
    flag(
        "--math", choices=[FP32, TF32], default=FP32,
        help="how a GPU multiplies float32 numbers: exactly (default, as Caffe does), or rounded "
        "to 11 bits, which tensor cores do several times as fast",
    )  # fmt: skip
    flag(
        "--precision", choices=["float32", "bfloat16", "float16"], default="float32",
        help="how a GPU stores blobs, where the net does not say: 16 bits halve the memory and use "
        "tensor cores; weights stay float32, and float16 scales its losses by itself. On a CPU "
        "with avx512_bf16 or AMX bfloat16 is what convolutions and products multiply",
    )  # fmt: skip
    flag(
        "--jpeg", choices=[ON_CPU, ON_GPU], default=ON_CPU,
        help="who decodes JPEGs of Data and ImageData layers: the CPU (default, Caffe's pixels) or "
        "the GPU by nvImageCodec, whose pixels differ a little",
    )  # fmt: skip
    flag(
        "--time-plans", action="store_true",
        help="time cuDNN's best plans for each convolution and keep the fastest for this device, "
        "for later runs too; bits differ from those of cuDNN's own choice. Ranks take what a run "
        "of one process has timed before",
    )  # fmt: skip
    flag(
        "--cuda-graph", action=argparse.BooleanOptionalAction,
        help="record an iteration on the GPU and replay it, or do not (default: where that can be)",
    )  # fmt: skip


def _add_keeping_flags(flag: Flag) -> None:
    flag(
        "--snapshot", metavar="FILE",
        help="resume from this .solverstate; auto: from the newest complete one, if there is any",
    )  # fmt: skip
    flag(
        "--keep", type=_snapshots, metavar="N", help="keep the last N snapshots, delete older ones"
    )
    flag(
        "--keep-best", metavar="METRIC",
        help="keep a snapshot PREFIX_best of the best test result. METRIC is an output of a test "
        "net: a loss or error (lowest) or, say, accuracy (highest); min:NAME or max:NAME decide",
    )  # fmt: skip
    flag(
        "--stop-after", type=positive, metavar="N",
        help="stop when N tests in a row have not improved --keep-best's METRIC",
    )  # fmt: skip


def _add_event_flags(flag: Flag) -> None:
    for name, effect in DEFAULT_EFFECTS.items():
        flag(
            f"--{name}_effect", choices=list(EFFECTS), default=effect,
            help=f"what {name.upper()} does (default: {effect}); stopping leaves a snapshot, and "
            f"the exit status is {STOPPED}",
        )  # fmt: skip
    flag(
        "--on-nan", choices=list(NAN_POLICIES), default="stop",
        help="on NaN or infinity in the loss or gradients: end the run (default); skip the "
        "iteration; roll back to the last snapshot and go on with half the rate",
    )  # fmt: skip


def _add_report_flags(flag: Flag) -> None:
    flag("--log", action="store_true", help="Caffe's log lines on a terminal, too")
    flag(
        "--verbose", action="store_true",
        help="with the log lines: also the solver and every layer of the nets, as Caffe logs them",
    )  # fmt: skip
    flag(
        "--quiet", action="store_true",
        help="show warnings, errors and the result alone (GLOG_minloglevel=2: no warnings either)",
    )  # fmt: skip
    flag(
        "--times", action="store_true",
        help="show where time goes, with a line for each rank, and log it with every display",
    )  # fmt: skip
    flag(
        "--trace", metavar="FILE.json",
        help="write what every rank did when in one of the first iterations, layer by layer, as a "
        "trace for chrome://tracing or Perfetto",
    )  # fmt: skip
    flag(
        "--tensorboard", metavar="DIR",
        help="write event files for TensorBoard to this folder (a JSON log is always written: "
        "PREFIX_log.jsonl beside the snapshots; see fire_plot)",
    )  # fmt: skip
    flag(
        "--summary", action="store_true",
        help="show the net's layers, shapes, parameters, memory and GFLOPs, and train nothing",
    )  # fmt: skip
    flag(
        "--check", action="store_true",
        help="train nothing: build all nets, read one batch, try the weights, and list every "
        "problem of the project",
    )  # fmt: skip
    flag(
        "--board", action="store_true",
        help="start fire_board on the run's folder beside the run; it ends with it",
    )  # fmt: skip


def _add_rank_flags(flag: Flag) -> None:
    same_bits = ", ".join(name for name in COMMUNICATORS if COMMUNICATORS[name].canonical)
    flag("-n", "--ranks", type=positive, metavar="P", help="start P ranks")
    flag(
        "--hosts", default="", metavar="NAMES",
        help="hosts for the ranks, names or addresses, separated by commas; neighbouring ranks go "
        "to the same host, as many to each, or as NAME:SLOTS says",
    )  # fmt: skip
    flag(
        "--hostfile", metavar="FILE",
        help="hosts for the ranks, one per line: NAME, NAME:SLOTS or NAME slots=SLOTS",
    )  # fmt: skip
    flag(
        "--restarts", type=whole, default=0, metavar="N",
        help="if a rank fails, go on up to N times from the newest snapshot with those left; a "
        "host that is lost takes all its ranks, a rank only itself",
    )  # fmt: skip
    flag(
        "--communicator", default="", metavar="NAME",
        help=f"how ranks sum gradients: {', '.join(COMMUNICATORS)} (default: {DEFAULT}); nccl "
        "(default where each rank has a GPU); auto measures. The same bits on any number of "
        f"ranks: {same_bits}",
    )  # fmt: skip
    flag(
        "--gradients", choices=list(WIRES), default="float32",
        help="gradients on the wire (default: float32)",
    )  # fmt: skip


def _add_batch_flags(flag: Flag) -> None:
    flag(
        "--batch", type=_batch, metavar="SIZE",
        help="the global batch instead of the prototxt's; per-rank: the prototxt's, times ranks",
    )  # fmt: skip
    flag(
        "--sync-bn", action="store_true",
        help="BatchNorm layers take the statistics of the whole batch, not those of each leaf, as "
        "with batch_norm_param { sync: true }",
    )  # fmt: skip
    flag(
        "--scale-lr", choices=["linear", "sqrt"],
        help="with --batch: scale the learning rate with the batch, or with its square root",
    )  # fmt: skip
    flag(
        "--warmup", type=whole, metavar="N",
        help="with --scale-lr: rise to the scaled rate over N iterations (default: 5 %% of all)",
    )  # fmt: skip
    flag(
        "--schedule", choices=[EPOCHS, ITERATIONS],
        help="with --batch: what stays. epochs: max_iter, steps of the rate, intervals of tests, "
        "snapshots and displays come after as many samples as before (default); iterations: they "
        "stay as written (default of --batch per-rank without --scale-lr, as in BVLC Caffe)",
    )  # fmt: skip


def _batch(text: str) -> int | str:
    return text if text == PER_RANK else positive(text)


def _snapshots(text: str) -> int:
    if text in (EPOCHS, ITERATIONS):
        raise argparse.ArgumentTypeError(
            f"is for snapshots; what --batch keeps is said by --schedule {text}"
        )
    return positive(text)
