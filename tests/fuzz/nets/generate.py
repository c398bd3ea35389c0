"""Random nets and actions: the same seed gives the same case.

`Builder` grows a net from blobs that are there already; each method of `Blocks` adds one layer or
a pattern that fusions look for (residual blocks, separable convolutions, Concats of Concats ...).
Any layer type that has no method of its own comes from the layer table of the contract tests.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from math import prod

from .case import Action, Case, LayerText
from .values import row_input, rows

Shape = tuple[int, ...]
CHANNELS = (1, 2, 3, 4, 5, 7, 8, 8, 8, 12, 16, 16, 16, 16, 17, 24, 32, 32, 40, 48)
LARGEST = 20_000  # elements of a blob
FILL = 'weight_filler { type: "msra" } bias_filler { type: "gaussian" std: 0.5 }'
SCALE_FILL = 'filler { type: "uniform" min: 0.5 max: 1.5 } bias_filler { type: "gaussian" }'
NEURONS = (
    "Sigmoid", "TanH", "AbsVal", "BNLL", "ELU", "Swish", "Mish", "HSwish", "HSigmoid", "ReLU6",
    "Power", "Exp", "Threshold", "Clip",
)  # fmt: skip
NEURON_PARAMS = {
    "Power": "power_param { power: 2 scale: 0.5 shift: 1 }",
    "Exp": "exp_param { scale: 0.1 }",
    "Clip": "clip_param { min: -0.5 max: 0.9 }",
}
# Their backward pass reads the top, so that another layer in place after them changes gradients,
# in Caffe as well.
READS_TOP = {
    *NEURONS, "Softmax", "LRN", "PReLU", "MVN", "Eltwise", "GroupNorm", "LayerNorm", "Normalize",
    "Split", "Reshape", "Flatten", "Input", "BN",
}  # fmt: skip


class Builder:
    """The layers so far, and the blobs that further layers can read."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.layers: list[LayerText] = []
        self.shapes: dict[str, Shape] = {}
        self.writer: dict[str, str] = {}  # the type of the layer that wrote a blob last
        self.read: set[str] = set()
        self._number = 0

    def name(self, prefix: str = "b") -> str:
        self._number += 1
        return f"{prefix}{self._number}"

    def chance(self, probability: float) -> bool:
        return self.rng.random() < probability

    def input(self, shape: Shape, name: str = "") -> str:
        name = name or self.name("data")
        dims = " ".join(f"dim: {size}" for size in shape)
        shapes = f"input_param {{ shape {{ {dims} }} }}"
        self.layers.append(LayerText(name, "Input", (), (name,), shapes))
        self.shapes[name], self.writer[name] = shape, "Input"
        return name

    def add(
        self, kind: str, bottoms: Sequence[str], params: str, *shapes: Shape, in_place: bool = False
    ) -> str:
        """A layer whose tops have these shapes; returns the first top."""
        tops = tuple(bottoms[:1]) if in_place else tuple(self.name() for _ in shapes)
        self.layers.append(LayerText(self.name(kind.lower()), kind, tuple(bottoms), tops, params))
        self.read |= set(bottoms) - set(tops)
        for top, shape in zip(tops, shapes, strict=True):
            self.shapes[top], self.writer[top] = shape, kind
        return tops[0]

    def may_overwrite(self, blob: str) -> bool:
        """True if a layer can work in place on a blob without changing what others read of it."""
        return blob not in self.read and self.writer[blob] not in READS_TOP

    def maybe_in_place(self, kind: str, blob: str, params: str = "", likely: float = 0.7) -> str:
        in_place = self.chance(likely) and self.may_overwrite(blob)
        return self.add(kind, [blob], params, self.shapes[blob], in_place=in_place)

    def blobs(self, fits: Callable[[Shape], bool] = lambda shape: True) -> list[str]:
        return [name for name, shape in self.shapes.items() if prod(shape) and fits(shape)]

    def pick(self, fits: Callable[[Shape], bool] = lambda shape: True) -> str | None:
        """A blob, more likely one that was added lately; None if none fits."""
        found = self.blobs(fits)
        if not found:
            return None
        return self.rng.choice(found[-3:] if self.chance(0.7) else found)

    def channels(self, shape: Shape, limit: int = 48) -> int:
        room = max(1, LARGEST // max(1, prod(shape) // shape[1]))
        return min(self.rng.choice(CHANNELS), limit, room)


def _is_image(shape: Shape) -> bool:
    return len(shape) == 4


def _is_spatial(shape: Shape) -> bool:
    return 3 <= len(shape) <= 5


class Blocks(Builder):
    """What a net is made of."""

    def convolution(self, x: str | None = None, **fixed: int) -> str | None:
        x = x or self.pick(_is_spatial)
        if x is None:
            return None
        shape, rng = self.shapes[x], self.rng
        kind = "Convolution"
        group = fixed.get("group") or self._group(shape[1])
        outputs = fixed.get("outputs") or max(1, self.channels(shape) // group) * group
        kernel, stride, pad, dilation, sizes = [], [], [], [], []
        for size in shape[2:]:
            k = fixed.get("kernel") or rng.choice((1, 1, 1, 2, 3, 3, 3, 3, 5, 4))
            s = fixed.get("stride") or rng.choice((1, 1, 1, 1, 2, 2, 3, 4))
            d = 1 if "kernel" in fixed else rng.choice((1, 1, 1, 1, 1, 2, 3))
            p = fixed.get("pad", rng.choice((0, k // 2, k // 2, rng.randint(0, k))))
            p = k // 2 if p < 0 else p  # keeps the size
            reach = d * (k - 1) + 1
            if size + 2 * p < reach:
                k, d, p, reach = 1, 1, 0, 1
            kernel.append(k), stride.append(s), pad.append(p), dilation.append(d)
            sizes.append((size + 2 * p - reach) // s + 1)
        params = f"num_output: {outputs} group: {group} {FILL}"
        for field, numbers in zip(("kernel_size", "stride", "pad", "dilation"),
                                  (kernel, stride, pad, dilation), strict=True):  # fmt: skip
            params += "".join(f" {field}: {n}" for n in numbers)
        params += "" if self.chance(0.6) else " bias_term: false"
        named = ""
        if self.chance(0.06) and not fixed:
            sharing = f"{outputs}_{shape[1] // group}_{'_'.join(map(str, kernel))}"
            named = f' param {{ name: "w{sharing}" }}'
        return self.add(kind, [x], f"convolution_param {{ {params} }}{named}",
                        (shape[0], outputs, *sizes))  # fmt: skip

    def _group(self, channels: int) -> int:
        if self.chance(0.75):
            return 1
        divisors = [n for n in range(1, channels + 1) if channels % n == 0]
        return channels if self.chance(0.5) else self.rng.choice(divisors)

    def depthwise(self, x: str | None = None) -> str | None:
        x = x or self.pick(_is_image)
        if x is None:
            return None
        channels = self.shapes[x][1]
        return self.convolution(x, group=channels, outputs=channels, kernel=3, pad=1,
                                stride=self.rng.choice((1, 1, 2)))  # fmt: skip

    def deconvolution(self) -> str | None:
        x = self.pick(_is_image)
        if x is None:
            return None
        shape, rng = self.shapes[x], self.rng
        group = self._group(shape[1])
        k, s = rng.choice((1, 2, 3, 4)), rng.choice((1, 2, 2, 3))
        p = rng.randint(0, (k - 1) // 2)
        outputs = max(1, min(self.channels(shape), 16) // group) * group
        sizes = tuple(s * (n - 1) + k - 2 * p for n in shape[2:])
        if min(sizes) < 1 or prod(sizes) * shape[0] * outputs > LARGEST:
            return None
        params = (
            f"num_output: {outputs} kernel_size: {k} stride: {s} pad: {p} group: {group} {FILL}"
        )
        return self.add("Deconvolution", [x], f"convolution_param {{ {params} }}",
                        (shape[0], outputs, *sizes))  # fmt: skip

    def norm(self, x: str | None = None, relu: float = 0.5) -> str | None:
        x = x or self.pick(lambda shape: len(shape) >= 2)
        if x is None:
            return None
        stats = self.rng.choice(("", "", "", "use_global_stats: true", "use_global_stats: false",
                                 "moving_average_fraction: 0.9 eps: 0.001"))  # fmt: skip
        y = self.maybe_in_place("BatchNorm", x, f"batch_norm_param {{ {stats} }}" if stats else "")
        if self.chance(0.8):
            bias = "bias_term: true" if self.chance(0.7) else ""
            y = self.maybe_in_place("Scale", y, f"scale_param {{ {bias} {SCALE_FILL} }}", 0.85)
        return self.relu(y) if self.chance(relu) else y

    def relu(self, x: str | None = None) -> str | None:
        x = x or self.pick()
        if x is None:
            return None
        slope = "relu_param { negative_slope: 0.1 }" if self.chance(0.2) else ""
        return self.maybe_in_place("ReLU", x, slope, 0.8)

    def prelu(self) -> str | None:
        x = self.pick(lambda shape: len(shape) >= 2)
        if x is None:
            return None
        shared = " channel_shared: true" if self.chance(0.3) else ""
        fill = f'prelu_param {{ filler {{ type: "uniform" min: -0.5 max: 0.5 }}{shared} }}'
        return self.maybe_in_place("PReLU", x, fill, 0.5)

    def neuron(self) -> str | None:
        x = self.pick()
        if x is None:
            return None
        kind = self.rng.choice(NEURONS)
        can = kind != "AbsVal"
        return self.maybe_in_place(kind, x, NEURON_PARAMS.get(kind, ""), 0.5 if can else 0.0)

    def scale(self) -> str | None:
        x = self.pick(lambda shape: len(shape) >= 2)
        if x is None:
            return None
        if self.chance(0.3):
            return self.maybe_in_place("Bias", x, 'bias_param { filler { type: "gaussian" } }')
        bias = "bias_term: true" if self.chance(0.5) else ""
        return self.maybe_in_place("Scale", x, f"scale_param {{ {bias} {SCALE_FILL} }}")

    def pooling(self, x: str | None = None) -> str | None:
        x = x or self.pick(_is_image)
        if x is None:
            return None
        shape, rng = self.shapes[x], self.rng
        method = rng.choice(("MAX", "MAX", "MAX", "AVE", "AVE", "STOCHASTIC"))
        if self.chance(0.12) and method != "STOCHASTIC":
            params = f"pooling_param {{ pool: {method} global_pooling: true }}"
            return self.add("Pooling", [x], params, (*shape[:2], 1, 1))
        floor = self.chance(0.25)
        k, s = rng.choice((1, 2, 2, 3, 3, 3, 5)), rng.choice((1, 1, 2, 2, 2, 3, 4))
        p = rng.choice((0, 0, 1)) if method != "STOCHASTIC" else 0
        p = min(p, k - 1)
        if min(shape[2:]) + 2 * p < k:
            return None
        sizes = []
        for size in shape[2:]:
            span = size + 2 * p - k
            count = (span // s if floor else -(-span // s)) + 1
            if p and (count - 1) * s >= size + p:
                count -= 1
            if (count - 1) * s - p >= size:
                return None  # a window beyond the image has the lowest number there is as maximum
            sizes.append(count)
        mode = " round_mode: FLOOR" if floor else ""
        params = f"pooling_param {{ pool: {method} kernel_size: {k} stride: {s} pad: {p}{mode} }}"
        top = (*shape[:2], *sizes)
        with_mask = method == "MAX" and self.chance(0.1)
        return self.add("Pooling", [x], params, *([top, top] if with_mask else [top]))

    def sum(self, x: str | None = None, relu: float = 0.6) -> str | None:
        x = x or self.pick()
        if x is None:
            return None
        others = self.blobs(lambda shape: shape == self.shapes[x])
        chosen = [x, *(self.rng.choice(others) for _ in range(self.rng.choice((1, 1, 1, 2))))]
        self.rng.shuffle(chosen)
        how = self.rng.choice(("", "", "", "", "operation: PROD", "operation: MAX", "coeffs"))
        if how == "coeffs":
            how = " ".join(f"coeff: {self.rng.choice((1, -1, 0.5, 2))}" for _ in chosen)
        if "MAX" in how and len(set(chosen)) < len(chosen):
            how = ""  # equal values have no one maximum
        y = self.add("Eltwise", chosen, f"eltwise_param {{ {how} }}" if how else "", self.shapes[x])
        return self.relu(y) if self.chance(relu) else y

    def concat(self) -> str | None:
        x = self.pick(lambda shape: len(shape) >= 1)
        if x is None:
            return None
        shape = self.shapes[x]
        axis = 1 if len(shape) > 1 and self.chance(0.8) else self.rng.randrange(len(shape))
        without = (*shape[:axis], *shape[axis + 1 :])

        def fits(other: Shape) -> bool:
            return len(other) == len(shape) and (*other[:axis], *other[axis + 1 :]) == without

        found = self.blobs(fits)
        chosen = [x, *(self.rng.choice(found) for _ in range(self.rng.randint(0, 3)))]
        self.rng.shuffle(chosen)
        total = sum(self.shapes[name][axis] for name in chosen)
        if total * prod(without) > LARGEST:
            return None
        given = "" if axis == 1 and self.chance(0.5) else f"concat_param {{ axis: {axis} }}"
        y = self.add("Concat", chosen, given, (*shape[:axis], total, *shape[axis + 1 :]))
        if len(chosen) == 1:
            self.writer[y] = "Split"  # shares memory as a Split does
        return y

    def split(self) -> str | None:
        x = self.pick()
        if x is None:
            return None
        return self.add("Split", [x], "", *[self.shapes[x]] * self.rng.randint(1, 3))

    def slice(self) -> str | None:
        x = self.pick(lambda shape: len(shape) >= 2 and shape[1] >= 2)
        if x is None:
            return None
        shape = self.shapes[x]
        point = self.rng.randint(1, shape[1] - 1)
        parts = [(shape[0], n, *shape[2:]) for n in (point, shape[1] - point)]
        return self.add("Slice", [x], f"slice_param {{ slice_point: {point} }}", *parts)

    def tile(self) -> str | None:
        x = self.pick(lambda shape: prod(shape) * 3 <= LARGEST and len(shape) >= 1)
        if x is None:
            return None
        shape, axis = self.shapes[x], self.rng.randrange(len(self.shapes[x]))
        tiles = self.rng.randint(1, 3)
        if axis == 0:
            axis = min(1, len(shape) - 1)
        grown = (*shape[:axis], shape[axis] * tiles, *shape[axis + 1 :])
        return self.add("Tile", [x], f"tile_param {{ axis: {axis} tiles: {tiles} }}", grown)

    def reshape(self) -> str | None:
        x = self.pick(lambda shape: len(shape) >= 2)
        if x is None:
            return None
        shape = self.shapes[x]
        if self.chance(0.4):
            return self.add("Flatten", [x], "", (shape[0], prod(shape[1:])))
        new: Shape
        dims, new = f"dim: 0 dim: -1 dim: {shape[-1]}", (shape[0], prod(shape[1:-1]), shape[-1])
        if len(shape) == 4 and self.chance(0.6):
            dims, new = "dim: 0 dim: -1 dim: 1 dim: 1", (shape[0], prod(shape[1:]), 1, 1)
        return self.add("Reshape", [x], f"reshape_param {{ shape {{ {dims} }} }}", new)

    def inner_product(self) -> str | None:
        x = self.pick(lambda shape: len(shape) >= 2)
        if x is None:
            return None
        shape = self.shapes[x]
        axis = 1 if self.chance(0.75) else self.rng.randrange(1, len(shape))
        outputs = self.rng.choice((1, 2, 3, 5, 8, 16, 17, 32))
        if prod(shape[:axis]) * outputs > LARGEST:
            return None
        params = f"num_output: {outputs} axis: {axis} {FILL}"
        params += "" if self.chance(0.7) else " bias_term: false"
        params += " transpose: true" if self.chance(0.2) else ""
        return self.add("InnerProduct", [x], f"inner_product_param {{ {params} }}",
                        (*shape[:axis], outputs))  # fmt: skip

    def dropout(self) -> str | None:
        x = self.pick(lambda shape: len(shape) >= 1)
        ratio = self.rng.choice((0.5, 0.5, 0.2, 0.9))
        return x and self.maybe_in_place(
            "Dropout", x, f"dropout_param {{ dropout_ratio: {ratio} }}"
        )

    def lrn(self) -> str | None:
        x = self.pick(_is_image)
        if x is None:
            return None
        region = " norm_region: WITHIN_CHANNEL" if self.chance(0.25) else ""
        size = self.rng.choice((1, 3, 5, 5, 7))
        params = f"lrn_param {{ local_size: {size} alpha: 0.5 beta: 0.75{region} }}"
        return self.add("LRN", [x], params, self.shapes[x])

    def softmax(self) -> str | None:
        x = self.pick(lambda shape: len(shape) >= 2)
        if x is None:
            return None
        axis = self.rng.choice((1, 1, 1, -1, len(self.shapes[x]) - 1))
        return self.add("Softmax", [x], f"softmax_param {{ axis: {axis} }}", self.shapes[x])

    def im2col(self) -> str | None:
        x = self.pick(_is_image)
        if x is None:
            return None
        n, c, h, w = self.shapes[x]
        if n * c * h * w * 9 > LARGEST:
            return None
        return self.add("Im2col", [x], "convolution_param { kernel_size: 3 pad: 1 }",
                        (n, c * 9, h, w))  # fmt: skip

    def spp(self) -> str | None:
        x = self.pick(lambda shape: _is_image(shape) and min(shape[2:]) >= 4)
        if x is None:
            return None
        n, c = self.shapes[x][:2]
        how = self.rng.choice(("MAX", "AVE"))
        return self.add("SPP", [x], f"spp_param {{ pyramid_height: 2 pool: {how} }}", (n, c * 5))

    def mvn(self) -> str | None:
        x = self.pick(lambda shape: _is_image(shape) and prod(shape[2:]) > 1)
        across = "mvn_param { across_channels: true }" if self.chance(0.4) else ""
        return x and self.add("MVN", [x], across, self.shapes[x])

    def resample(self) -> str | None:
        x = self.pick(lambda shape: _is_image(shape) and prod(shape) * 4 <= LARGEST)
        if x is None:
            return None
        n, c, h, w = self.shapes[x]
        if self.chance(0.5):
            params = f"interp_param {{ height: {h + 2} width: {w + 1} }}"
            return self.add("Interp", [x], params, (n, c, h + 2, w + 1))
        if min(h, w) < 2:
            return None
        return self.add("Crop", [x, self.input((n, c, h - 1, w - 1))], "crop_param { axis: 2 }",
                        (n, c, h - 1, w - 1))  # fmt: skip

    def shuffle(self) -> str | None:
        x = self.pick(lambda shape: _is_image(shape) and shape[1] % 2 == 0)
        if x is None:
            return None
        params = "shuffle_channel_param { group: 2 }"
        return self.add("ShuffleChannel", [x], params, self.shapes[x])

    def permute(self) -> str | None:
        x = self.pick(_is_image)
        if x is None:
            return None
        n, c, h, w = self.shapes[x]
        return self.add("Permute", [x], "permute_param { order: 0 order: 2 order: 3 order: 1 }",
                        (n, h, w, c))  # fmt: skip

    def loss(self) -> str | None:
        x = self.pick(lambda shape: len(shape) >= 2)
        if x is None:
            return None
        shape = self.shapes[x]
        weight = "loss_weight: 0.5" if self.chance(0.3) else ""
        if self.chance(0.5):
            label = self.input((shape[0], *shape[2:]), f"label{shape[1]}_{self.name('')}")
            return self.add("SoftmaxWithLoss", [x, label], weight, ())
        return self.add("EuclideanLoss", [x, self.input(shape)], weight, ())

    # Patterns that fusions look for.

    def residual(self) -> str | None:
        x = self.pick(_is_image)
        if x is None:
            return None
        shape = self.shapes[x]
        y: str | None = x
        for _ in range(self.rng.randint(1, 2)):
            y = self.convolution(y, outputs=shape[1], group=1, kernel=self.rng.choice((1, 3)),
                                 stride=1, pad=-1)  # fmt: skip
            y = self.norm(y, relu=0.4) if self.chance(0.8) else y
        assert y is not None
        bottoms = [x, y] if self.chance(0.5) else [y, x]
        total = self.add("Eltwise", bottoms, "", shape)
        total = self.relu(total) or total if self.chance(0.8) else total
        for _ in range(self.rng.choice((0, 1, 2, 2, 3))):
            self.convolution(total, kernel=1, pad=0, group=1, stride=self.rng.choice((1, 2, 2, 3)))
        return total

    def separable(self) -> str | None:
        x = self.convolution(kernel=1, pad=0, group=1, stride=1)
        y = self.norm(x, relu=0.9) if x else None
        y = self.depthwise(y) if y and _is_image(self.shapes[y]) else y
        return self.norm(y, relu=0.9) if y else None

    def branches(self) -> str | None:
        """Several convolutions of one blob, concatenated, as in an Inception module."""
        x = self.pick(_is_image)
        if x is None:
            return None
        parts = []
        for _ in range(self.rng.randint(2, 3)):
            k = self.rng.choice((1, 3))
            y = self.convolution(x, kernel=k, pad=k // 2, stride=1, group=1,
                                 outputs=self.rng.choice((4, 8, 16, 16, 32, 5)))  # fmt: skip
            y = self.norm(y) if self.chance(0.3) else (self.relu(y) if self.chance(0.6) else y)
            assert y is not None
            parts.append(y)
        shape = self.shapes[parts[0]]
        total = sum(self.shapes[part][1] for part in parts)
        return self.add("Concat", parts, "", (shape[0], total, *shape[2:]))

    def row(self) -> str | None:
        """A layer of the contract tests' table, fed by Inputs, or by a blob of the right shape."""
        row = self.rng.choice(rows())
        if row.phase != self.phase or row.type in {"Input", "DummyData"}:
            return None
        feeds = []
        for i, shape in enumerate(row.shapes):
            if row.fill_of(i) == "normal" and self.chance(0.7):
                like = self.pick(lambda other, shape=shape: other == shape)  # type: ignore[misc]
                if like is not None:
                    feeds.append(like)
                    continue
            feeds.append(self.input(shape, f"{row_input(row, i)}.{self.name('')}"))
        shapes = row.top_shapes or ()
        tops = [self.name() for _ in range(row.tops)]
        name = self.name(row.type.lower())
        self.layers.append(LayerText(name, row.type, tuple(feeds), tuple(tops), row.params))
        self.read |= set(feeds)
        for top, shape in zip(tops, shapes, strict=False):
            self.shapes[top], self.writer[top] = shape, "Input"
        return tops[0] if shapes else None

    phase = "TRAIN"


WEIGHTS: dict[str, int] = {
    "convolution": 20, "norm": 12, "relu": 6, "sum": 8, "concat": 8, "pooling": 9, "residual": 7,
    "separable": 4, "branches": 5, "inner_product": 5, "split": 3, "deconvolution": 3,
    "depthwise": 4, "scale": 3, "prelu": 2, "neuron": 4, "slice": 2, "tile": 2, "reshape": 3,
    "dropout": 2, "lrn": 3, "softmax": 2, "im2col": 2, "spp": 2, "mvn": 1, "resample": 2,
    "shuffle": 1, "permute": 2, "loss": 2, "row": 6,
}  # fmt: skip


def generate(seed: int) -> Case:
    """The case of a number."""
    rng = random.Random(seed)
    net = Blocks(rng)
    net.phase = rng.choice(("TRAIN", "TRAIN", "TEST"))
    for _ in range(rng.choice((1, 1, 1, 2))):
        net.input(_input_shape(rng))
    kinds = list(WEIGHTS)
    aim = len(net.layers) + rng.choice((1, 2, 3, 4, 5, 6, 8, 10))
    for _ in range(40):
        if len(net.layers) >= aim:
            break
        getattr(net, rng.choices(kinds, [WEIGHTS[kind] for kind in kinds])[0])()
    shared = net.phase == "TRAIN" and rng.random() < 0.25
    head = ("force_backward: true",) if rng.random() < 0.9 else ()
    return Case(
        tuple(net.layers), net.phase, _actions(rng, net.phase, shared),
        rng.choice((1, 1, 1, 1, 2)), shared, head,
    )  # fmt: skip


def _input_shape(rng: random.Random) -> Shape:
    batch = rng.choice((1, 1, 2, 2, 3, 5))
    axes = rng.choice((4, 4, 4, 4, 4, 4, 4, 2, 3, 5, 1))
    channels = rng.choice(CHANNELS)
    sides = tuple(rng.choice((1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 14)) for _ in range(2))
    if rng.random() < 0.6:
        sides = (sides[0],) * 2
    shapes: dict[int, Shape] = {
        1: (batch,), 2: (batch, channels), 3: (batch, channels, sides[0]),
        4: (batch, channels, *sides), 5: (batch, min(channels, 8), 3, *sides),
    }  # fmt: skip
    shape = shapes[axes]
    return shape if prod(shape) <= LARGEST else (1, *shape[1:])


def _actions(rng: random.Random, phase: str, shared: bool) -> tuple[Action, ...]:
    usual = ["fwd"] if phase == "TEST" and rng.random() < 0.7 else ["fwd", "bwd"]
    if rng.random() < 0.3:
        names = usual
    elif shared:  # as a solver runs a net
        names = usual + rng.choices(["fwd", "bwd", "weights", "clear", "look"], k=3)
    else:
        kinds = [
            "fwd", "bwd", "look", "look", "look_diff", "hold", "hold_diff", "weights", "clear",
            "write", "part_fwd", "part_bwd", "batch", "fwd", "hold_weights", "empty",
        ]  # fmt: skip
        if rng.random() < 0.05:
            usual = []
        names = usual + rng.choices(kinds, k=rng.randint(1, 5))
        if rng.random() < 0.5:
            names += usual
    return tuple((name, rng.randrange(10**9)) for name in names)
