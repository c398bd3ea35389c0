"""pycaffe's NCCL object on our communicators: scripts of several solvers run as an MPI job.

caffe.set_solver_count(n), set_solver_rank(i)   # before the solver is made
solver = caffe.SGDSolver(file)
nccl = caffe.NCCL(solver, uid)
nccl.bcast()
solver.add_callback(nccl)

Solvers that know of each other sum their gradients by themselves, bucket by bucket while backward
runs, so there is nothing left to do in the callbacks.
"""

from __future__ import annotations

import importlib.util
import sys
import uuid
from types import TracebackType

from ..backend.cuda.device import probe
from ..errors import SolverError
from ..parallel.communicator import Communicator
from ..parallel.job import join, ranks_started
from ..schema.proto import SolverParameter
from ..solver import Solver, SolverOptions
from ..solver.run import rank_options
from .settings import default_backend, seed_for, solver_count, solver_rank


def has_nccl() -> bool:
    """Can solvers of several processes, each on a GPU of its own, train together?

    Solvers on CPUs train together by MPI whatever this says.
    """
    return importlib.util.find_spec("mpi4py") is not None and probe().devices > 0


class NCCL:
    """The other solvers of the job, as `solver` sees them."""

    def __init__(self, solver: Solver, uid: bytes | str = b"") -> None:
        self._solver, self._ranks = solver, solver.communicator
        if ranks_started() > 1 and self._ranks.size == 1:
            raise SolverError(
                f"{ranks_started()} processes were started, but this solver trains alone; call "
                f"set_solver_count({ranks_started()}) and set_solver_rank before making it"
            )

    @staticmethod
    def new_uid() -> bytes:
        """A name for a group of solvers. (Ours find each other by the job they belong to.)"""
        return uuid.uuid4().hex.encode()

    def bcast(self) -> None:
        """Give every solver the weights of the first."""
        for parameter in self._solver.net.parameters.items:
            weights = parameter.blob.value.host
            weights[...] = self._ranks.broadcast(weights)

    def __call__(self, layer: int = 0) -> None:
        """As a net's after_backward: the solver sends that layer's gradients already."""


def job_options(param: SolverParameter) -> SolverOptions:
    """How a solver runs that trains together with others (set_solver_count)."""
    count, rank = solver_count(), solver_rank()
    if ranks_started() != count:
        raise SolverError(
            f"set_solver_count({count}) was called, but {ranks_started()} process(es) were "
            f"started; run one process per solver: mpiexec -n {count} python your_script.py"
        )
    ranks = join()
    if ranks.started_as != rank:
        raise SolverError(
            f"set_solver_rank({rank}) was called in process {ranks.started_as} of {ranks.size}; "
            f"give every process its own number, as the launcher has it"
        )
    _fail_together(ranks)
    return rank_options(ranks, seed_for(param.random_seed), default_backend)


def _fail_together(ranks: Communicator) -> None:
    """An error that ends this process must end the others, which would wait for it."""
    show = sys.excepthook

    def hook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        show(kind, error, trace)
        sys.stderr.flush()
        ranks.abort()

    sys.excepthook = hook
