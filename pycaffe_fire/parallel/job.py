"""The ranks of one job: are there others, how do we talk, do we all mean the same, who fails.

Nothing here imports MPI unless a launcher started several ranks.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import secrets
import socket
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from ..errors import FireError, SolverError
from ..installation import install_hint
from ..registry import did_you_mean
from .communicator import Communicator, SerialCommunicator
from .communicators import COMMUNICATORS
from .communicators.wire import WIRES
from .division import power_of_two
from .ending import ending_after
from .guardian import first_to_fail
from .hosts import numbered_by_host
from .monitor import tell_of_loss
from .tree import Node, places
from .waiting import FINALIZING_PATIENCE, JOINING_PATIENCE, PeerTimeout

DEFAULT, NCCL, AUTO = "halving", "nccl", "auto"
# Seconds: where many ranks fail alike, the first of them speaks and ends the job before others do.
GRACE, MOST_GRACES = 1.0, 5
SHARED_MEMORY = "/dev/shm/mpich_shm_"
TRIALS = 3  # per candidate of --communicator auto
TRIAL_ELEMENTS = 1 << 20

# How launchers tell a process the number of ranks: MPICH and Intel, Open MPI, PMIx.
SIZE_VARIABLES = ("PMI_SIZE", "OMPI_COMM_WORLD_SIZE", "PMIX_SIZE")
# Slurm says how many tasks a step has, MPI or not; only with PMI can they find each other.
# torchrun, and whatever starts processes for it, says this, and has no MPI.
TORCH_SIZE, TORCH_RANK = "WORLD_SIZE", "RANK"
# How the libraries begin their version whose own launcher speaks PMI, not PMIx.
PMI_LIBRARIES = ("MPICH", "MVAPICH", "Intel")
STEP_SIZE, PMI_PREFIXES = "SLURM_STEP_NUM_TASKS", ("PMI_", "PMI2_", "PMIX_", "PALS_")


def ranks_started() -> int:
    """How many ranks the launcher started; 1 if there was none.

    A plain process inside a Slurm allocation is alone. Tasks of srun or torchrun that cannot find
    each other would train the same net side by side and overwrite each other's files: that is an
    error.
    """
    for variable in SIZE_VARIABLES:
        value = os.environ.get(variable, "")
        if value.isdecimal():
            return int(value)
    workers = os.environ.get(TORCH_SIZE, "")
    if workers.isdecimal() and int(workers) > 1 and TORCH_RANK in os.environ:
        raise SolverError(
            f"{workers} processes were started as torchrun does it ({TORCH_SIZE}={workers}), but "
            f"ranks find each other by MPI: say fire_train -n {workers} once instead, or mpiexec "
            f"-n {workers} fire_train"
        )
    tasks = os.environ.get(STEP_SIZE, "")
    if not tasks.isdecimal() or int(tasks) == 1:
        return 1
    if not any(name.startswith(PMI_PREFIXES) for name in os.environ):
        raise SolverError(
            f"srun started {tasks} tasks, but gave them no means to find each other; say "
            f"srun --mpi=pmi2 (srun --mpi=list shows what there is), or srun -n 1 for one process"
        )
    return int(tasks)


def check_names(communicator: str, wire: str) -> None:
    """Refuse names that no rank will know, before any is started."""
    known = sorted([AUTO, NCCL, *COMMUNICATORS])
    if communicator and communicator not in known:
        raise SolverError(
            f'unknown communicator "{communicator}"{did_you_mean(communicator, known)}; known: '
            f"{', '.join(known)}"
        )
    WIRES[wire]


def world() -> Any:
    """MPI's communicator of all ranks that were started; None for a process that is alone."""
    started = ranks_started()
    if started == 1:
        return None
    try:
        import mpi4py

        mpi4py.rc.initialize, mpi4py.rc.finalize = False, True  # a library that does not fit aborts
        from mpi4py import MPI
    except (ImportError, RuntimeError) as error:
        raise SolverError(
            f"{started} ranks were started, but MPI cannot be used ({error}); install "
            f"it with {install_hint('mpi')}, or pip install mpi4py for a system MPI"
        ) from error
    _check_launcher(started, MPI.Get_library_version())
    if not MPI.Is_initialized():
        MPI.Init_thread()
    comm = MPI.COMM_WORLD
    if comm.Get_size() != started:
        library = MPI.Get_library_version().splitlines()[0].rstrip("\0")
        raise SolverError(
            f"{started} ranks were started, but MPI sees {comm.Get_size()}: the launcher is not "
            f"that of the MPI library in use ({library}). Start the ranks with fire_train -n, with "
            f"the mpiexec beside this Python, or with srun --mpi=pmi2 or pmix as the library wants"
        )
    return comm


def _check_launcher(started: int, library: str) -> None:
    """Refuse a launcher that this MPI library is known not to understand."""
    speaks_pmi, slurm = library.startswith(PMI_LIBRARIES), STEP_SIZE in os.environ
    if speaks_pmi and "OMPI_COMM_WORLD_SIZE" in os.environ:
        launcher = "Open MPI's mpiexec"
    elif library.startswith("Open MPI") and "PMI_SIZE" in os.environ and not slurm:
        launcher = "an mpiexec of MPICH's family"
    elif (
        library.startswith("MPICH")
        and "pmix" not in library.lower()
        and os.environ.get("SLURM_MPI_TYPE", "").startswith("pmix")
    ):
        launcher = "srun --mpi=pmix"
    else:
        return
    name = library.splitlines()[0].rstrip("\0")
    say = "srun --mpi=pmi2" if slurm else f"fire_train -n {started}, or the mpiexec of that library"
    raise SolverError(
        f"{launcher} started {started} ranks, but the MPI library in use is another one and cannot "
        f"find them ({name}); say {say}"
    )


def join(communicator: str = "", wire: str = "float32") -> Communicator:
    """This process's communicator: serial when alone, else one over MPI.

    Ranks of a host are neighbours, however they were placed. Without a name it is DEFAULT, or on
    GPUs whatever suits them (see `device.adapted`).
    """
    check_names(communicator, wire)
    late = f"not all ranks have started within {JOINING_PATIENCE:.0f} s, so this one ends"
    with ending_after(JOINING_PATIENCE, late):
        comm = world()
        if comm is None:
            return SerialCommunicator()
        started_as = comm.Get_rank()
        comm = numbered_by_host(comm)
        trials = _trials(comm, wire) if communicator == AUTO else {}
        if trials:
            name = min(trials, key=lambda name: trials[name])
        else:
            name = DEFAULT if communicator in ("", NCCL) else communicator
        joined = COMMUNICATORS[name](comm.Dup(), wire)
        _forget_shared_names(comm)
        job = comm.bcast(secrets.token_hex(8))
    joined.job, joined.trials = job, trials
    joined.started_as = started_as
    joined.wanted = "" if communicator == AUTO else communicator
    return joined


@contextmanager
def joined(communicator: str, wire: str, what: str) -> Iterator[Communicator]:
    """`join`, and MPI's end after what runs inside."""
    ranks, done = join(communicator, wire), False
    try:
        yield ranks
        done = True
    finally:
        if ranks.size > 1:
            _finalize(f"{what}: rank {ranks.rank} on {socket.gethostname()}", done)


def _finalize(who: str, done: bool) -> None:
    """Wait for all ranks if this one is `done`, not failed, since not every MPI does so here.

    mpi4py, or the process when it ends, would keep the interpreter to itself while MPI ends, so
    that no thread could end the wait.
    """
    from mpi4py import MPI

    late = f"not all ranks have ended {FINALIZING_PATIENCE:.0f} s after this one, so it ends alone"
    with ending_after(FINALIZING_PATIENCE, f"{who}: {late}"):
        if done:
            MPI.COMM_WORLD.Barrier()
        ctypes.CDLL(MPI.__file__).MPI_Finalize()


def _forget_shared_names(comm: Any) -> None:
    """Remove the names of the memory that MPICH's ranks share, now that all have mapped it.

    However the ranks end, the memory is then given back.
    """
    comm.Barrier()
    with suppress(OSError):
        with open("/proc/self/maps") as maps:
            names = {line.split()[-1] for line in maps if SHARED_MEMORY in line}
        for name in names:
            with suppress(OSError):
                os.unlink(name)
    comm.Barrier()


def _trials(comm: Any, wire: str) -> dict[str, float]:
    """Seconds that each communicator takes for a sum of TRIAL_ELEMENTS, measured now; the same on
    all ranks."""
    best = {}
    for name in COMMUNICATORS:
        candidate = COMMUNICATORS[name](comm.Dup(), wire)
        leaves = power_of_two(candidate.size)
        own = places(candidate.own_leaves(leaves), leaves)
        nodes = [Node(*place, candidate.buffer(TRIAL_ELEMENTS)) for place in own]
        times = []
        for _ in range(TRIALS):
            comm.Barrier()
            began = time.perf_counter()
            candidate.all_sum(nodes)
            times.append(time.perf_counter() - began)
        best[name] = max(comm.allgather(min(times)))
    return best


@contextmanager
def failing_together(communicator: Communicator, what: str) -> Iterator[None]:
    """An error in one rank ends the whole job, with one message that names the rank."""
    try:
        yield
    except BaseException as error:
        if communicator.size == 1 or isinstance(error, SystemExit):
            raise
        time.sleep(GRACE * min(communicator.rank, MOST_GRACES))
        if _is_symptom(error):
            time.sleep(GRACE * MOST_GRACES)
        if not first_to_fail(communicator.job):
            time.sleep(GRACE * MOST_GRACES)  # the first speaks, and ends the job
        elif isinstance(error, KeyboardInterrupt):
            print(f"{what}: interrupted, nothing half-written is left", file=sys.stderr, flush=True)
        elif not _monitor_speaks(error):
            tell_of_loss(communicator.rank, socket.gethostname(), "failed", told=True)
            text = (
                str(error) if isinstance(error, FireError) else f"{type(error).__name__}: {error}"
            )
            print(
                f"{what}: rank {communicator.rank} on {socket.gethostname()} failed "
                f"({communicator.doing}): {text}",
                file=sys.stderr,
                flush=True,
            )
        communicator.abort()


def _is_symptom(error: BaseException) -> bool:
    """MPI fails in those who talk to a rank that died: who watches that one is quicker."""
    return type(error).__module__.partition(".")[0] == "mpi4py"


def _monitor_speaks(error: BaseException) -> bool:
    """A rank that does not answer is lost, not we; the monitor knows what it did last."""
    if not isinstance(error, PeerTimeout) or not error.silent:
        return False
    rank, host = error.silent[0]
    return tell_of_loss(rank, host, f"has not answered for {error.seconds:.0f} s", told=False)


def check_alike(communicator: Communicator, facts: Callable[[], dict[str, str]]) -> None:
    """Refuse to train where ranks differ in anything that must be the same; `facts` are texts."""
    if communicator.size == 1:
        return
    digests = {name: hashlib.sha256(text.encode()).hexdigest() for name, text in facts().items()}
    everyone: Sequence[dict[str, str]] = communicator.gather(digests)
    hosts = communicator.gather(socket.gethostname())
    problems = []
    for name, digest in everyone[0].items():
        others = [r for r, theirs in enumerate(everyone) if theirs.get(name) != digest]
        if others:
            names = ", ".join(f"{r} ({hosts[r]})" for r in others)
            problems.append(f"{name} differs between rank 0 ({hosts[0]}) and rank {names}")
    if problems:
        raise SolverError("; ".join(problems) + ". All ranks must see the same files and versions")
