"""Who is told before a tensor is given out or reshaped."""

from __future__ import annotations

import weakref
from typing import Protocol

from ..backend.tensor import Tensor


class Owner(Protocol):
    """Somebody who has left a value out and can make up for it."""

    def look(self, tensor: Tensor) -> None: ...


class Guard:
    """Tells the owner, while there is one: tensors do not keep it alive."""

    def __init__(self, owner: Owner) -> None:
        self._owner = weakref.ref(owner)

    def __call__(self, tensor: Tensor) -> None:
        owner = self._owner()
        if owner is not None:
            owner.look(tensor)
