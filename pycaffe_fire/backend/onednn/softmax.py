"""Softmax as a oneDNN primitive, for inference: it can be a part of a longer program."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from ..blob import Blob
from ..plans import Plan
from .layouts import Descriptor, Program
from .library import FORWARD_TRAINING, SOFTMAX

if TYPE_CHECKING:
    from . import OneDNNBackend


class Softmax(Plan):
    """For blobs that lie alike; the library may have nothing but reference loops for them."""

    joins = True

    def __init__(self, backend: OneDNNBackend, x: Blob, y: Blob, axis: int) -> None:
        library, layout = backend.library, cast(Descriptor, x.value.layout).handle
        backend.use_threads()
        made = library.new(
            "softmax_forward_primitive_desc_create", library.engine, FORWARD_TRAINING, SOFTMAX,
            layout, layout, axis, None,
        )  # fmt: skip
        self.is_slow = library.is_reference(made)
        self._program = Program(backend)
        if self.is_slow:
            library.destroy("primitive_desc", made)
        else:
            self._program.add(made, {"src": x.value, "dst": y.value})

    def program(self) -> Program:
        return self._program

    def forward(self) -> None:
        self._program.run()

    def backward(self) -> None:
        raise NotImplementedError  # for inference only
