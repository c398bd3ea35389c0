"""Rows of the layers that the paper's nets are made of."""

from __future__ import annotations

from case import Bad, Case

ROWS = [
    Case(
        "conv",
        "Convolution",
        "convolution_param { num_output: 4 kernel_size: 3 pad: 1 }",
        shapes=((2, 3, 5, 6),),
        weights=2,
        top_shapes=((2, 4, 5, 6),),
        golden=("conv_*",),
        bad=(
            Bad(
                "kernel_size must be at least 1, got",
                "convolution_param { num_output: 4 kernel_size: 0 }",
            ),
        ),
    ),
]
