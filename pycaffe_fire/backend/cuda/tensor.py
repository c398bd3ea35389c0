"""Tensors in device memory, with a host copy for code outside.

The states of a tensor serve once more: NATIVE is the device's copy, PLAIN the host's. Layers see
device arrays; `host` hands out a NumPy array that may be written in place, as pycaffe's users do.

A tensor may be stored in 16 bits, with its channels last, or as a guest in the memory of a larger
one, of which it is a part (`home`). Plans that know about this take it as it lies (`read`,
`write`). All others get flat memory in the order of its shape (`source`, `target`), and so does
array code, as float32 (`array`): copies where need be, which are kept and made again when the value
has changed, and stored again when their layer has run (Backend.write_back). So weights have a
16-bit copy beside them.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ..blob import Blob, BlobView
from ..tensor import FLOAT32, NATIVE, PLAIN, ZERO, Array, ChannelsLast, Layout, Tensor
from .kept import Kept
from .launch import KINDS, words
from .layouts import Order, Rows, rearrange, shared_width

if TYPE_CHECKING:
    from . import CudaBackend
    from .weight_copies import WeightCopies


class Rectifier(NamedTuple):
    """A ReLU that a gradient has yet to go back through."""

    sign: Tensor  # has the sign of the ReLU's input
    slope: float


class CudaTensor(Tensor):
    """A value in device memory.

    A gradient may wait for its way back through a ReLU in place, because the layer below can often
    do that in a pass of its own (take_relu); who else reads it finds it done.
    """

    backend: CudaBackend
    home: CudaTensor | None

    def __init__(self, backend: CudaBackend, shape: Sequence[int]) -> None:
        self._view: Array | None = None  # given to array code, and the value while it is there
        # Memory that a plan writes instead of its own, and whether channels are last there.
        self._stand_in: tuple[Rows, bool] | None = None
        self._copies: dict[tuple[str, bool], Kept] = {}
        self._valid: set[tuple[str, bool]] = set()  # copies that hold the value
        self._relu: Rectifier | None = None
        self._zeros = False  # is the memory known to hold zeros?
        self.movable = False  # can the plans that write it do so in the memory of another?
        self.guests: weakref.WeakSet[CudaTensor] = weakref.WeakSet()
        self._column, self._outlives = 0, True
        self._weight_copies: WeightCopies | None = None  # of the net whose weight this is
        super().__init__(backend, shape)

    @property
    def fresh(self) -> int:
        return self._fresh

    @fresh.setter
    def fresh(self, state: int) -> None:
        """Code that says where the value is has changed it."""
        self._fresh = state
        self._valid.clear()
        self._view = self._stand_in = self._relu = None
        self._zeros = False

    # How it lies in memory.

    @property
    def order(self) -> Order:
        return Order.of(self.shape, isinstance(self.layout, ChannelsLast))

    @property
    def last(self) -> bool:
        """Are its channels last?"""
        return self.order.last

    @property
    def pitch(self) -> int:
        return 0 if self.home is None else self.home.order.width

    @property
    def _as_shaped(self) -> bool:
        """Is its memory flat, in the order of its shape?"""
        return self.home is None and not self.last

    @property
    def words(self) -> int:
        return 0 if self.home is not None else words(self.layout.elements, self.kind)

    @property
    def _rows(self) -> Rows:
        assert self.buffer is not None
        order = self.order
        extent = order.rows * order.width
        if self.home is not None and order.rows:
            extent = (order.rows - 1) * self.pitch + order.width
        return Rows(self.buffer[:extent], self.pitch)

    def store_as(self, kind: str) -> None:
        if kind != self.kind:
            self.kind = kind
            self.bind(None)
            self.clear()

    def lay_out(self, layout: Layout) -> None:
        if self.pinned or (layout == self.layout and layout.shape == self.shape):
            return
        if self.guard is not None:
            self.guard(self)
        if layout.shape != self.shape or self.fresh == ZERO:
            self.fresh, self._plain = ZERO, None
        else:  # only while a net is built
            self._plain = self._fresh_plain()
            self.fresh = PLAIN
        for guest in list(self.guests):
            guest.leave()
        self.bind(None)
        self._copies.clear()
        self.layout = layout

    def allocate(self) -> None:
        if self.buffer is not None:
            return
        if self.home is not None:
            self.home.allocate()
        else:
            self.bind(self.backend.xp.empty(self.layout.elements, KINDS[self.kind]))

    def bind(self, buffer: Array | None) -> None:
        """A float32 buffer of at least `words` elements will do for any kind."""
        self._depart()
        self._zeros, self._weight_copies = False, None
        if buffer is not None and buffer.dtype != KINDS[self.kind]:
            buffer = buffer.view(KINDS[self.kind])
        super().bind(buffer)
        for guest in self.guests:
            guest._follow(buffer)

    # A guest in the memory of a larger tensor.

    def move_in(self, home: CudaTensor, column: int, outlives: bool) -> None:
        """Lie in `home` from now on, as the part of its rows that begins at `column`; `outlives`:
        when home is overwritten, what was written here must still be there."""
        if self.home is home and self._column == column:
            return
        self.write_back()
        before = self._rows if self.fresh & NATIVE and self.buffer is not None else None
        self._depart()
        self.home, self._column, self._outlives = home, column, outlives
        home.guests.add(self)
        self._follow(home.buffer)
        if before is not None and outlives:
            self.allocate()
            self._rearrange(before, self.last, self._rows, self.last)
        elif before is not None:
            self.clear()

    def _follow(self, buffer: Array | None) -> None:
        self._zeros = False
        super().bind(None if buffer is None else buffer[self._column :])

    def _depart(self) -> None:
        if self.home is not None:
            self.home.guests.discard(self)
            self.home = None

    def leave(self) -> None:
        """Have memory of its own from now on, and take the value along."""
        if self.home is None:
            return
        kept = None
        if self.fresh & NATIVE and self.buffer is not None and self._outlives:
            kept = self.backend.xp.empty(self.layout.elements, KINDS[self.kind])
            self._rearrange(self._rows, self.last, Rows(kept, 0), self.last)
        elif self.fresh & NATIVE:
            self.clear()
        self._depart()
        self._zeros = False
        super().bind(kept)

    def send_off(self) -> None:
        """Before its memory is overwritten: guests whose value is still wanted leave."""
        for guest in [guest for guest in self.guests if guest._outlives]:
            cannot_move(guest)  # nor come back in the next pass

    def joined(self) -> None:
        """All of its guests have been written, and so has it."""
        self.allocate()
        self.fresh = NATIVE

    # Reading and writing.

    def sync(self) -> None:
        self.write_back()
        was_zero = self.fresh == ZERO
        if not self.fresh & NATIVE:
            self.send_off()
        if was_zero and self.home is not None:
            self._clear_rows()
        super().sync()
        self._zeros |= was_zero and self.pinned  # others share their memory
        relu = self.take_relu()
        if relu is not None:
            sign, values = own(relu.sign).read(self.kind, self.last), self.write()
            width = shared_width(self.order, sign.pitch, values.pitch)
            self.backend.kernels["relu_backward", self.kind](
                self.layout.elements, sign.array, values.array, relu.slope, width, sign.pitch,
                values.pitch, values.pitch, values.array,
            )  # fmt: skip

    def _clear_rows(self) -> None:
        """Zeros in a guest's own rows, and nowhere else."""
        home, order = self.home, self.order
        assert home is not None
        self.allocate()
        assert home.buffer is not None
        whole = home.buffer[: order.rows * self.pitch].reshape(order.rows, self.pitch)
        whole[:, self._column : self._column + order.width] = 0
        self.fresh = NATIVE

    def clear(self) -> None:
        """Gradients that nobody writes (of weights that do not learn) need be zeroed only once."""
        if not self._zeros:
            super().clear()

    def rectify_later(self, relu: Rectifier) -> None:
        self.sync()
        self.fresh = NATIVE
        self._relu = relu
        self.backend.deferred.append(self)

    def take_relu(self) -> Rectifier | None:
        """The ReLU that this gradient has yet to go back through; the caller does it."""
        relu, self._relu = self._relu, None
        return relu

    def read(self, kind: str, last: bool) -> Rows:
        """The value stored as `kind` with channels last or not, perhaps with gaps."""
        self.sync()
        wanted = Order.of(self.shape, last)
        if kind == self.kind and wanted.last == self.last:
            return self._rows
        return Rows(self._copy(kind, wanted.last), 0)

    def write(self) -> Rows:
        """Its memory as it lies, all of which the caller is about to write."""
        self.allocate()
        self.send_off()
        self.fresh = NATIVE
        return self._rows

    def write_in(self, last: bool) -> Rows:
        """The same with channels last or not, perhaps with gaps."""
        if Order.of(self.shape, last).last == self.last:
            return self.write()
        return Rows(self.write_flat(last), 0)

    def read_flat(self, kind: str, last: bool = False) -> Array:
        """What `read` gives, without gaps."""
        rows = self.read(kind, last)
        return rows.array if not rows.pitch else self._copy(kind, Order.of(self.shape, last).last)

    def write_flat(self, last: bool = False) -> Array:
        """Memory without gaps, channels last or not, all of which the caller is about to write."""
        last = Order.of(self.shape, last).last
        if self.home is None and last == self.last:
            return self.write().array
        self.fresh = NATIVE
        self._stand_in = Rows(self._room(self.kind, last), 0), last
        self.backend.viewed.append(self)
        return self._stand_in[0].array

    def _copy(self, kind: str, last: bool) -> Array:
        """Without gaps; made again when the value has changed."""
        if self.pinned and last == self.last and (weights := self._among_weights()) is not None:
            return weights.read(self, kind)
        copy = self._room(kind, last)
        if (kind, last) not in self._valid:
            self._rearrange(self._rows, self.last, Rows(copy, 0), last)
            self._valid.add((kind, last))
        return copy

    def _among_weights(self) -> WeightCopies | None:
        """The copies of the flat buffer that it is a part of, as weights are."""
        if self._weight_copies is None:
            assert self.buffer is not None
            if self.buffer.base is not None:
                self._weight_copies = self.backend.weight_copies(self.buffer.base)
        return self._weight_copies

    def holds_copy(self, kind: str) -> bool:
        return (kind, self.last) in self._valid

    def note_copy(self, kind: str) -> None:
        self._valid.add((kind, self.last))

    def _room(self, kind: str, last: bool) -> Array:
        elements = self.layout.elements
        if (kind, last) not in self._copies or self._copies[kind, last]().size < elements:
            self._copies[kind, last] = self.backend.keep(elements, KINDS[kind])
        return self._copies[kind, last]()[:elements]

    def _rearrange(self, given: Rows, given_last: bool, made: Rows, made_last: bool) -> None:
        rearrange(self.backend.kernels, self.shape, given, given_last, made, made_last)

    @property
    def array(self) -> Array:
        if self.kind == FLOAT32 and self._as_shaped:
            self.send_off()  # the caller may write to it
            device = super().array
            self.fresh = NATIVE  # so a host copy counts no longer
            return device
        if self._view is None:
            view = self.as_float32()
            self.send_off()
            self.fresh = NATIVE
            self._view = view
            self.backend.viewed.append(self)
        return self._view.reshape(self.shape)

    def as_float32(self) -> Array:
        """A new flat array of the value, in the order of its shape; or its own memory."""
        self.sync()
        if self.kind == FLOAT32 and self._as_shaped:
            return self._rows.array
        made = self.backend.xp.empty(self.layout.elements, np.float32)
        self._rearrange(self._rows, self.last, Rows(made, 0), False)
        return made

    def write_back(self) -> None:
        """Store what plans or array code have made of the value elsewhere; their arrays count no
        longer."""
        view, stand_in = self._view, self._stand_in
        self._view = self._stand_in = None
        if view is not None:
            self.store(Rows(view, 0), False)
        elif stand_in is not None:
            self.store(*stand_in)
            self._valid.add((self.kind, stand_in[1]))

    def store(self, values: Rows, last: bool) -> None:
        """Values of any kind, with channels last or not, to its own memory."""
        self.allocate()
        self.send_off()
        self._rearrange(values, last, self._rows, self.last)

    def upload(self, values: np.ndarray[Any, np.dtype[np.float32]]) -> None:
        """Flat host values in the order of its shape to its own memory."""
        if self.kind == FLOAT32 and self._as_shaped:
            self.allocate()
            self.send_off()
            self._rows.array.set(values)
        else:
            self.store(Rows(self.backend.xp.asarray(values), 0), False)

    def copied(self, out: Array | None = None) -> Array:
        if out is None or out.shape != self.shape:
            out = self.backend.xp.empty(self.shape, self.backend.dtype)
        out[...] = self.as_float32().reshape(self.shape)
        return out

    def replace(self, values: Array) -> None:
        self.store(Rows(self.backend.xp.asarray(values).reshape(-1), 0), False)
        self.fresh, self._plain = NATIVE, None

    @property
    def host(self) -> Array:
        """A NumPy array: what is written into it is uploaded before the device reads again."""
        plain = self._fresh_plain()
        self.fresh = PLAIN
        self.backend.exported.add(self)
        return plain.view()

    def _fresh_plain(self) -> Array:
        if self._plain is None or self._plain.shape != self.shape:
            self._plain = np.empty(self.shape, self.backend.dtype)
        return super()._fresh_plain()


class HostBlob(BlobView):
    """A blob of a device as the outside sees it: `data` and `diff` are NumPy arrays."""

    @property
    def data(self) -> Array:
        return self.value.host.reshape(self.shape)

    @property
    def diff(self) -> Array:
        return self.gradient.host.reshape(self.shape)


def source(tensor: Tensor, kind: str | None = None) -> Array:
    """Flat device memory to read, in the order of its shape: as it is stored, or as `kind`."""
    return own(tensor).read_flat(kind or tensor.kind)


def target(tensor: Tensor) -> Array:
    """The same to overwrite completely."""
    return own(tensor).write_flat()


def own(tensor: Tensor) -> CudaTensor:
    """A tensor of ours, as all are here."""
    assert isinstance(tensor, CudaTensor)
    return tensor


def follow(x: Blob, y: Blob) -> None:
    """Let an op's output lie as its input does, where it is another blob of the same channels."""
    if y.value is not x.value:
        last = isinstance(x.value.layout, ChannelsLast)
        y.lay_out(ChannelsLast(y.shape) if last else Layout(y.shape))


def can_move(blob: Blob) -> None:
    """The plan that writes this blob's value, and reads its gradient, can do so where the memory is
    another's."""
    own(blob.value).movable = own(blob.gradient).movable = True


def cannot_move(*tensors: Tensor) -> None:
    for tensor in tensors:
        own(tensor).movable = False
        own(tensor).leave()


def accumulator(tensor: Tensor, last: bool = False) -> tuple[Array, float]:
    """Flat device memory to add to, with channels last or not, and how much of what is there to
    keep: 0 or 1."""
    if tensor.fresh == ZERO:
        return own(tensor).write_flat(last), 0.0
    own(tensor).read_flat(tensor.kind, last)  # its own memory, or the copy that is added to
    return own(tensor).write_flat(last), 1.0


def optional(blob: Blob | None) -> Any:
    """A blob's memory, to read, or None: kernels take it for a null pointer."""
    return None if blob is None else source(blob.value)
