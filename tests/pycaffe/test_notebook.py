"""What a notebook shows of nets and blobs."""

from __future__ import annotations

from xml.etree import ElementTree

from tests.pycaffe.cases import DEPLOY, deploy


def test_a_net_in_words() -> None:
    assert repr(deploy()) == "<Net 'small': 5 layers, 539 weights>"


def test_a_net_draws_itself() -> None:
    net = deploy()
    root = ElementTree.fromstring(net._repr_svg_())
    assert root.tag.endswith("svg")
    text = "".join(root.itertext())
    assert all(name in text for name in ("data", "conv", "ReLU", "ip", "prob", "4x8x4x4"))


def test_a_net_s_table_has_every_layer_with_its_shapes() -> None:
    page = deploy(DEPLOY.replace('"small"', '"<small>"'))._repr_html_()
    assert "<svg" in page and "&lt;small&gt;" in page and "<small>" not in page
    for cell in ("conv 4×8×4×4", "8×2×3×3, 8", "InnerProduct", "prob 4×3"):
        assert f"<td>{cell}</td>" in page


def test_a_notebook_shows_the_whole_drawing() -> None:
    page = deploy()._repr_html_()
    assert '<svg style="max-width: 100%; height: auto" ' in page
    assert "overflow" not in page and "max-height" not in page


def test_a_blob_in_words_and_numbers() -> None:
    blob = deploy().blobs["data"]
    assert repr(blob) == "<Blob data: 4×2×6×6>"
    blob.data[...] = 2
    blob.data[0, 0, 0, 0] = -1
    page = blob._repr_html_()
    assert "4×2×6×6" in page and "-1 to 2, mean 1.99" in page
    blob.reshape(0, 3)
    assert "0×3" in blob._repr_html_()
