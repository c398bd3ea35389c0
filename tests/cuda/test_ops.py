"""Every op of the CUDA backend against the NumPy one: the same cases as the CPU's fast backend."""

from __future__ import annotations

from typing import Any

import pytest
from test_backends_agree import (  # noqa: F401
    test_add,
    test_concat,
    test_convolution,
    test_dropout,
    test_inner_product,
    test_lrn,
    test_max_pooling_of_equals,
    test_negative_slope_in_place_keeps_the_layout,
    test_plans_share_weights,
    test_pooling,
    test_relu,
)


@pytest.fixture
def fast(cuda: Any) -> Any:
    """What those tests call the backend under test."""
    return cuda
