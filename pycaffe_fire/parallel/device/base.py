"""What all ways of summing a device's gradients share: the ranks, streams, events."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from ...backend.base import Backend
from ...backend.cuda.streams import event_on, using
from ..communicator import Communicator

if TYPE_CHECKING:
    from ...backend.cuda import CudaBackend


class DeviceCommunicator(Communicator):
    """Sums slices in device memory; `inner` says who the ranks are and carries everything else."""

    def __init__(self, inner: Communicator, backend: Backend) -> None:
        self._inner, self._backend = inner, backend
        self.name, self.rank, self.size = inner.name, inner.rank, inner.size

    @property
    def local_size(self) -> int:
        return self._inner.local_size

    def another(self) -> Communicator:
        return self._inner.another()

    def gather(self, value: Any) -> list[Any]:
        return self._inner.gather(value)

    def gather_now(self, value: Any) -> list[Any]:
        return self._inner.gather_now(value)

    def gather_leaves(self, values: Sequence[float]) -> list[float]:
        """Numbers that are still on the device are read here: others wait for them."""
        return self._inner.gather_leaves([float(value) for value in values])

    def scatter(self, values: Sequence[Any]) -> Any:
        return self._inner.scatter(values)

    def broadcast(self, value: Any) -> Any:
        return self._inner.broadcast(value)

    def abort(self) -> None:
        self._inner.abort()

    def set_status(self, what: str, seconds: float | None = None) -> None:
        self._inner.set_status(what, seconds)


class Streams:
    """A stream for communication beside a backend's own for computing; events order the two."""

    def __init__(self, backend: CudaBackend) -> None:
        self._xp, self._compute = backend.xp, backend.compute
        self.communication = backend.xp.cuda.Stream(non_blocking=True)

    def after_compute(self) -> None:
        """Communication queued from now on sees what is computed by the work queued so far."""
        self.communication.wait_event(event_on(self._xp, self._compute))

    def before_compute(self) -> None:
        """Work queued from now on sees what communication queued so far brings."""
        self._compute.wait_event(event_on(self._xp, self.communication))

    def mark(self) -> Any:
        """An event that is done when all communication queued so far is."""
        return event_on(self._xp, self.communication)

    @contextmanager
    def communicating(self) -> Iterator[None]:
        """What is queued inside belongs to communication."""
        with using(self._xp, self.communication):
            yield
