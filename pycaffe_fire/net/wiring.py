"""Building a net: layers in order, blobs between them, shared weights, and who needs gradients."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

from .. import schema
from ..backend.base import Backend
from ..backend.blob import Blob, SharedBlob
from ..backend.tensor import Tensor
from ..errors import DataError, FireError, LayerError, NetError
from ..layers import LAYERS, Context, Layer, is_built_in
from ..layers.input import Input
from ..layers.not_built_in import NOT_BUILT_IN
from ..schema.limits import impossible_number
from ..schema.proto import LayerParameter, NetParameter, ParamSpec
from ..schema.verdicts import refusals, tell_unread
from . import narrate
from .graph import filter_net, fusions, insert_splits
from .label_ranges import tell_label_ranges
from .parameters import Parameter, Parameters
from .storage import store_top

PERMISSIVE = 1  # ParamSpec.DimCheckMode
MULTIPLIERS = ("lr_mult", "decay_mult")


class Wiring:
    """The layers of a net with their bottoms and tops; see Net for running it."""

    def __init__(
        self,
        param: NetParameter,
        backend: Backend,
        context: Context,
        lender: Wiring | None,
        source: str,
    ) -> None:
        self.backend, self.context, self.source = backend, context, source
        self._written, filtered = param, filter_net(param)
        narrate.begin(self, filtered)
        try:
            self.param = insert_splits(filtered)
        except LayerError as error:
            raise self._located(error, error.layer) from None
        for sentence in refusals(self.param):
            raise NetError(f"{source}: {sentence}" if source else sentence)
        self.name: str = self.param.name
        self.phase: int = self.param.state.phase
        self.layers: list[Layer] = []
        self.bottoms: list[list[Blob]] = []
        self.tops: list[list[Blob]] = []
        self.values_so_far = 0  # in the tops of the layers made, for the log
        self.blobs: dict[str, Blob] = {}
        self.inputs: list[str] = []
        self.need_backward: list[bool] = []
        self.propagate_down: list[list[bool]] = []
        self._blob_needs: dict[int, bool] = {}
        self._available: dict[str, None] = {}
        self._parameters: list[Parameter] = []
        self._owners: dict[str, tuple[Parameter, str]] = {}
        self._given: dict[str, set[str]] = {}  # multipliers that a user of the name has stated
        self._plain_names = self._find_plain_names()
        # debug_info shows what every single layer does, so there nothing is fused.
        fusing = {} if self.param.debug_info else self._fusing_types()
        self.groups = fusions(self.param, fusing)
        self.leader_of = {f: leader for leader, group in self.groups.items() for f in group}
        lent = {layer.name: layer.blobs for layer in lender.layers} if lender else {}
        for index in range(len(self.param.layer)):
            self._add_layer(index, lent)
            narrate.layer(self, index)
        self.outputs = sorted(self._available)  # Caffe's order
        tell_label_ranges(self.layers, self.bottoms, self.tops)
        self._prune_backward()
        self.unwritten = self._find_unwritten()
        narrate.end(self)
        self._dissolve_groups()
        lending = lender.parameters if lender else None
        self.parameters: Parameters = Parameters(backend, self._parameters, lending)

    # Layers.

    def _fusing_types(self) -> dict[str, type[Layer]]:
        """The types in this net that fuse others; an unknown one fails later, with its place."""
        found = {}
        for name in {layer.type for layer in self.param.layer}:
            with contextlib.suppress(NetError):
                found[name] = LAYERS[name]
        return {name: kind for name, kind in found.items() if kind.fuses}

    def _where(self, layer: str) -> str:
        """`file:line: ` of a layer, where the net came from a file."""
        if not self.source:
            return ""
        # As bytes, because a message with NaN does not equal itself.
        same, kept = (
            [each.SerializeToString() for each in net.layer if each.name == layer]
            for net in (self._written, filter_net(self._written))
        )
        try:
            line = schema.locate(self.source, layer, same.index(kept[0]) if kept else 0)
        except FireError:
            line = None
        return f"{self.source}:{line}: " if line else f"{self.source}: "

    def _add_layer(self, index: int, lent: dict[str, list[Blob]]) -> None:
        param = self.param.layer[index]
        try:
            self._wire_layer(index, param, lent)
        except (NetError, DataError) as error:
            if type(error) is NetError:  # an unknown type, a blob of an impossible shape
                error = LayerError(param.name, param.type, str(error))
            raise self._located(error, param.name) from error.__cause__

    def _located(self, error: FireError, layer: str) -> FireError:
        error.args = (f"{self._where(layer)}{error}",)
        error.layer = layer  # type: ignore[attr-defined]
        return error

    def _wire_layer(self, index: int, param: LayerParameter, lent: dict[str, list[Blob]]) -> None:
        if not param.HasField("phase"):
            param.phase = self.phase
        if param.type in NOT_BUILT_IN and param.type not in LAYERS:
            way_out = NOT_BUILT_IN[param.type]
            raise LayerError(param.name, param.type, f"is not built in; {way_out}")
        kind = LAYERS[param.type]
        if is_built_in(kind):
            for sentence in refusals(param):
                raise LayerError(param.name, param.type, sentence)
            for field in kind.unread(param):
                tell_unread(param.type, field)
        layer = kind(param, param.phase, self.backend, self.context)
        if impossible := impossible_number(param):
            layer.fail(impossible)
        layer.donors = lent.get(param.name, ())
        bottom = self._connect_bottoms(layer, param)
        needs = not kind.stops_gradients and any(self._blob_needs[id(b)] for b in bottom)
        top = self._connect_tops(layer, param, bottom)
        self.layers.append(layer)
        self.bottoms.append(bottom)
        self.tops.append(top)
        layer.follower_params = [self.param.layer[i] for i in self.groups.get(index, ())]
        if index in self.leader_of:
            self.layers[self.leader_of[index]].followers.append(layer)
        layer.check_counts(bottom, top)
        layer.setup(bottom, top)
        needs |= self._adopt_weights(layer, param)
        layer.plan(bottom, top)
        self._set_loss_weights(layer, param, top)
        self.need_backward.append(needs)
        for blob in top:
            self._blob_needs[id(blob)] = needs

    def _connect_bottoms(self, layer: Layer, param: LayerParameter) -> list[Blob]:
        if len(param.propagate_down) not in (0, len(param.bottom)):
            layer.fail(
                f"propagate_down must be given {len(param.bottom)} times (once per bottom) or not "
                f"at all, got {len(param.propagate_down)}"
            )
        bottom, flags = [], []
        for j, name in enumerate(param.bottom):
            self._available.pop(name, None)
            blob = self.blobs[name]
            bottom.append(blob)
            needs = self._blob_needs[id(blob)]
            flags.append(param.propagate_down[j] if param.propagate_down else needs)
        self.propagate_down.append(flags)
        return bottom

    def _connect_tops(
        self, layer: Layer, param: LayerParameter, bottom: Sequence[Blob]
    ) -> list[Blob]:
        top = []
        for j, name in enumerate(param.top):
            if j < len(param.bottom) and name == param.bottom[j]:
                top.append(bottom[j])
            elif name in self.blobs:
                layer.fail(f'its top "{name}" is already the top of another layer')
            else:
                blob = self.blobs[name] = Blob(self.backend, (), name)
                store_top(self.param, layer, j, bottom, blob)
                top.append(blob)
                if isinstance(layer, Input):
                    self.inputs.append(name)
            self._available[name] = None
        if layer.auto_tops:
            top += [Blob(self.backend, (), "(automatic)") for _ in range(layer.tops[0] - len(top))]
        return top

    def _set_loss_weights(self, layer: Layer, param: LayerParameter, top: Sequence[Blob]) -> None:
        weights = list(param.loss_weight)
        if weights and len(weights) != len(top):
            layer.fail(
                f"loss_weight must be given {len(top)} times (once per top) or not at all, got "
                f"{len(weights)}"
            )
        if not weights:
            weights = [layer.default_loss_weight if i == 0 else 0.0 for i in range(len(top))]
        layer.loss_weights = weights

    # Weights.

    def _find_plain_names(self) -> set[str]:
        """Names of shared weights that stay plain, because their users count axes differently."""
        views: dict[str, set[object]] = {}
        for layer in self.param.layer:
            for spec in layer.param:
                view = (layer.type, layer.convolution_param.group)
                unlike = layer.name if spec.share_mode == PERMISSIVE else view
                views.setdefault(spec.name, set()).add(unlike)
        return {name for name, users in views.items() if name and len(users) > 1}

    def _adopt_weights(self, layer: Layer, param: LayerParameter) -> bool:
        """File the layer's new blobs as parameters; True if any of them learns."""
        if len(param.param) > len(layer.blobs):
            layer.fail(
                f"has {len(layer.blobs)} weight blob(s), but {len(param.param)} param entries"
            )
        needs = False
        for i, blob in enumerate(layer.blobs):
            spec = param.param[i] if i < len(param.param) else schema.ParamSpec()
            learns = spec.lr_mult != 0
            needs |= learns
            layer.param_propagate_down.append(learns)
            if spec.name and spec.name in self._owners:
                layer.blobs[i] = self._share(layer, i, blob, spec)
                continue
            made = Parameter(f"{layer.name}[{i}]", blob, spec.lr_mult, spec.decay_mult)
            self._parameters.append(made)
            if spec.name:
                self._owners[spec.name] = (made, layer.name)
                self._given[spec.name] = {f for f in MULTIPLIERS if spec.HasField(f)}
            if spec.name in self._plain_names:
                blob.value.pinned = blob.gradient.pinned = True
        return needs

    def _share(self, layer: Layer, index: int, blob: Blob, spec: ParamSpec) -> Blob:
        owner, owner_layer = self._owners[spec.name]
        owner.blob.value.share()
        given = self._given[spec.name]
        for field in filter(spec.HasField, MULTIPLIERS):
            if field not in given:
                setattr(owner, field, getattr(spec, field))
                given.add(field)
            elif getattr(spec, field) != getattr(owner, field):
                layer.fail(
                    f'shared param "{spec.name}" has {field} {getattr(spec, field):g} here and '
                    f'{getattr(owner, field):g} in layer "{owner_layer}"; they must agree'
                )
        if blob.shape == owner.blob.shape:
            return owner.blob
        if spec.share_mode == PERMISSIVE and blob.count == owner.blob.count:
            return SharedBlob(owner.blob, blob.shape, blob.name)
        mode = "count" if spec.share_mode == PERMISSIVE else "shape"
        layer.fail(
            f'cannot share param "{spec.name}" with layer "{owner_layer}": its {mode} is '
            f"{blob.shape_string()} here and {owner.blob.shape_string()} there"
            + ("" if mode == "count" else "; share_mode: PERMISSIVE compares counts only")
        )

    # Gradients.

    def _prune_backward(self) -> None:
        """Backward runs only where a loss is above and something that learns is below."""
        under_loss: set[int] = set()
        skip: set[int] = set()
        for i in reversed(range(len(self.layers))):
            layer, bottom, top = self.layers[i], self.bottoms[i], self.tops[i]
            contributes, skips = False, True
            for j, blob in enumerate(top):
                if layer.loss_weights[j] or id(blob) in under_loss:
                    contributes = True
                if id(blob) not in skip:
                    skips = False
                if contributes and not skips:
                    break
            if self.need_backward[i] and skips:
                self.need_backward[i] = False
                self.propagate_down[i] = [False] * len(bottom)
            if not contributes:
                self.need_backward[i] = False
            for j, blob in enumerate(bottom):
                if contributes:
                    under_loss.add(id(blob))
                else:
                    self.propagate_down[i][j] = False
                if not self.propagate_down[i][j]:
                    skip.add(id(blob))
        if self.param.force_backward:
            self._force_backward()

    def _find_unwritten(self) -> list[list[Tensor]]:
        """For each layer the gradients of tops that are read, but that no reader writes: zeros.

        The memory behind them may be shared with other gradients, so every pass must say so.
        """
        seen_to = {id(self.blobs[name]) for name in self.outputs}  # the caller sets those
        found: list[list[Tensor]] = [[] for _ in self.layers]
        for i in reversed(range(len(self.layers))):
            for blob, weight in zip(self.tops[i], self.layers[i].loss_weights, strict=True):
                if not weight and id(blob) not in seen_to:
                    found[i].append(blob.gradient)
            for blob, wanted in zip(self.bottoms[i], self.propagate_down[i], strict=True):
                if wanted and self.need_backward[i]:
                    seen_to.add(id(blob))
        return found

    def _dissolve_groups(self) -> None:
        """Let layers run one by one where a group would change what others see or learn."""
        for leader, group in list(self.groups.items()):
            idle = self.layers[leader].fuses_backward and not self.need_backward[leader]
            learns = any(self.need_backward[i] for i in group)
            if (idle and learns) or self._is_disturbed(leader, group):
                del self.groups[leader]
                for follower in group:
                    del self.leader_of[follower]
                self.layers[leader].follower_params = []

    def _is_disturbed(self, leader: int, group: Sequence[int]) -> bool:
        """True if other layers use the memory of a group's top while or after the group runs.

        A layer between leader and follower would see the work of both. A layer in place after a
        ReLU overwrites the values from which Caffe takes the ReLU's gradient.
        """
        tensor = self.tops[leader][0].value

        def uses(index: int) -> bool:
            blobs = (*self.bottoms[index], *self.tops[index])
            return any(blob.value is tensor for blob in blobs)

        between = (i for i in range(leader + 1, group[-1]) if i not in group)
        if any(map(uses, between)):
            return True
        rectifies = any(self.layers[i].relu_slope is not None for i in group)
        if not (rectifies and self.layers[leader].fuses_backward):
            return False
        after = range(group[-1] + 1, len(self.layers))
        return any(self._overwrites(i, tensor) for i in after)

    def _overwrites(self, index: int, tensor: Tensor) -> bool:
        """True if a layer works in place on a tensor, not merely hands it on."""
        layer = self.layers[index]
        return not layer.idle and any(blob.value is tensor for blob in self.tops[index])

    def _force_backward(self) -> None:
        for i, layer in enumerate(self.layers):
            self.need_backward[i] = True
            for j in range(len(self.bottoms[i])):
                self.propagate_down[i][j] |= layer.allow_force_backward(j)
            layer.param_propagate_down = [True] * len(layer.blobs)
