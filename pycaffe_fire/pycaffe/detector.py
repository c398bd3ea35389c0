"""pycaffe's Detector: R-CNN style, it classifies windows of images."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import schema
from ..errors import DataError
from .classifier import image_transformer
from .io import load_image, resize_image
from .net import Net

Window = Sequence[float]  # ymin, xmin, ymax, xmax


class MissingModuleError(DataError, ImportError):
    """Something to find windows with is not installed."""


class Detector(Net):
    """A net for windows; `context_pad` shows that many pixels of their surroundings as well.

    The other arguments are those of Classifier.
    """

    def __init__(
        self,
        model_file: str | os.PathLike[str],
        pretrained_file: str | os.PathLike[str],
        mean: Any = None,
        input_scale: float | None = None,
        raw_scale: float | None = None,
        channel_swap: Sequence[int] | None = None,
        context_pad: int | None = None,
    ) -> None:
        super().__init__(os.fspath(model_file), schema.TEST, weights=os.fspath(pretrained_file))
        self.transformer = image_transformer(self, mean, input_scale, raw_scale, channel_swap)
        self.configure_crop(context_pad)

    def detect_windows(
        self, images_windows: Iterable[tuple[str | os.PathLike[str], Sequence[Window]]]
    ) -> list[dict[str, Any]]:
        """Predictions of windows, given as pairs of an image's file and its windows.

        A list of {"window": ..., "prediction": ..., "filename": ...}, in the order of windows.
        """
        name = self.inputs[0]
        found: list[dict[str, Any]] = []
        ready: list[NDArray[Any]] = []
        for filename, windows in images_windows:
            image = load_image(filename)
            for window in windows:
                crop = self.crop(image, window, os.fspath(filename))
                ready.append(self.transformer.preprocess(name, crop))
                found.append({"window": window, "prediction": None, "filename": filename})
        if not ready:
            raise DataError("no windows to look at")
        predictions = self.forward_all(None, **{name: np.stack(ready)})[self.outputs[0]]
        for detection, prediction in zip(found, predictions, strict=True):
            detection["prediction"] = prediction
        return found

    def detect_selective_search(
        self, image_fnames: Sequence[str | os.PathLike[str]]
    ) -> list[dict[str, Any]]:
        """`detect_windows` with those that selective search (a MATLAB program) proposes."""
        try:
            proposer = import_module("selective_search_ijcv_with_python")
        except ImportError:
            raise MissingModuleError(
                "selective search runs in MATLAB through the module "
                "selective_search_ijcv_with_python (github.com/sergeyk), which cannot be imported; "
                "use any program that proposes windows, and detect_windows (crop_mode=list)"
            ) from None
        names = [os.path.abspath(name) for name in image_fnames]
        windows = proposer.get_windows(names, cmd="selective_search_rcnn")
        return self.detect_windows(zip(names, windows, strict=True))

    def configure_crop(self, context_pad: int | None) -> None:
        """How `crop` works: with how much context, which is the mean where an image ends."""
        name = self.inputs[0]
        back = np.argsort(self.transformer.transpose[name])
        self.crop_dims = np.array(self.blobs[name].shape[1:])[back]
        self.context_pad = context_pad or 0
        self.crop_mean: NDArray[Any] = np.zeros(self.crop_dims, np.float32)
        size = self.crop_dims[1]
        if not self.context_pad:
            return
        if self.crop_dims[0] != size or not 0 < 2 * self.context_pad < size:
            raise DataError(
                f"context_pad {self.context_pad} needs a square input of more than "
                f"{2 * self.context_pad} pixels, got {self.crop_dims[0]} x {size}"
            )
        mean = self.transformer.mean.get(name)
        if mean is not None:  # as the image was before preprocess
            mean = mean.transpose(back)
            swap = self.transformer.channel_swap.get(name)
            mean = mean if swap is None else mean[:, :, np.argsort(swap)]
            self.crop_mean = mean / self.transformer.raw_scale.get(name, 1.0)

    def crop(self, im: Any, window: Window, where: str = "the image") -> NDArray[Any]:
        """A window of an image, with its context if there is to be any."""
        image, box = np.asarray(im), np.array(window, dtype=float)
        height, width = image.shape[:2]
        whole = np.clip(np.asarray(window, dtype=int), 0, None) if len(box) == 4 else np.zeros(4)
        if not (whole[0] < min(whole[2], height) and whole[1] < min(whole[3], width)):
            raise DataError(
                f"{where}: window {list(window)} (ymin, xmin, ymax, xmax) shows nothing of a "
                f"image of {height} x {width}"
            )
        if self.context_pad:
            return self._crop_with_context(image, box)
        plain: NDArray[Any] = image[whole[0] : whole[2], whole[1] : whole[3]]
        return plain

    def _crop_with_context(self, image: NDArray[Any], box: NDArray[Any]) -> NDArray[Any]:
        """The window enlarged so that it fills the input but for context_pad pixels all around.

        Windows include their last row and column; numbers round as in R-CNN.
        """
        size = int(self.crop_dims[0])
        half = (box[2:] - box[:2] + 1) / 2
        reach = half * size / (size - 2 * self.context_pad)
        centre = box[:2] + half
        box = np.round(np.concatenate([centre - reach, centre + reach]))
        scale = size / (box[2:] - box[:2] + 1)
        pad = np.round(np.maximum(0, -box[:2]) * scale).astype(int)
        limits = np.array(image.shape[:2])
        box = np.clip(box, 0, np.tile(limits, 2)).astype(int)
        shown = np.round((box[2:] - box[:2] + 1) * scale).astype(int)
        shown = np.clip(shown, 1, size - pad)
        part = resize_image(image[box[0] : box[2], box[1] : box[3]], shown)
        crop = np.ones(self.crop_dims, np.float32) * self.crop_mean.astype(np.float32)
        (top, left), (bottom, right) = pad, pad + shown
        crop[top:bottom, left:right] = part
        return crop
