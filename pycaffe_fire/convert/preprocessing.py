"""What is done to an image before a net sees it: channel order, mean and scale."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import schema
from ..errors import ConvertError
from .model import Model

Floats = NDArray[np.float32]
ORDERS = ("BGR", "RGB")


@dataclass(frozen=True)
class Preprocessing:
    """net input = (pixels - mean) * scale, with channels in the net's order.

    `mean` is one number, one per channel, or an array of the image's own shape, in the net's
    channel order. `order` is that of the pixels that come in; Caffe's nets want BGR.
    """

    mean: Floats | None = None
    scale: float = 1.0
    order: str = "BGR"
    labels: tuple[str, ...] = ()

    def applied(self, pixels: Floats) -> Floats:
        """What the graph does with embedded preprocessing, in NumPy."""
        values = pixels[:, ::-1] if self.swaps(pixels.shape) else pixels
        if self.mean is not None:
            values = values - self.spread_mean()
        return np.ascontiguousarray(values * np.float32(self.scale), np.float32)

    def swaps(self, shape: tuple[int, ...]) -> bool:
        return self.order == "RGB" and len(shape) == 4 and shape[1] == 3

    def spread_mean(self) -> Floats:
        """The mean so shaped that it can be subtracted from images."""
        mean = np.asarray(self.mean, np.float32)
        return mean.reshape(1, -1, 1, 1) if mean.ndim < 2 else mean.reshape(1, *mean.shape[-3:])

    def check(self, blob: str, shape: tuple[int, ...]) -> None:
        if self.mean is None:
            return
        try:
            np.broadcast_shapes(self.spread_mean().shape, shape)
        except ValueError:
            raise ConvertError(
                f'the mean {list(np.shape(self.mean))} does not fit the input "{blob}" '
                f"{list(shape)}"
            ) from None

    def metadata(self) -> dict[str, str]:
        """For metadata_props: what a program needs to know to feed the model and read it."""
        made = {"channel_order": self.order, "scale": f"{self.scale:g}"}
        if self.mean is not None:
            mean = np.asarray(self.mean, np.float32)
            values = mean if mean.ndim < 2 else mean.reshape(-1, *mean.shape[-3:]).mean((0, 2, 3))
            made["mean"] = ",".join(f"{value:g}" for value in np.atleast_1d(values))
        if self.labels:
            made["labels"] = "\n".join(self.labels)
        return made


def of_data_layers(model: Model) -> Preprocessing:
    """What the TEST phase's data layer does, as far as it can be told."""
    for layer in model.param.layer:
        transform: Any = layer.transform_param
        train_only = any(
            rule.phase == schema.TRAIN for rule in layer.include if rule.HasField("phase")
        )
        if not layer.HasField("transform_param") or train_only:
            continue
        mean: Floats | None = None
        if transform.mean_value:
            mean = np.array(list(transform.mean_value), np.float32)
        return Preprocessing(mean, float(transform.scale))
    return Preprocessing()
