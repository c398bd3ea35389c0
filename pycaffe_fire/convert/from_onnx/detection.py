"""SSD's DetectionOutput, as `--detection opencv` writes it."""

from __future__ import annotations

from ... import schema
from .source import DETECTIONS, Node
from .target import CannotError, Target, reads

_PLAIN = (
    "num_classes", "share_location", "background_label_id", "variance_encoded_in_target",
    "keep_top_k", "confidence_threshold",
)  # fmt: skip


@reads(DETECTIONS)
def detection_output(target: Target, node: Node) -> None:
    if len(node.inputs) != 3:
        raise CannotError(f"it has {len(node.inputs)} inputs; locations, scores, priors are wanted")
    bottoms = [_blob(target, tensor) for tensor in node.inputs]
    layer = target.layer(DETECTIONS, node.name, bottoms, [node.outputs[0]])
    param = layer.detection_output_param
    for name in _PLAIN:
        if name in node.attributes:
            setattr(param, name, node.attributes[name])
    code = node.get("code_type", "CORNER")
    if code not in schema.PriorBoxParameter.CodeType.keys():  # noqa: SIM118
        raise CannotError(f'its code_type "{code}" is unknown')
    param.code_type = schema.PriorBoxParameter.CodeType.Value(code)
    for name in ("nms_threshold", "eta"):
        if name in node.attributes:
            setattr(param.nms_param, name, node.attributes[name])
    if node.get("top_k", -1) >= 0:
        param.nms_param.top_k = node.attributes["top_k"]
    target.blobs[node.outputs[0]] = node.outputs[0]


def _blob(target: Target, tensor: str) -> str:
    """Prior boxes are constant in ONNX: a Parameter layer holds them."""
    if not target.is_constant(tensor):
        return target.blob(tensor)
    values = target.source.constants[tensor]
    layer = target.layer("Parameter", tensor, [], [tensor], values)
    layer.parameter_param.shape.dim.extend(values.shape)
    return tensor
