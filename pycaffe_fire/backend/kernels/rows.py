"""Images whose channels lie side by side, as rows (pixels of all samples, channels).

What stands between matrix products there: patches and back, bias and ReLU, pooling, LRN, and
columns of rows copied elsewhere.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..compiled import fast_kernel, fast_part, inlined
from ..instructions import at, copy, free, max, min, zeros
from ..tasks import in_parallel
from .lrn import powers
from .maxima import LOWEST, max_of_window
from .tiles import LANES

RUN = 16  # rows per task
BLOCK = 16384  # elements per task where rows do not matter


@fast_part
def _finish(task: int, y: Any, bias: Any, slope: Any) -> None:
    channels = y.shape[1]
    leaks = slope != 0
    for row in range(task * RUN, min((task + 1) * RUN, y.shape[0])):
        line = at(y, row * channels)
        # Without a slope even minus infinity and its like become 0, and NaN stays.
        for c in range(channels):
            value = line[c] + bias[c]
            below = slope * value if leaks else np.float32(0)
            line[c] = below if value <= 0 else value


@fast_kernel("f4[:,::1], f4[::1], f4")
def finish(y: Any, bias: Any, slope: Any) -> None:
    """y += bias, then a ReLU with this slope (1: none)."""
    in_parallel((y.shape[0] + RUN - 1) // RUN, _finish, (y, bias, slope))


@fast_part
def _relu_backward(task: int, y: Any, dy: Any, dx: Any, slope: Any) -> None:
    size = y.size
    first = task * BLOCK
    sign, above, below = at(y, first), at(dy, first), at(dx, first)
    leaks = slope != 0
    for i in range(min(BLOCK, size - first)):
        g = above[i]
        less = slope * g if leaks else np.float32(0)
        below[i] = less if sign[i] <= 0 else g


@fast_kernel("f4[::1], f4[::1], f4[::1], f4")
def relu_backward(y: Any, dy: Any, dx: Any, slope: Any) -> None:
    """dx = dy, but slope * dy where y <= 0; flat arrays, of which some may be one."""
    in_parallel((y.size + BLOCK - 1) // BLOCK, _relu_backward, (y, dy, dx, slope))


@fast_part
def _copy_columns(task: int, source: Any, first: int, target: Any, start: int, count: int) -> None:
    theirs, ours = source.shape[1], target.shape[1]
    for row in range(task * RUN, min((task + 1) * RUN, source.shape[0])):
        a, b = at(source, row * theirs + first), at(target, row * ours + start)
        for c in range(count):
            b[c] = a[c]


@fast_kernel("f4[:,::1], i8, f4[:,::1], i8, i8")
def copy_columns(source: Any, first: int, target: Any, start: int, count: int) -> None:
    """target[:, start : start + count] = source[:, first : first + count]"""
    tasks = (source.shape[0] + RUN - 1) // RUN
    in_parallel(tasks, _copy_columns, (source, first, target, start, count))


@inlined
def _pixel(y: int, x: int, sizes: Any) -> int:
    """The number of a pixel in its image, or -1 outside."""
    return y * sizes[1] + x if 0 <= y < sizes[0] and 0 <= x < sizes[1] else -1


@fast_part
def _gather(
    task: int, x: Any, patches: Any, first: int, sizes: Any, window: Any, held: Any
) -> None:
    height, width, rows, columns = sizes
    kernel, stride, pad, dilation = window
    begin, count = held
    image, i = (first + task) // rows, (first + task) % rows
    source = at(x, image * height * width * x.shape[1] + begin)
    target = at(patches, task * columns * patches.shape[1])
    dense = dilation[1] == 1 and count == x.shape[1]  # a row of the kernel sees a run of numbers
    pieces, reach = (1, kernel[1]) if dense else (kernel[1], 1)
    run = reach * count
    for j in range(columns):
        for k in range(kernel[0]):
            h = i * stride[0] - pad[0] + k * dilation[0]
            for piece in range(pieces):
                left = j * stride[1] - pad[1] + piece * dilation[1]
                first_seen, stop = max(0, -left) * count, min(reach, width - left) * count
                if h < 0 or h >= height or first_seen >= stop:
                    first_seen, stop = run, run
                line = at(target, ((j * kernel[0] + k) * pieces + piece) * run)
                seen = at(source, (h * width + left) * x.shape[1])
                for c in range(first_seen):
                    line[c] = np.float32(0)
                copy(at(seen, first_seen), at(line, first_seen), stop - first_seen)
                for c in range(stop, run):
                    line[c] = np.float32(0)


@fast_kernel(
    "f4[:,::1], f4[:,::1], i8, UniTuple(i8, 4), UniTuple(UniTuple(i8, 2), 4), UniTuple(i8, 2)"
)
def gather(x: Any, patches: Any, first: int, sizes: Any, window: Any, held: Any) -> None:
    """im2col: patches (windows, cells * channels) of some rows of windows, from number `first` on,
    counted through all images.

    `sizes` are height and width of an image and of what comes out; `held` is the first channel that
    is looked at, and how many are.
    """
    tasks = patches.shape[0] // sizes[3]
    in_parallel(tasks, _gather, (x, patches, first, sizes, window, held))


@fast_part
def _scatter(
    task: int, patches: Any, dx: Any, first: int, sizes: Any, window: Any, held: Any
) -> None:
    height, width, rows, columns = sizes
    kernel, stride, pad, dilation = window
    begin, count = held
    channels = dx.shape[1]
    target = at(dx, (first + task) * height * width * channels + begin)
    for pixel in range(height * width):
        line = at(target, pixel * channels)
        for c in range(count):
            line[c] = np.float32(0)
    for place in range(rows * columns):
        i, j = place // columns, place % columns
        source = at(patches, (task * rows * columns + place) * patches.shape[1])
        for cell in range(kernel[0] * kernel[1]):
            pixel = _pixel(
                i * stride[0] - pad[0] + cell // kernel[1] * dilation[0],
                j * stride[1] - pad[1] + cell % kernel[1] * dilation[1], sizes,
            )  # fmt: skip
            if pixel >= 0:
                line, part = at(target, pixel * channels), at(source, cell * count)
                for c in range(count):
                    line[c] += part[c]


@fast_kernel(
    "f4[:,::1], f4[:,::1], i8, UniTuple(i8, 4), UniTuple(UniTuple(i8, 2), 4), UniTuple(i8, 2)"
)
def scatter(patches: Any, dx: Any, first: int, sizes: Any, window: Any, held: Any) -> None:
    """col2im: every pixel of the images is the sum of the cells that saw it."""
    tasks = patches.shape[0] // (sizes[2] * sizes[3])
    in_parallel(tasks, _scatter, (patches, dx, first, sizes, window, held))


WIDE = 4 * LANES
_max_of_wide, _max_of_vector = max_of_window(4), max_of_window(1)


@inlined
def _max_of_channel(
    x: Any, start: int, strides: Any, sizes: Any, cells: Any, y: Any, winners: Any, place: int
) -> None:
    """The same for one channel."""
    seen, best, best_cell = at(x, start), LOWEST, 0
    for row in range(sizes[0]):
        for column in range(sizes[1]):
            value = seen[row * strides[0] + column * strides[1]]
            if not (value <= best or best != best):
                best, best_cell = value, cells[0] + row * cells[1] + column
    at(y, place)[0] = best
    at(winners, place)[0] = np.uint8(best_cell)


@fast_part
def _max_forward(task: int, x: Any, y: Any, winners: Any, sizes: Any, window: Any) -> None:
    height, width, rows, columns = sizes
    kernel, stride, pad = window
    channels = x.shape[1]
    image, i = task // rows, task % rows
    top = i * stride[0] - pad[0]
    first_row, stop_row = max(top, 0), min(top + kernel[0], height)
    wide, whole = channels // WIDE * WIDE, channels // LANES * LANES
    for j in range(columns):
        left, place = j * stride[1] - pad[1], (task * columns + j) * channels
        first, stop = max(left, 0), min(left + kernel[1], width)
        corner = ((image * height + first_row) * width + first) * channels
        strides, size = (width * channels, channels), (stop_row - first_row, stop - first)
        cells = (first_row - top) * kernel[1] + first - left, kernel[1]
        for c in range(0, wide, WIDE):
            _max_of_wide(x, corner + c, strides, size, cells, y, winners, place + c)
        for c in range(wide, whole, LANES):
            _max_of_vector(x, corner + c, strides, size, cells, y, winners, place + c)
        for c in range(whole, channels):
            _max_of_channel(x, corner + c, strides, size, cells, y, winners, place + c)


@fast_kernel("f4[:,::1], f4[:,::1], u1[:,::1], UniTuple(i8, 4), UniTuple(UniTuple(i8, 2), 3)")
def max_forward(x: Any, y: Any, winners: Any, sizes: Any, window: Any) -> None:
    """y = the maxima of clipped windows (kernel, stride, pad), and the cells where they were."""
    tasks = y.shape[0] // sizes[3]
    in_parallel(tasks, _max_forward, (x, y, winners, sizes, window))


@inlined
def _sums(rows: Any, size: int, half: int, k: Any, alpha: Any, out: Any) -> None:
    """out = k + alpha * rows summed over places i - half .. i + half.

    A window of 5, which most nets have, takes a single loop.
    """
    if half == 2:
        a, b, c, d = at(rows, -2), at(rows, -1), at(rows, 1), at(rows, 2)
        for i in range(size):
            out[i] = k + alpha * (rows[i] + (a[i] + b[i]) + (c[i] + d[i]))
    else:
        for i in range(size):
            out[i] = rows[i]
        for by in range(1, half + 1):
            before, after = at(rows, -by), at(rows, by)
            for i in range(size):
                out[i] += before[i] + after[i]
        for i in range(size):
            out[i] = k + alpha * out[i]


@inlined
def _normaliser(x: Any, begin: int, count: int, half: int, numbers: Any) -> Any:
    """Of some rows: their squares, s, its power and 1 / s, in memory where `half` zeros follow each
    row and as many that nothing else uses come first; that memory, and how long a row is in it."""
    channels, (alpha, minus_beta, k) = x.shape[1], numbers
    gap = channels + half
    size = count * gap
    work = zeros(4 * size + 2 * half, np.float32)
    squares, s = at(work, half), at(work, size + 2 * half)
    power, inverse = at(s, size), at(s, 2 * size)
    for row in range(count):
        line, square = at(x, begin + row * channels), at(squares, row * gap)
        for c in range(channels):
            square[c] = line[c] * line[c]
    _sums(squares, size, half, k, alpha, s)
    powers(s, size, minus_beta, k, alpha, power, inverse)
    return work, gap, squares, s, power, inverse


@fast_part
def _lrn_forward(task: int, x: Any, y: Any, half: int, numbers: Any) -> None:
    channels = x.shape[1]
    count, begin = min(RUN, x.shape[0] - task * RUN), task * RUN * channels
    work, gap, _, _, power, _ = _normaliser(x, begin, count, half, numbers)
    for row in range(count):
        place = begin + row * channels
        source, target, factor = at(x, place), at(y, place), at(power, row * gap)
        for c in range(channels):
            target[c] = source[c] * factor[c]
    free(work)


@fast_kernel("f4[:,::1], f4[:,::1], i8, UniTuple(f4, 3)")
def lrn_forward(x: Any, y: Any, half: int, numbers: Any) -> None:
    """y = x s^-beta with s = k + alpha * sum of squares around the channel; `numbers` is (alpha,
    -beta, k)."""
    in_parallel((x.shape[0] + RUN - 1) // RUN, _lrn_forward, (x, y, half, numbers))


@fast_part
def _lrn_backward(task: int, x: Any, dy: Any, dx: Any, half: int, numbers: Any) -> None:
    channels, (alpha, minus_beta, _) = x.shape[1], numbers
    count, begin = min(RUN, x.shape[0] - task * RUN), task * RUN * channels
    work, gap, ratios, s, power, inverse = _normaliser(x, begin, count, half, numbers)
    for row in range(count):
        place = begin + row * channels
        source, above, ratio = at(x, place), at(dy, place), at(ratios, row * gap)
        kept, factor = at(power, row * gap), at(inverse, row * gap)
        for c in range(channels):
            g = kept[c] * above[c]
            kept[c] = g
            ratio[c] = g * source[c] * factor[c]
    _sums(ratios, count * gap, half, np.float32(0), np.float32(2) * alpha * minus_beta, s)
    for row in range(count):
        place = begin + row * channels
        source, target = at(x, place), at(dx, place)
        kept, around = at(power, row * gap), at(s, row * gap)
        for c in range(channels):
            target[c] = kept[c] + source[c] * around[c]
    free(work)


@fast_kernel("f4[:,::1], f4[:,::1], f4[:,::1], i8, UniTuple(f4, 3)")
def lrn_backward(x: Any, dy: Any, dx: Any, half: int, numbers: Any) -> None:
    """dx = dy s^-beta - 2 alpha beta x * sum around the channel of (dy x s^(-beta-1))."""
    in_parallel((x.shape[0] + RUN - 1) // RUN, _lrn_backward, (x, dy, dx, half, numbers))
