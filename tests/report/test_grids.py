"""Weights and activations as images: which number lands where, in which grey or colour."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from pycaffe_fire import Net, schema
from pycaffe_fire.cli import fire_plot
from pycaffe_fire.data.datum import encode_datum
from pycaffe_fire.data.writer import DatabaseWriter
from pycaffe_fire.report.grids import GAP, SMALLEST, feature_grid, filter_grid

NET = """
layer { name: "data" type: "Input" top: "data"
  input_param { shape { dim: 2 dim: 3 dim: 8 dim: 8 } } }
layer { name: "conv" type: "Convolution" bottom: "data" top: "conv"
  convolution_param { num_output: 5 kernel_size: 3 weight_filler { type: "xavier" } } }
layer { name: "ip" type: "InnerProduct" bottom: "conv" top: "ip"
  inner_product_param { num_output: 4 weight_filler { type: "xavier" } } }
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "net.prototxt").write_text(NET)
    Net("net.prototxt", schema.TEST).save("net.caffemodel")
    Image.new("RGB", (9, 9), (255, 0, 0)).save("red.png")
    return tmp_path


def tile(image: Image.Image, column: int, row: int, side: int) -> np.ndarray:
    """The pixel in the middle of a square tile."""
    step = side + GAP
    at = GAP + column * step + side // 2, GAP + row * step + side // 2
    return np.asarray(image)[at[1], at[0]]


def test_filters_of_three_channels_are_colours() -> None:
    weights = np.zeros((2, 3, 3, 3), np.float32)
    weights[1, 2] = 0.5  # the last channel of BGR is red
    weights[0] = -0.5
    image = filter_grid(weights)
    side = SMALLEST
    assert tile(image, 0, 0, side).tolist() == [0, 0, 0]
    assert tile(image, 1, 0, side).tolist() == [255, 128, 128]  # 0 is mid-grey


def test_filters_of_many_channels_have_a_row_each() -> None:
    weights = np.zeros((3, 5, 3, 3), np.float32)
    weights[2, 4] = 1
    image = filter_grid(weights)
    assert image.size == (5 * (SMALLEST + GAP) + GAP, 3 * (SMALLEST + GAP) + GAP)
    assert tile(image, 4, 2, SMALLEST) == 255 and tile(image, 3, 2, SMALLEST) == 128


def test_features_share_one_scale() -> None:
    values = np.zeros((4, 6, 6), np.float32)
    values[1], values[3] = 1, 2
    image = feature_grid(values)
    greys = [int(tile(image, n % 2, n // 2, SMALLEST)) for n in range(4)]
    assert greys == [0, 128, 0, 255]
    assert feature_grid(np.arange(10, dtype=np.float32)).width > 100
    assert feature_grid(np.zeros((2, 1, 1), np.float32)).mode == "L"


def test_the_commands(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert fire_plot.main(["filters", "net.caffemodel", "-o", "f.png"]) == 0
    assert "f.png: conv, 5 x 3 x 3 x 3, " in capsys.readouterr().out
    assert fire_plot.main(["filters", "net.caffemodel", "--layer", "ip", "-o", "ip.png"]) == 0
    flags = ["features", "net.prototxt", "net.caffemodel", "red.png", "--blob"]
    assert fire_plot.main([*flags, "conv", "-o", "c.png"]) == 0
    assert fire_plot.main([*flags, "data", "--scale", "1", "-o", "d.png"]) == 0
    grid = Image.open("d.png")  # BGR: the third channel alone is bright
    assert [int(tile(grid, n % 2, n // 2, SMALLEST)) for n in range(3)] == [0, 0, 255]


def test_a_net_with_data_shows_its_own(folder: Path) -> None:
    with DatabaseWriter("db") as writer:
        for number in range(4):
            pixels = np.full((3, 8, 8), 60 * number, np.uint8)
            pixels[0, 0, 0] = 255
            writer.put(b"%d" % number, encode_datum(pixels, 0))
    data = (
        'layer { name: "data" type: "Data" top: "data" '
        'data_param { source: "db" batch_size: 4 backend: LMDB } }\n'
    )
    (folder / "own.prototxt").write_text(data + NET.split("\n", 3)[3])
    flags = ["features", "own.prototxt", "net.caffemodel", "--blob", "data", "--sample", "2"]
    assert fire_plot.main([*flags, "-o", "d.png"]) == 0
    assert tile(Image.open("d.png"), 1, 0, SMALLEST) == 0  # 120, the least of the sample


def test_refusals(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    features = ["features", "net.prototxt", "net.caffemodel"]
    for arguments, message in (
        (["filters", "net.caffemodel", "-o", "x.doc"], "must end in one of: .png"),
        (["filters", "net.caffemodel", "--layer", "cnv", "-o", "x.png"], 'did you mean "conv"'),
        ([*features, "--blob", "conv", "-o", "x.png"], "name an image"),
        ([*features, "red.png", "--blob", "cnv", "-o", "x.png"], 'did you mean "conv"'),
        ([*features, "red.png", "--blob", "conv", "--sample", "1", "-o", "x.png"], "has 1 samples"),
        ([*features, "none.png", "--blob", "conv", "-o", "x.png"], "none.png: "),
    ):
        assert fire_plot.main(arguments) == 1, arguments
        assert message in capsys.readouterr().err
    assert not (folder / "x.png").exists()
