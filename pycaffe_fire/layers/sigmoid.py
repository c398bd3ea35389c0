"""The smooth step functions: Sigmoid, TanH, Swish and BNLL."""

from __future__ import annotations

from typing import Any

from .base import register_layer
from .elementwise import Elementwise


def sigmoid(xp: Any, x: Any) -> Any:
    """1 / (1 + exp(-x)), safe for large x of either sign."""
    return 0.5 * xp.tanh(0.5 * x) + 0.5


@register_layer("Sigmoid")
class Sigmoid(Elementwise):
    """top = 1 / (1 + exp(-x))."""

    needs_input = False

    def value(self, x: Any) -> Any:
        return sigmoid(self.xp, x)

    def slope(self, x: Any, y: Any) -> Any:
        return y * (1 - y)


@register_layer("TanH")
class TanH(Elementwise):
    """top = (exp(x) - exp(-x)) / (exp(x) + exp(-x))."""

    needs_input = False

    def value(self, x: Any) -> Any:
        return self.xp.tanh(x)

    def slope(self, x: Any, y: Any) -> Any:
        return 1 - y * y


@register_layer("Swish")
class Swish(Elementwise):
    """top = x / (1 + exp(-beta * x))."""

    def value(self, x: Any) -> Any:
        return x * sigmoid(self.xp, self.param.swish_param.beta * x)

    def slope(self, x: Any, y: Any) -> Any:
        beta = self.param.swish_param.beta
        gate = sigmoid(self.xp, beta * x)
        return gate + beta * x * gate * (1 - gate)


@register_layer("BNLL")
class BNLL(Elementwise):
    """top = log(1 + exp(x)), the binomial normal log likelihood."""

    def value(self, x: Any) -> Any:
        return self.xp.maximum(x, 0) + self.xp.log1p(self.xp.exp(-self.xp.abs(x)))

    def slope(self, x: Any, y: Any) -> Any:
        return sigmoid(self.xp, x)
