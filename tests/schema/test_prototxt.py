"""Prototxts: what parses, what does not and how that is said, and what is written."""

from __future__ import annotations

import os
import re
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from google.protobuf import text_format

from pycaffe_fire import schema
from pycaffe_fire.errors import PrototxtError
from pycaffe_fire.registry import did_you_mean
from pycaffe_fire.schema.tokens import Source

ROOT = Path(__file__).resolve().parents[2]


def net(text: str) -> Any:
    return schema.parse_text(text, schema.NetParameter(), "net.prototxt")


LEGAL = [
    "",
    "# only a comment",
    'name: "a" # comment with "quotes" and {\nlayer { name: "x" } # end',
    "name: 'single' force_backward: true",
    'name: "joined " \'strings\' "here"',
    r'name: "esc \" \' \\ \n \t \101 \x41"',
    'layer: { name: "colon" } layer < name: "angle" > layer {}',
    'name: "a", force_backward: t; debug_info: 1 layer { name: "c" top: "t"; top: "u", };',
    "input_dim: [1, 2, 3, 4] input_dim: [] input_dim: 0x10 input_dim: 010 input_dim: -3",
    'layer { top: ["a", "b"] param: [{ lr_mult: 1 }, { lr_mult: 2. }] }',
    "layer { loss_weight: 1 loss_weight: -.5 loss_weight: 1e-3 loss_weight: 2.5f "
    "loss_weight: inf loss_weight: -inf }",
    "state { phase: TRAIN } layer { phase: 1 include { phase: TEST } }",
    "layer { transform_param { } }",
    'layer\n{\nname\n:\n"spread"\n}',
]


@pytest.mark.parametrize("text", LEGAL)
def test_agrees_with_protobuf(text: str) -> None:
    expected = text_format.Parse(text, schema.NetParameter())
    assert schema.parse_text(text, schema.NetParameter()).layer == expected.layer
    raw = schema.NetParameter()
    schema.reader._Parser(Source(text, "")).parse(raw)
    assert raw == expected


def test_nan_bom_crlf_and_foreign_comments(tmp_path: Path) -> None:
    path = tmp_path / "net.prototxt"
    path.write_bytes(
        b'\xef\xbb\xbfname: "a"\r\n# \xb0\xa1 not UTF-8\r\nlayer { name: "\xc3\xa9" '
        b"loss_weight: nan }\r\n"
    )
    read = schema.read_net(path)
    assert read.name == "a" and read.layer[0].name == "é"
    assert np.isnan(read.layer[0].loss_weight[0])


WRONG = [
    ('nam: "x"', '1:1: NetParameter has no field "nam" (did you mean "name"?); in: nam: "x"'),
    ('name: "x"\n  layer { nme: "y" }', '2:11: LayerParameter has no field "nme" (did you mean'),
    ("base_lr: 0.1", "this looks like a solver prototxt"),
    ("layers { scale_param { } }", '"layers" is the old form; write "layer"'),
    ("layer { blobs_lr: 1 }", 'only the old "layers" form has it'),
    (
        "layer { pooling_param { pool: AVERAGE } }",
        '1:31: "pool" has no value AVERAGE (did you mean "AVE"?); known: MAX, AVE, STOCHASTIC',
    ),
    ("layer { pooling_param { pool: ave } }", '(did you mean "AVE"?)'),
    ("layer { pooling_param { pool: 7 } }", '"pool" has no value 7'),
    ('layer { pooling_param { pool: "MAX" } }', '"pool" has no value "MAX" (did you mean "MAX"?)'),
    (
        "layer { type: CONVOLUTION }",
        '"type" is a string, got CONVOLUTION; strings need quotes',
    ),
    ('layers { type: "Convolution" }', '"type" has no value "Convolution" (did you mean'),
    ('name: "open', '1:7: this string has no closing " on its line'),
    ('layer {\n  name: "a"\n', '1:7: this "{" is never closed by "}"'),
    ("layer { } }", '1:11: "}" closes nothing'),
    ("layer { >", "expected a field name, got >"),
    ('name: "a"\nname: "b"', '2:1: "name" is given twice, first on line 1'),
    ("layer { lrn_param { } lrn_param { } }", '"lrn_param" is given twice'),
    (
        "layer { image_data_param { source: data/train.txt } }",
        '"source" lacks a quote before its value; strings need quotes',
    ),
    ('name: conv1"', '"name" lacks a quote before its value; strings need quotes'),
    ("layer { lstm_parm { } }", 'has no field "lstm_parm" (did you mean "lstm_param"?)'),
    ("name: 5", '"name" is a string, got 5; strings need quotes: name: "5"'),
    ('force_backward: "yes"', '"force_backward" is true or false, got "yes"'),
    ("input_dim: 1.5", '"input_dim" is an integer, got 1.5'),
    ("input_dim: 3000000000", '"input_dim" must be within -2147483648..2147483647'),
    ("input_dim: 08", '"input_dim" is an integer, got 08'),
    ("layer { convolution_param { num_output: -1 } }", "must be within 0..4294967295, got -1"),
    ("layer { loss_weight: 1e39 }", '"loss_weight" is too large for a float: 1e39'),
    ("layer { loss_weight: abc }", '"loss_weight" is a number, got abc'),
    ("layer { loss_weight: 1.2.3 }", '"1.2.3" is not a number'),
    ("layer { loss_weight: { } }", '"loss_weight" is a number, got {'),
    ("layer { loss_weight: " + "9" * 5000 + " }", '"loss_weight" is too large'),
    ("input_dim: " + "9" * 5000, '"input_dim"'),
    ('layer { name "a" }', '1:14: expected ":" after "name"'),
    ("layer: 5", '"layer" is a block: expected "{", got 5'),
    ("layer", '"layer" is a block: expected "{", got the end of the text'),
    ("name:", '"name" is a string, got the end of the text'),
    ("input_dim: [1, 2", 'expected "," or "]" in the list of "input_dim"'),
    ("layer { clip_param { min: 1 } }", '1:20: ClipParameter must have a field "max"'),
    ("@", 'unexpected character "@"'),
    ("5: 3", "expected a field name, got 5"),
]


@pytest.mark.parametrize(("text", "expected"), WRONG)
def test_errors(text: str, expected: str) -> None:
    with pytest.raises(PrototxtError) as caught:
        net(text)
    assert re.match(r"net\.prototxt:\d+:\d+: ", str(caught.value))
    assert expected in str(caught.value)
    assert len(str(caught.value)) < 1500


def test_hints_are_about_what_differs() -> None:
    assert did_you_mean("lstm_param", ["loss_param", "lrn_param"]) == ""
    assert did_you_mean("los_param", ["loss_param"]) == ' (did you mean "loss_param"?)'


def test_deep_nesting_is_an_error_not_a_crash() -> None:
    for text in ("layer { " * 50_000, "params_pair < " * 50_000):
        for message in (schema.NetParameter(), schema.MultiPhaseSolverParameter()):
            with pytest.raises(PrototxtError, match="has no field"):
                schema.parse_text(text, message)


def test_no_message_holds_itself() -> None:
    """The reader's recursion relies on it."""

    def check(name: str, within: tuple[str, ...]) -> None:
        assert name not in within, f"{name} can hold itself"
        for field in schema.messages.FIELDS[name].values():
            if field.kind == "message":
                check(field.type_name, (*within, name))

    for name in schema.messages.FIELDS:
        check(name, ())


def test_long_lines_are_cut() -> None:
    text = " ".join(f'layer {{ name: "l{i}" }}' for i in range(1000)) + " oops: 1"
    with pytest.raises(PrototxtError) as caught:
        net(text)
    assert "oops" in str(caught.value) and len(str(caught.value)) < 300


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"", "the file is empty"),
        (b" \n# nothing\n", "the file is empty"),
        (b"\x0a\x04tiny\xa2\x06\x02\x0a\x00", "looks like a .caffemodel"),
        (b"\x08\x0a\x12\x03abc\x1a\x00", "looks like a .solverstate"),
        (b"\x89HDF\r\n\x1a\n" + bytes(100), "looks like an HDF5 file"),
        (b'name: "\xff"', "not valid UTF-8"),
    ],
)
def test_wrong_files(tmp_path: Path, content: bytes, expected: str) -> None:
    path = tmp_path / "net.prototxt"
    path.write_bytes(content)
    with pytest.raises(PrototxtError, match=expected) as caught:
        schema.read_net(path)
    assert str(caught.value).startswith(str(path))


def test_no_file(tmp_path: Path) -> None:
    with pytest.raises(PrototxtError, match="no such file"):
        schema.read_net(tmp_path / "missing.prototxt")
    with pytest.raises(PrototxtError, match="is a directory"):
        schema.read_solver(tmp_path)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(PrototxtError, match="not a regular file"):
        schema.read_net(tmp_path / "pipe")


def test_layer_lines(tmp_path: Path) -> None:
    text = 'name: "n"\nlayer { name: "data" }\nlayer {\n name: "data"\n}\nlayer { name: "ip" }\n'
    assert schema.layer_lines(text) == {"data": [2, 3], "ip": [6]}
    assert schema.layer_lines('layers { layer { name: "old" } }\nlayers { name: "v1" }') == {
        "old": [1],
        "v1": [2],
    }
    path = tmp_path / "net.prototxt"
    path.write_text(text)
    assert schema.locate(path, "ip") == 6
    assert schema.locate(path, "nobody") is None


def test_fork_and_popular_prototxts_parse() -> None:
    read = net(
        """
        default_forward_type: FLOAT16
        layer { type: "Convolution" convolution_param { engine: MKLDNN conv_algos_override: "1" } }
        layer { forward_type: FLOAT batch_norm_param { scale_bias: true engine: CUDNN } }
        layer { norm_param { across_spatial: false scale_filler { value: 20 } } }
        layer { prior_box_param { min_size: 30 aspect_ratio: 2 flip: true variance: 0.1 } }
        layer { permute_param { order: 0 order: 2 } }
        layer { detection_output_param { num_classes: 21 code_type: CENTER_SIZE } }
        layer { roi_pooling_param { pooled_w: 7 pooled_h: 7 spatial_scale: 0.0625 } }
        layer { smooth_l1_loss_param { sigma: 3 } loss_param { normalization: PRE_FIXED } }
        layer { interp_param { height: 60 width: 60 } }
        layer { bn_param { slope_filler { value: 1 } frozen: true momentum: 0.95 } }
        layer { bn_param { scale_filler { value: 1 } shift_filler { } bn_mode: INFERENCE } }
        layer { upsample_param { scale: 2 upsample_w: 480 } }
        layer { shuffle_channel_param { group: 3 } reorg_param { stride: 2 } }
        layer { type: "ReLU6" }
        """
    )
    assert len(read.layer) == 14
    assert read.layer[9].bn_param.momentum == pytest.approx(0.95)


def test_writes_in_caffes_style(tmp_path: Path) -> None:
    text = (
        'name: "quote \\" and \\\\ and \\n and é"\n'
        "layer {\n"
        '  name: "a"\n'
        "  loss_weight: 1\n  loss_weight: 0.1\n  loss_weight: 1e-08\n  loss_weight: 0.33333334\n"
        "  loss_weight: 16777217e0\n"
        "  transform_param {\n    mirror: true\n  }\n"
        "  pooling_param {\n    pool: AVE\n  }\n"
        "}\n"
    ).replace("16777217e0", "16777216")
    message = net(text)
    assert schema.to_text(message) == text
    path = tmp_path / "out.prototxt"
    schema.write_text(message, path)
    assert schema.read_net(path) == message
    assert [p.name for p in tmp_path.iterdir()] == ["out.prototxt"]


def test_every_float_survives_text() -> None:
    bits = np.random.default_rng(1).integers(0, 2**32, 3000, np.uint32)
    values = bits.view(np.float32)
    layer = schema.LayerParameter(loss_weight=values[np.isfinite(values)].tolist())
    again = schema.parse_text(schema.to_text(layer), schema.LayerParameter())
    assert again == layer


def test_all_bytes_survive_text() -> None:
    datum = schema.Datum(data=bytes(range(256)))
    assert schema.parse_text(schema.to_text(datum), schema.Datum()) == datum
    assert text_format.Parse(schema.to_text(datum), schema.Datum()) == datum


def test_cannot_write(tmp_path: Path) -> None:
    with pytest.raises(PrototxtError, match="cannot be written"):
        schema.write_text(schema.NetParameter(), tmp_path / "no" / "folder.prototxt")


def test_time_to_parse_grows_no_faster_than_the_text() -> None:
    layer = (
        'layer {\n name: "conv"\n type: "Convolution"\n bottom: "a"\n top: "b"\n'
        " param {\n  lr_mult: 1\n  decay_mult: 1\n }\n convolution_param {\n  num_output: 64\n"
        '  weight_filler {\n   type: "xavier"\n  }\n }\n}\n'
    )

    def seconds(text: str) -> float:
        start = time.process_time()
        net(text)
        return time.process_time() - start

    short, long = (min(seconds(layer * many) for _ in range(3)) for many in (25, 200))
    assert long < 24 * short  # 8 times the text; the square would be 64
