"""The transforms of Winograd's convolution: native/winograd.c."""

from __future__ import annotations

from ...errors import BackendError
from .library import Floats, Kernel

PATCH = 6  # side of the part of x that a tile depends on
PRODUCTS = PATCH * PATCH
TILES = {3: 4, 5: 2}  # side of a tile, by that of the window
LANES = 8  # channels of a block are a multiple of this


class Tiles(Kernel):
    """The fields of kernels on images (images, channel_blocks, height, width, block)."""

    window: int
    images: int
    channel_blocks: int
    height: int
    width: int
    block: int
    pad_y: int
    pad_x: int
    rows: int
    columns: int
    first_row: int
    row_count: int
    first_block: int
    block_count: int
    product_step: int
    tile_step: int

    @property
    def pixels(self) -> int:
        """The number of elements of the array of images."""
        return self.images * self.channel_blocks * self.height * self.width * self.block

    @property
    def channels(self) -> int:
        """The number of channels of V or M."""
        return self.block_count * self.block

    @property
    def matrices(self) -> int:
        """The number of elements of V or M, from the first to the last that is used."""
        tiles = self.row_count * self.columns
        return (PRODUCTS - 1) * self.product_step + (tiles - 1) * self.tile_step + self.channels

    @property
    def band(self) -> int:
        """The length of a row of pixels that a row of patches depends on."""
        return (TILES[self.window] * (self.columns - 1) + PATCH) * self.block

    def check_place(self, reach: int, pad_y: int, pad_x: int) -> None:
        """Raise BackendError unless the call's part of the images, V and M is within them.

        Rows and columns of tiles must cover the images, whose first pixels are moved by the pads;
        the last tiles reach so many pixels beyond their own.
        """
        if self.window not in TILES or self.block < LANES or self.block % LANES:
            self._refuse(f"window {self.window} on blocks of {self.block} channels")
        tile = TILES[self.window]
        covered = tile * self.rows + reach - pad_y, tile * self.columns + reach - pad_x
        if min(pad_y, pad_x) < 0 or covered[0] < self.height or covered[1] < self.width:
            self._refuse(
                f"{self.rows} x {self.columns} tiles, moved by {pad_y} and {pad_x}, for images of "
                f"{self.height} x {self.width}"
            )
        for what, first, count, most in (
            ("rows of tiles", self.first_row, self.row_count, self.images * self.rows),
            ("blocks of channels", self.first_block, self.block_count, self.channel_blocks),
        ):
            if first < 0 or count < 1 or first + count > most:
                self._refuse(f"{what} {first} to {first + count} of {most}")
        if min(self.product_step, self.tile_step) < self.channels:
            self._refuse(
                f"{self.channels} channels with steps of {self.product_step}, {self.tile_step}"
            )

    def _refuse(self, what: str) -> None:
        raise BackendError(f"kernel {self.name}: does not support {what}")


class PatchesToV(Tiles):
    name = "patches_to_v"
    x: Floats
    v: Floats

    def check(self) -> None:
        self.check_place(PATCH - TILES.get(self.window, 0), self.pad_y, self.pad_x)
        self.need(x=self.pixels, v=self.matrices)


class VToPatches(Tiles):
    name = "v_to_patches"
    v: Floats
    dx: Floats
    carried: Floats
    x: Floats | None
    add: int

    def check(self) -> None:
        overlap = PATCH - TILES.get(self.window, 0)
        self.check_place(overlap, self.pad_y, self.pad_x)
        whole = self.first_row % self.rows == 0 and self.row_count % self.rows == 0
        if not whole and self.first_row % self.rows + self.row_count > self.rows:
            self._refuse(f"{self.row_count} rows of tiles from {self.first_row} on, in parts")
        self.need(
            v=self.matrices, dx=self.pixels, carried=self.block_count * overlap * self.band,
            x=self.pixels,
        )  # fmt: skip


class MToTiles(Tiles):
    name = "m_to_tiles"
    m: Floats
    y: Floats
    bias: Floats
    slope: float

    def check(self) -> None:
        self.check_place(0, 0, 0)
        self.need(m=self.matrices, y=self.pixels, bias=self.channels)


class TilesToM(Tiles):
    name = "tiles_to_m"
    dy: Floats
    m: Floats
    sums: Floats

    def check(self) -> None:
        self.check_place(0, 0, 0)
        self.need(dy=self.pixels, m=self.matrices, sums=self.row_count * self.channels)


class Windows(Kernel):
    """The fields of kernels on weights; block 1: plain ones (outputs, inputs, window, window)."""

    outputs: int
    inputs: int
    window: int
    block: int
    product_step: int

    @property
    def weights(self) -> int:
        """The number of weights."""
        return self.outputs * self.inputs * self.window**2

    @property
    def matrices(self) -> int:
        """The number of elements of U, from the first to the last that is used."""
        return (PRODUCTS - 1) * self.product_step + self.inputs * self.outputs

    def check_place(self) -> None:
        """Raise BackendError unless channels are whole blocks, and matrices do not overlap."""
        is_blocked = self.block % LANES == 0 and self.inputs % max(self.block, 1) == 0
        if (
            self.window not in TILES or min(self.outputs, self.inputs, self.block) < 1
            or (self.block != 1 and not is_blocked) or self.outputs % max(self.block, LANES)
            or self.product_step < self.inputs * self.outputs
        ):  # fmt: skip
            raise BackendError(
                f"kernel {self.name}: does not support window {self.window} on {self.inputs} and "
                f"{self.outputs} channels in blocks of {self.block}, step {self.product_step}"
            )


class WindowsToU(Windows):
    name = "windows_to_u"
    w: Floats
    u: Floats
    turned: int

    def check(self) -> None:
        self.check_place()
        if self.turned and self.block == 1:
            raise BackendError(f"kernel {self.name}: does not support plain weights, turned")
        self.need(w=self.weights, u=self.matrices)


class UToWindows(Windows):
    name = "u_to_windows"
    u: Floats
    dw: Floats

    def check(self) -> None:
        self.check_place()
        self.need(u=self.matrices, dw=self.weights)
