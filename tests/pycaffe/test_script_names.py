"""Names that public scripts use beside pycaffe's documented ones, and what pycaffe's own tests
expect of them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from google.protobuf import text_format

import pycaffe_fire as caffe
from pycaffe_fire import layers as L
from pycaffe_fire import pycaffe, schema
from pycaffe_fire.pycaffe import draw
from tests.net.net_cases import IMAGES, LABELS, conv, inputs, ip, layer, softmax_loss
from tests.pycaffe.cases import DROPIN


def net() -> caffe.Net:
    text = inputs() + conv("conv", "data") + ip("fc", "conv") + softmax_loss("fc")
    return caffe.Net(schema.parse_text(text, schema.NetParameter()), caffe.TRAIN)


def test_clear_param_diffs_clears_arrays_that_are_held() -> None:
    made = net()
    made.forward(data=IMAGES, label=LABELS)
    held = {name: [blob.diff for blob in blobs] for name, blobs in made.params.items()}
    made.backward()
    assert all(diff.any() for diffs in held.values() for diff in diffs)
    made.clear_param_diffs()
    assert not any(diff.any() for diffs in held.values() for diff in diffs)
    made.backward()
    once = made.params["conv"][0].diff.copy()
    made.backward()
    np.testing.assert_allclose(made.params["conv"][0].diff, 2 * once, rtol=1e-5, atol=1e-7)


def test_nccl_needs_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    from pycaffe_fire.backend.cuda.device import Found
    from pycaffe_fire.pycaffe import nccl

    monkeypatch.setattr(nccl, "probe", lambda: Found(None, 0, "none"))
    assert caffe.has_nccl() is False
    assert isinstance(caffe.NCCL.new_uid(), bytes)


def test_a_wrong_input_is_named_by_its_type_as_in_caffe() -> None:
    with pytest.raises(TypeError, match=r"Concat input 1 is not a Top \(type is <class 'list'>\)"):
        L.Concat(L.DummyData(shape={"dim": [1]}), [])


def test_messages_are_found_where_scripts_look() -> None:
    for module in (caffe.io, caffe.net_spec, caffe.draw):
        assert module.caffe_pb2.NetParameter is schema.NetParameter
    model = caffe.io.caffe_pb2.NetParameter()
    text_format.Merge('name: "dream" layer { name: "a" type: "Input" top: "a" }', model)
    model.force_backward = True
    assert "force_backward: true" in str(model)


def layer_of(text: str) -> object:
    return schema.parse_text(text, schema.NetParameter()).layer[0]


def test_drawings_texts() -> None:
    window = layer_of(conv("c", "data", 6, "param { lr_mult: 1 } param { lr_mult: 2 }"))
    assert draw.get_layer_label(window, "TB") == '"c (Convolution) kernel size: 3 stride: 1 pad: 1"'
    assert draw.get_layer_label(window, "LR", True).endswith('pad: 1\\nlr mult: 1.0, 2.0"')
    assert draw.get_edge_label(window) == "6"
    pool = layer_of(
        layer("Pooling", "p", "c", "p", "pooling_param { pool: AVE kernel_h: 2 kernel_w: 3 }")
    )
    assert draw.get_layer_label(pool, "LR") == (
        '"p\\n(AVE Pooling)\\nkernel size: 2x3\\nstride: 1\\npad: 0"'
    )
    assert draw.get_edge_label(pool) == '""'
    assert draw.get_layer_label(layer_of(layer("ReLU", "r", "c")), "LR") == '"r\\n(ReLU)"'
    assert draw.get_pooling_types_dict() == {0: "MAX", 1: "AVE", 2: "STOCHASTIC"}
    assert draw.choose_color_by_layertype("Convolution").startswith("#")
    assert draw.BLOB_STYLE["shape"] == "octagon"


def test_net_s_methods_are_functions_of_the_module() -> None:
    made = net()
    assert pycaffe._Net_blobs.fget(made) is made.blobs  # type: ignore[misc]
    assert pycaffe._Net_inputs.fget(made) == ["data", "label"]  # type: ignore[misc]
    out = pycaffe._Net_forward(made, data=IMAGES, label=LABELS)
    assert set(out) == {"loss"}
    batches = list(pycaffe._Net_batch(made, {"data": np.ones((5, 3, 8, 8))}))
    assert [b["data"].sum() for b in batches] == [4 * 192, 192]
    tops = pycaffe._Net_get_id_name(caffe.Net._top_ids, "_top_names")
    assert tops.fget(made) == dict(made.top_names)  # type: ignore[misc]


def test_the_drop_in_module_has_them(tmp_path: Path) -> None:
    code = (
        "import caffe; from caffe import pycaffe; import caffe.pycaffe as p\n"
        "assert p.Net is caffe.Net is pycaffe.Net and p._Net_forward and caffe.pycaffe is p\n"
        "assert caffe._caffe.Net is caffe.Net and p.SGDSolver is caffe.SGDSolver\n"
    )
    paths = f"import sys; sys.path[:0] = [{str(DROPIN)!r}, {str(DROPIN.parent.parent)!r}]\n"
    done = subprocess.run(
        [sys.executable, "-c", paths + code], capture_output=True, text=True, cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
