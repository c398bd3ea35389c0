"""Classifier and Detector against nets whose answers can be worked out by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from pycaffe_fire import Net, schema
from pycaffe_fire.errors import DataError
from pycaffe_fire.pycaffe.classifier import Classifier
from pycaffe_fire.pycaffe.detector import Detector
from pycaffe_fire.pycaffe.io import load_image, oversample, resize_image
from pycaffe_fire.pycaffe.net_spec import NetSpec
from pycaffe_fire.pycaffe.net_spec import layers as L

SIZE = 8


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """A linear net on 3 x 8 x 8 images with weights of every value."""
    folder = tmp_path_factory.mktemp("model")
    n = NetSpec()
    n.data = L.Input(shape=dict(dim=[4, 3, SIZE, SIZE]))
    n.fc = L.InnerProduct(n.data, num_output=5)
    n.prob = L.Softmax(n.fc)
    schema.write_text(n.to_proto(), folder / "deploy.prototxt")
    net = Net(str(folder / "deploy.prototxt"), schema.TEST)
    rng = np.random.default_rng(1)
    net.params["fc"][0].data[...] = 0.05 * rng.standard_normal((5, 3 * SIZE * SIZE))
    net.params["fc"][1].data[...] = rng.standard_normal(5)
    net.save(str(folder / "net.caffemodel"))
    return str(folder / "deploy.prototxt"), str(folder / "net.caffemodel")


def expected(model: tuple[str, str], inputs: Any) -> Any:
    """The net's answers to preprocessed crops."""
    net = Net(model[0], schema.TEST, weights=model[1])
    weights, bias = (np.array(blob.data) for blob in net.params["fc"])
    scores = np.exp(inputs.reshape(len(inputs), -1) @ weights.T + bias)
    return scores / scores.sum(1, keepdims=True)


def some_images(count: int) -> list[Any]:
    rng = np.random.default_rng(2)
    return [rng.random((11 + i, 13, 3), np.float32) for i in range(count)]


def ready(crops: Any) -> Any:
    means = np.array([1.0, 2.0, 3.0]).reshape(1, 3, 1, 1)
    return (np.asarray(crops).transpose(0, 3, 1, 2)[:, ::-1] * 10 - means) * 0.5


OPTIONS: dict[str, Any] = dict(
    mean=np.array([1.0, 2.0, 3.0]), input_scale=0.5, raw_scale=10, channel_swap=(2, 1, 0)
)


def test_ten_crops_are_averaged(model: tuple[str, str]) -> None:
    classifier = Classifier(*model, image_dims=(10, 12), **OPTIONS)
    images = some_images(3)
    resized = [resize_image(image, (10, 12)) for image in images]
    want = expected(model, ready(oversample(resized, (SIZE, SIZE))))
    found = classifier.predict(images)
    assert found.shape == (3, 5)
    np.testing.assert_allclose(found, want.reshape(3, 10, 5).mean(1), rtol=1e-4)


def test_the_centre_alone(model: tuple[str, str]) -> None:
    classifier = Classifier(*model, image_dims=(10, 12), **OPTIONS)
    images = some_images(5)  # more than a batch
    crops = [resize_image(image, (10, 12))[1:9, 2:10] for image in images]
    np.testing.assert_allclose(
        classifier.predict(images, oversample=False), expected(model, ready(crops)), rtol=1e-4
    )


def test_image_dims_are_the_inputs_size_unless_given(model: tuple[str, str]) -> None:
    classifier = Classifier(*model)
    assert classifier.image_dims.tolist() == [SIZE, SIZE]
    assert classifier.inputs == ["data"] and isinstance(classifier, Net)
    with pytest.raises(DataError, match="smaller than the net's input"):
        Classifier(*model, image_dims=(4, 12))
    with pytest.raises(DataError, match="no images"):
        classifier.predict([])


def test_nets_without_a_image_input(model: tuple[str, str], tmp_path: Path) -> None:
    path = tmp_path / "flat.prototxt"
    path.write_text('layer { name: "x" type: "Input" top: "x" input_param { shape { dim: 3 } } }')
    with pytest.raises(DataError, match="deploy.prototxt"):
        Classifier(str(path), model[1])


def save(path: Path, height: int = 20, width: int = 24) -> str:
    pixels = np.random.default_rng(3).integers(0, 255, (height, width, 3)).astype(np.uint8)
    Image.fromarray(pixels).save(path)
    return str(path)


def test_windows(model: tuple[str, str], tmp_path: Path) -> None:
    detector = Detector(*model, **OPTIONS)
    names = [save(tmp_path / "a.png"), save(tmp_path / "b.png", 30)]
    windows: list[Any] = [[(0, 0, 20, 24), (5, 6, 17, 20)], [np.array([1, 2, 30, 9])]]
    found = detector.detect_windows(list(zip(names, windows, strict=True)))
    assert [d["filename"] for d in found] == [names[0], names[0], names[1]]
    assert found[1]["window"] == (5, 6, 17, 20)
    boxes = [(names[0], 0, 20, 0, 24), (names[0], 5, 17, 6, 20), (names[1], 1, 30, 2, 9)]
    crops = [
        resize_image(load_image(name)[top:bottom, left:right], (SIZE, SIZE))
        for name, top, bottom, left, right in boxes
    ]
    want = expected(model, ready(crops))
    np.testing.assert_allclose([d["prediction"] for d in found], want, rtol=1e-4)


def test_context_shows_surroundings_and_the_mean_outside(model: tuple[str, str]) -> None:
    detector = Detector(*model, **OPTIONS, context_pad=2)
    assert detector.crop_dims.tolist() == [SIZE, SIZE, 3]
    np.testing.assert_allclose(detector.crop_mean[0, 0], np.array([3.0, 2.0, 1.0]) / 10)
    image = np.full((40, 40, 3), 0.5, np.float32)
    image[18:22, 18:22] = 1
    inside = detector.crop(image, (18, 18, 21, 21))
    assert inside.shape == (SIZE, SIZE, 3)
    assert (inside[2:6, 2:6] > 0.9).all() and (inside[0] == 0.5).all()
    corner = detector.crop(image, (0, 0, 3, 3))
    np.testing.assert_allclose(corner[0, 0], detector.crop_mean[0, 0], rtol=1e-6)
    assert (corner[4:, 4:] == 0.5).all()
    np.testing.assert_allclose(corner[1, 5], detector.crop_mean[0, 0], rtol=1e-6)


def test_context_without_a_mean_is_black(model: tuple[str, str]) -> None:
    detector = Detector(*model, context_pad=2)
    assert (detector.crop(np.ones((20, 20, 3)), (0, 0, 3, 3))[0] == 0).all()


def test_windows_that_show_nothing(model: tuple[str, str], tmp_path: Path) -> None:
    detector = Detector(*model)
    name = save(tmp_path / "a.png")
    for window in [(5, 5, 5, 9), (20, 0, 30, 5), (3, 9, 8, 2), (1, 2, 3)]:
        with pytest.raises(DataError, match=r"a\.png: window .* 20 x 24"):
            detector.detect_windows([(name, [window])])
    with pytest.raises(DataError, match="no windows"):
        detector.detect_windows([])
    with pytest.raises(DataError, match="square input of more than 8"):
        detector.configure_crop(4)


def test_selective_search_is_explained(model: tuple[str, str], tmp_path: Path) -> None:
    with pytest.raises(ImportError, match="MATLAB.*detect_windows"):
        Detector(*model).detect_selective_search([save(tmp_path / "a.png")])
