"""pycaffe's NetSpec: a net written as Python expressions.

from pycaffe_fire import layers as L, params as P, NetSpec
n = NetSpec()
n.data, n.label = L.Data(source="train_lmdb", backend=P.Data.LMDB, batch_size=64, ntop=2)
n.conv1 = L.Convolution(n.data, num_output=20, kernel_size=5)
n.pool1 = L.Pooling(n.conv1, pool=P.Pooling.MAX, kernel_size=2, stride=2)
print(n.to_proto())

A layer takes the name of the NetSpec attribute that its first top was given to; anything that has
no name gets its type and a number.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

from google.protobuf.message import Message

from .. import schema
from ..errors import NetError
from ..layers import LAYERS, layer_class
from ..layers.description import fields_by_type
from ..registry import did_you_mean
from ..schema.messages import CLASSES, ENUMS, FIELDS, fields_of
from ..schema.proto import LayerParameter, NetParameter
from .proto import caffe_pb2 as caffe_pb2

__all__ = [
    "Function",
    "Layers",
    "NetSpec",
    "Parameters",
    "SpecError",
    "Top",
    "assign_proto",
    "layers",
    "param_name_dict",
    "params",
    "to_proto",
]


class SpecError(NetError, AttributeError):
    """A field that a layer does not have; an AttributeError too, as in pycaffe."""


class SpecTypeError(NetError, TypeError):
    """A layer's input or a field's value that is of the wrong kind; a TypeError too."""


class MissingTopError(NetError, KeyError, AttributeError):
    """A name that nothing in a NetSpec was given."""

    __str__ = Exception.__str__  # a KeyError would show it in quotes


def param_name_dict() -> dict[str, str]:
    """Layer types to the names of their parameters: {"Convolution": "convolution", ...}."""
    known = LAYERS.registered()
    fields = {**fields_by_type(), **{t: f for t in known if (f := known[t].field_of(t))}}
    return {kind: field.removesuffix("_param") for kind, field in fields.items()}


def to_proto(*tops: Top) -> NetParameter:
    """The net that computes these tops, its layers named automatically."""
    made: dict[Function, LayerParameter] = {}
    autonames: Counter[str] = Counter()
    names: dict[Any, str] = {}
    for top in tops:
        top._to_proto(made, names, autonames)
    return schema.NetParameter(layer=made.values())


def assign_proto(proto: Message, name: str, val: Any) -> None:
    """Set a field from plain Python: lists for repeated fields, dicts for messages.

    One value for a repeated field is a list of one; enums may be given by name.
    """
    fields = fields_of(proto)
    if name not in fields:
        kind = proto.DESCRIPTOR.name
        raise SpecError(f'{kind} has no field "{name}"{did_you_mean(name, list(fields))}')
    field, target = fields[name], getattr(proto, name)
    if field.repeated:
        items = list(val) if isinstance(val, (list, tuple)) or hasattr(val, "tolist") else [val]
        for item in items:
            if field.kind == "message":
                _fill(target.add(), name, item)
            else:
                _checked(proto, name, item, target.append)
    elif field.kind == "message":
        target.SetInParent()
        _fill(target, name, val)
    else:
        _checked(proto, name, val, lambda value: setattr(proto, name, value))


def _fill(message: Message, name: str, value: Any) -> None:
    if isinstance(value, dict):
        for key, item in value.items():
            assign_proto(message, key, item)
        return
    kind = message.DESCRIPTOR.name
    if not hasattr(value, "SerializeToString"):
        raise SpecTypeError(f'"{name}" is a {kind}: give a dict of its fields, got {value!r}')
    message.MergeFromString(value.SerializeToString())


def _checked(proto: Message, name: str, value: Any, put: Callable[[Any], None]) -> None:
    """Put a scalar into a field; NumPy's numbers are numbers here, too."""
    field = fields_of(proto)[name]
    value = value.item() if hasattr(value, "item") else value
    if field.kind == "enum" and isinstance(value, str):
        known = ENUMS[field.type_name]
        if value not in known:
            raise SpecTypeError(f'"{name}" is one of {", ".join(known)}, got "{value}"')
        value = known[value]
    try:
        put(value)
    except (TypeError, ValueError) as error:
        kind = proto.DESCRIPTOR.name
        raise SpecTypeError(f'{kind}: "{name}" is of type {field.kind}, got {value!r}') from error


class Top:
    """One output of a layer that is yet to be made; an input of others."""

    def __init__(self, fn: Function, n: int) -> None:
        self.fn = fn
        self.n = n

    def to_proto(self) -> NetParameter:
        """The net that computes this top."""
        return to_proto(self)

    def _update(self, params: dict[str, Any]) -> None:
        self.fn._update(params)

    def _to_proto(
        self, layers: dict[Function, LayerParameter], names: dict[Any, str], autonames: Counter[str]
    ) -> None:
        self.fn._to_proto(layers, names, autonames)

    def __repr__(self) -> str:
        return f"<Top {self.n} of {self.fn.type_name}>"


class Function:
    """A layer that is yet to be made: type, inputs and parameters."""

    def __init__(self, type_name: str, inputs: tuple[Top, ...], params: dict[str, Any]) -> None:
        self.type_name = type_name
        for index, top in enumerate(inputs):
            if not isinstance(top, Top):
                raise SpecTypeError(
                    f"{type_name} input {index} is not a Top (type is {type(top)}); give "
                    f"what other layers return, one by one"
                )
        self.inputs = inputs
        self.params = dict(params)
        self.ntop: int = self.params.pop("ntop", 1)
        self.in_place: bool = self.params.pop("in_place", False)
        self.tops = tuple(Top(self, n) for n in range(self.ntop))

    def _get_name(self, names: dict[Any, str], autonames: Counter[str]) -> str:
        if self not in names:
            holder: Any = self.tops[0] if self.ntop else self
            names[self] = self._get_top_name(holder, names, autonames)
        return names[self]

    def _get_top_name(self, top: Any, names: dict[Any, str], autonames: Counter[str]) -> str:
        if top not in names:
            autonames[self.type_name] += 1
            names[top] = f"{self.type_name}{autonames[self.type_name]}"
        return names[top]

    def _update(self, params: dict[str, Any]) -> None:
        self.params.update(params)

    def _to_proto(
        self, layers: dict[Function, LayerParameter], names: dict[Any, str], autonames: Counter[str]
    ) -> None:
        """Add the layer, and before it all that it depends on, to `layers`."""
        if self in layers:
            return
        layer = schema.LayerParameter(type=self.type_name)
        for top in self.inputs:
            top._to_proto(layers, names, autonames)
            layer.bottom.append(layers[top.fn].top[top.n])
        if self.in_place:
            layer.top.extend(layer.bottom)
        else:
            layer.top.extend(self._get_top_name(top, names, autonames) for top in self.tops)
        layer.name = self._get_name(names, autonames)
        self._fill(layer)
        layers[self] = layer

    def message(self) -> Any:
        """The layer on its own, without name, bottoms and tops."""
        layer = schema.LayerParameter(type=self.type_name)
        self._fill(layer)
        return layer

    def _fill(self, layer: Any) -> None:
        for key, value in self.params.items():
            self._assign(layer, key, value)

    def _assign(self, layer: LayerParameter, key: str, value: Any) -> None:
        """A field of the layer itself, or of the parameters that belong to its type."""
        own = layer_class(self.type_name).field_of(self.type_name) or ""
        fields = fields_of(layer)
        target = layer
        if not key.endswith("param") and own in fields and key in FIELDS[fields[own].type_name]:
            target = getattr(layer, own)
        elif key not in fields:
            raise SpecError(f'layer "{layer.name}" ({self.type_name}): {_unknown(key, own)}')
        try:
            assign_proto(target, key, value)
        except NetError as error:
            text = f'layer "{layer.name}" ({self.type_name}): {error}'
            raise type(error)(text) from error.__cause__


def _unknown(key: str, own: str) -> str:
    """What to say of a field that neither the layer nor its own parameters have."""
    fields = fields_of(schema.LayerParameter())
    mine = FIELDS[fields[own].type_name] if own in fields else {}
    holders = [f.name for f in fields.values() if key in FIELDS.get(f.type_name, ())]
    if len(holders) == 1:
        hint = f"; write {holders[0]}=dict({key}=...)"
    elif holders:
        hint = f"; it belongs to {' or '.join(holders[:3])}"
    else:
        hint = did_you_mean(key, [*mine, *fields])
    return f'no field "{key}"{hint}'


class NetSpec:
    """A net whose tops are named by giving them to attributes (or items, for any name)."""

    tops: dict[str, Any]

    def __init__(self) -> None:
        super().__setattr__("tops", {})

    def __setattr__(self, name: str, value: Any) -> None:
        self.tops[name] = value

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # what copy and pickle ask for
            raise AttributeError(name)
        return self[name]

    def __delattr__(self, name: str) -> None:
        del self[name]

    def __setitem__(self, key: str, value: Any) -> None:
        self.tops[key] = value

    def __getitem__(self, item: str) -> Any:
        tops = super().__getattribute__("tops")
        if item not in tops:
            hint = did_you_mean(item, list(tops))
            raise MissingTopError(f'nothing in this NetSpec is called "{item}"{hint}')
        return tops[item]

    def __delitem__(self, name: str) -> None:
        self[name]
        del self.tops[name]

    def __contains__(self, name: str) -> bool:
        return name in self.tops

    def keys(self) -> list[str]:
        return list(self.tops)

    def vals(self) -> list[Any]:
        return list(self.tops.values())

    def update(self, name: str, params: dict[str, Any]) -> None:
        """Change parameters of the layer that makes this top."""
        self[name]._update(params)

    def to_proto(self) -> NetParameter:
        """The net that computes all tops with a name."""
        names = {top: name for name, top in self.tops.items()}
        autonames: Counter[str] = Counter()
        made: dict[Function, LayerParameter] = {}
        for name, top in self.tops.items():
            if not isinstance(top, (Top, Function)):
                raise SpecTypeError(
                    f'"{name}" is not what one layer returns, but a {type(top).__name__}; a layer '
                    f"of several tops needs as many names: n.a, n.b = L.X(..., ntop=2)"
                )
            top._to_proto(made, names, autonames)
        return schema.NetParameter(layer=made.values())


class Layers:
    """`layers.X(...)` for any layer type X: a Top, several for ntop > 1, a Function for ntop=0."""

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name.startswith("__"):
            raise AttributeError(name)

        def layer_fn(*inputs: Top, **params: Any) -> Any:
            fn = Function(name, inputs, params)
            if fn.ntop == 0:
                return fn
            return fn.tops[0] if fn.ntop == 1 else fn.tops

        layer_fn.__name__ = name
        return layer_fn


class Parameters:
    """`params.X.NAME`: an enum value of message XParameter, as in params.Pooling.MAX."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        try:
            return getattr(schema, f"{name}Parameter")
        except AttributeError:
            known = [x.removesuffix("Parameter") for x in CLASSES if x.endswith("Parameter")]
            raise SpecError(f'no parameters "{name}"{did_you_mean(name, known)}') from None


layers = Layers()
params = Parameters()
