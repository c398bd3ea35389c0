"""Statistics of a batch that is cut into leaves: over all of them, or over each one."""

from __future__ import annotations

import logging

from ..layers import layer_class
from ..layers.batch_norm import BatchNorm
from ..net import Net
from ..net.graph import filter_net
from ..schema.proto import LayerParameter, NetParameter, NetState, SolverParameter
from .nets import edit_training_net

log = logging.getLogger("pycaffe_fire")

FEW = 8  # samples: statistics of fewer are worth a word


def spans_leaves(net: NetParameter) -> bool:
    """Does a layer of the net depend on all leaves of a batch?"""
    return any(layer_class(layer.type).spans_leaves(layer) for layer in filter_net(net).layer)


def with_sync(solver: SolverParameter, cli_state: NetState) -> SolverParameter:
    """A copy of the solver whose training net has the whole batch's statistics in every layer."""

    def edit(layer: LayerParameter) -> None:
        if issubclass(layer_class(layer.type), BatchNorm):
            layer.batch_norm_param.sync = True

    return edit_training_net(solver, cli_state, edit)


def warn_of_small_statistics(net: Net) -> None:
    """Say so where leaves are so small that statistics mean little."""
    if net.context.leaves == 1:
        return
    found = [
        (layer.name, samples)
        for layer in net.layers
        if isinstance(layer, BatchNorm)
        and (samples := layer.statistics_samples) is not None
        and samples < FEW
    ]
    if found:
        name, samples = found[0]
        more = f" and {len(found) - 1} more" if len(found) > 1 else ""
        log.warning(
            'layer "%s"%s: statistics of %d sample(s), those of a leaf, say little; --sync-bn '
            "takes those of the whole batch, fewer --leaves or a larger batch those of more",
            name, more, samples,
        )  # fmt: skip
