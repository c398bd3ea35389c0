"""Which sizes depend on the batch: found by reshaping a net's inputs and looking what changes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import prod

from ..errors import ConvertError, FireError
from ..net.net import Net

BATCH = "batch"  # the symbol of the first input's first axis


class Dim(int):
    """A size: a fixed number, or one that varies with an input's first axis (`symbol`)."""

    symbol: str

    def __new__(cls, value: int, symbol: str = "") -> Dim:
        made = super().__new__(cls, value)
        made.symbol = symbol
        return made

    @property
    def varies(self) -> bool:
        return bool(self.symbol)


Shape = tuple[Dim, ...]


class NeedsFixedError(ConvertError):
    """A layer can be converted only if a size does not vary."""


def number(dim: Dim) -> int:
    """A size that the graph has to know."""
    if dim.varies:
        raise NeedsFixedError(f"a size that is {dim} and depends on the batch must be known")
    return int(dim)


def fixed(shape: Iterable[int]) -> Shape:
    return tuple(Dim(size) for size in shape)


def merged(dims: Sequence[Dim]) -> Dim:
    """The size of several axes seen as one."""
    varying = [dim for dim in dims if dim.varies]
    if len(varying) == 1 and prod(dims) == varying[0]:
        return varying[0]
    return Dim(prod(dims), "*".join(f"{dim.symbol or int(dim)}" for dim in dims) if varying else "")


class Sizes:
    """The shapes of all blobs of a net, as they are and as they vary.

    Inputs of equal first size vary together. `refused` says why a first size has to stay.
    """

    def __init__(self, net: Net, vary: bool = True) -> None:
        self.refused: list[str] = []
        self._base = {name: tuple(blob.shape) for name, blob in net.blobs.items()}
        self._varied: dict[str, dict[str, tuple[int, ...]]] = {}
        sizes = dict.fromkeys(self._base[name][0] for name in net.inputs if self._base[name])
        for place, size in enumerate(sizes if vary else ()):
            symbol = BATCH if place == 0 else f"{BATCH}{place + 1}"
            self._probe(net, symbol, size)
        set_inputs(net, {name: self._base[name] for name in net.inputs})

    def _probe(self, net: Net, symbol: str, size: int) -> None:
        shapes = {name: self._base[name] for name in net.inputs}
        for name, shape in shapes.items():
            if shape[:1] == (size,):
                shapes[name] = (size + 1, *shape[1:])
        try:
            set_inputs(net, shapes)
        except FireError as error:
            self.refused.append(str(error))
            return
        self._varied[symbol] = {name: tuple(blob.shape) for name, blob in net.blobs.items()}

    def __getitem__(self, blob: str) -> Shape:
        dims = []
        for axis, size in enumerate(self._base[blob]):
            symbols = []
            for symbol, shapes in self._varied.items():
                more = shapes[blob][axis] - size
                if more:
                    symbols.append(symbol if more == 1 else f"{more}*{symbol}")
            dims.append(Dim(size, "+".join(symbols)))
        return tuple(dims)


def set_inputs(net: Net, shapes: dict[str, tuple[int, ...]]) -> None:
    """Give the inputs these shapes, and all blobs those that follow."""
    for name, shape in shapes.items():
        net.blobs[name].reshape(*shape)
    net.reshape()
