"""Mean and variance of a batch, and the gradient through normalising by them."""

from __future__ import annotations

from typing import Any

from ..backend.blob import Blob

CHANNELWISE = (0, 2)  # the axes of `by_channel` that a channel's statistics run over


def by_channel(array: Any, blob: Blob) -> Any:
    """A blob's array seen as (samples, channels, pixels); a blob with one axis is one channel."""
    if len(blob.shape) == 1:
        return array.reshape(blob.shape[0], 1, 1)
    return array.reshape(*blob.shape[:2], -1)


def moments(x: Any, axes: tuple[int, ...]) -> tuple[Any, Any]:
    """Mean and (biased) variance over `axes`, which stay as extents of 1."""
    mean = x.mean(axis=axes, keepdims=True)
    centred = x - mean
    return mean, (centred * centred).mean(axis=axes, keepdims=True)


def through_moments(dy: Any, y: Any, deviation: Any, axes: tuple[int, ...]) -> Any:
    """The gradient of x where y = (x - mean) / deviation and both depend on x."""
    along = (dy * y).mean(axis=axes, keepdims=True)
    return (dy - dy.mean(axis=axes, keepdims=True) - along * y) / deviation
