"""Which layers a net keeps: phases, levels and stages."""

from __future__ import annotations

from typing import Any

import pytest

import pycaffe_fire as caffe
from pycaffe_fire.errors import NetError
from pycaffe_fire.net.graph import filter_net
from tests.net.net_cases import inputs, layer, make, message, write


def kept(
    rules: str, phase: int = caffe.TRAIN, level: int = 0, stages: tuple[str, ...] = ()
) -> bool:
    net: Any = message(layer("Silence", "it", "", "", rules))
    net.state.phase, net.state.level = phase, level
    net.state.stage.extend(stages)
    return bool(filter_net(net).layer)


@pytest.mark.parametrize(
    ("rules", "state", "expected"),
    [
        ("", {}, True),
        ("include { phase: TRAIN }", {}, True),
        ("include { phase: TEST }", {}, False),
        ("include { phase: TEST }", {"phase": caffe.TEST}, True),
        ("exclude { phase: TRAIN }", {}, False),
        ("exclude { phase: TEST }", {}, True),
        ("include { phase: TEST } include { phase: TRAIN }", {}, True),
        ("include { min_level: 2 }", {"level": 1}, False),
        ("include { min_level: 2 }", {"level": 2}, True),
        ("include { max_level: 2 }", {"level": 2}, True),
        ("include { max_level: 2 }", {"level": 3}, False),
        ("include { min_level: 1 max_level: 3 }", {"level": 4}, False),
        ("exclude { min_level: 1 }", {"level": 1}, False),
        ('include { stage: "a" }', {}, False),
        ('include { stage: "a" }', {"stages": ("b", "a")}, True),
        ('include { stage: "a" stage: "b" }', {"stages": ("a",)}, False),
        ('include { stage: "a" stage: "b" }', {"stages": ("a", "b")}, True),
        ('include { stage: "a" } include { stage: "b" }', {"stages": ("b",)}, True),
        ('include { not_stage: "a" }', {}, True),
        ('include { not_stage: "a" }', {"stages": ("a",)}, False),
        ('include { phase: TRAIN not_stage: "a" }', {"stages": ("b",)}, True),
        ('exclude { phase: TRAIN stage: "a" }', {}, True),
        ('exclude { phase: TRAIN stage: "a" }', {"stages": ("a",)}, False),
        ('exclude { stage: "a" } exclude { stage: "b" }', {"stages": ("b",)}, False),
    ],
)
def test_rules(rules: str, state: dict[str, Any], expected: bool) -> None:
    assert kept(rules, **state) == expected


def test_include_and_exclude_together_are_refused() -> None:
    with pytest.raises(NetError, match='"it".*not both'):
        kept("include { phase: TRAIN } exclude { phase: TEST }")


def test_net_takes_phase_level_and_stages(tmp_path: Any) -> None:
    text = (
        inputs()
        + layer("ReLU", "train", "data", extra="include { phase: TRAIN }")
        + layer("ReLU", "deep", "data", extra="include { min_level: 1 }")
        + layer("ReLU", "staged", "data", extra='include { stage: "extra" }')
    )
    path = write(tmp_path, text)

    def names(*arguments: Any, **options: Any) -> set[str]:
        return {each.name for each in caffe.Net(path, *arguments, **options).layers}

    assert names(caffe.TRAIN) & {"train", "deep", "staged"} == {"train"}
    assert names(caffe.TEST) & {"train", "deep", "staged"} == set()
    assert "deep" in names(caffe.TEST, level=1)
    assert "staged" in names(caffe.TEST, stages=["extra"])


def test_phase_of_the_layers_is_the_net_s_unless_they_have_their_own() -> None:
    net = make(
        inputs() + layer("Dropout", "a", "data") + layer("Dropout", "b", "a", extra="phase: TEST")
    )
    assert [each.phase for each in net.layers] == [caffe.TRAIN, caffe.TRAIN, caffe.TEST]
