"""Makes a finding smaller: fewer actions, fewer layers, as long as it is still found."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from .case import Case, LayerText

Finds = Callable[[Case], str]  # what is found in a case; "" if nothing


def shrink(case: Case, finds: Finds, tries: int = 400) -> tuple[Case, str]:
    """The smallest case that removing things leads to, and what is found in it."""
    found = finds(case)
    kind = found.split(":")[0].split(" on ")[0]
    progress = True
    while progress and tries > 0:
        progress = False
        for smaller in _smaller(case):
            tries -= 1
            what = finds(smaller)
            if what.startswith(kind):
                case, found, progress = smaller, what, True
                break
            if tries <= 0:
                break
    return case, found


def _smaller(case: Case) -> Iterator[Case]:
    for i in reversed(range(len(case.actions))):
        yield replace(case, actions=case.actions[:i] + case.actions[i + 1 :])
    if case.threads > 1:
        yield replace(case, threads=1)
    if case.shared:
        yield replace(case, shared=False)
    for i, layer in enumerate(case.layers):
        yield from _without(case, i, layer)


def _without(case: Case, index: int, layer: LayerText) -> Iterator[Case]:
    """The case without a layer: it is dropped, bypassed, or an Input takes its place."""
    others = [*case.layers[:index], *case.layers[index + 1 :]]
    read = {name for other in others for name in other.bottoms}
    in_place = bool(set(layer.tops) & set(layer.bottoms))
    if in_place or not set(layer.tops) & read:
        yield case.with_layers(others)
    elif len(layer.bottoms) >= 1:
        for bottom in dict.fromkeys(layer.bottoms):
            renamed = [_renamed(other, layer.tops[0], bottom) for other in others]
            yield case.with_layers(renamed)


def _renamed(layer: LayerText, old: str, new: str) -> LayerText:
    def swap(names: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(new if name == old else name for name in names)

    return replace(layer, bottoms=swap(layer.bottoms), tops=swap(layer.tops))
