"""The list of tasks. To add one: write `data/level<level>/<name>.py`, add its line here, run the tests."""

from __future__ import annotations

from importlib import resources
from typing import Literal

import attrs

from kernelrl_plugin_starter.frames import Frame

__all__ = ["ENTRIES", "Entry"]


@attrs.frozen
class Entry:
    """A task of the catalogue."""

    level: int
    split: Literal["train", "held_out"]
    name: str
    frame: Frame
    """Frame of its kernels."""

    @property
    def id(self) -> str:
        return f"starter/{self.level}/{self.name}"

    def reference(self) -> str:
        """Source of the reference."""
        path = resources.files("kernelrl_plugin_starter") / "data" / f"level{self.level}" / f"{self.name}.py"
        return path.read_text(encoding="utf-8")


ENTRIES: tuple[Entry, ...] = (
    Entry(1, "train", "relu_double", "flat"),
    Entry(1, "train", "exp_negative", "flat"),
    Entry(1, "train", "sigmoid_double_dec", "flat"),
    Entry(1, "train", "abs_inc", "flat"),
    Entry(1, "train", "square_dec", "flat"),
    Entry(1, "train", "sin_half", "flat"),
    Entry(1, "train", "leaky_inc", "flat"),
    Entry(1, "train", "clamp", "flat"),
    Entry(1, "train", "silu", "flat"),
    Entry(1, "train", "softsign_abs", "flat"),
    Entry(1, "train", "add_relu", "flat"),
    Entry(1, "train", "multiply_dec", "flat"),
    Entry(1, "train", "maximum_half", "flat"),
    Entry(1, "train", "greater_mask", "flat"),
    Entry(1, "train", "row_sum", "row_value"),
    Entry(1, "train", "row_abs_mean", "row_value"),
    Entry(1, "train", "row_max_inc", "row_value"),
    Entry(1, "train", "row_argmax", "row_value"),
    Entry(1, "train", "total_of_squares", "total"),
    Entry(1, "train", "relu_and_square", "two_flat"),
    Entry(1, "held_out", "abs_double", "flat"),
    Entry(1, "held_out", "relu_square_dec", "flat"),
    Entry(1, "held_out", "sin_square_inc", "flat"),
    Entry(1, "held_out", "multiply_abs", "flat"),
    Entry(1, "held_out", "row_square_sum", "row_value"),
    Entry(1, "held_out", "clamp_half", "flat"),
    Entry(2, "train", "softmax", "rows"),
    Entry(2, "train", "center", "rows"),
    Entry(2, "train", "layer_norm", "rows"),
    Entry(2, "train", "rms_norm", "rows"),
    Entry(2, "train", "l1_norm", "rows"),
    Entry(2, "train", "cumsum", "rows"),
    Entry(2, "train", "cumsum_of_abs", "rows"),
    Entry(2, "train", "range_norm", "rows"),
    Entry(2, "train", "matmul", "product"),
    Entry(2, "train", "matmul_transposed", "product"),
    Entry(2, "train", "scale_bias", "rows"),
    Entry(2, "train", "linear", "product"),
    Entry(2, "train", "lookup", "lookup"),
    Entry(2, "held_out", "center_l1", "rows"),
    Entry(2, "held_out", "cumsum_of_squares", "rows"),
    Entry(2, "held_out", "sum_of_exp", "row_value"),
    Entry(2, "held_out", "rms_below_max", "rows"),
    Entry(2, "held_out", "cumsum_centered", "rows"),
    Entry(3, "train", "relu_softmax", "rows"),
    Entry(3, "train", "residual_layer_norm", "rows"),
    Entry(3, "train", "affine_layer_norm", "rows"),
    Entry(3, "train", "matmul_relu", "product"),
    Entry(3, "train", "matmul_half_silu", "product"),
    Entry(3, "train", "matmul_transposed_abs", "product"),
    Entry(3, "train", "linear_sigmoid", "product"),
    Entry(3, "train", "rms_silu", "rows"),
    Entry(3, "train", "row_dot_product", "row_value"),
    Entry(3, "train", "clamp_cumsum_half", "rows"),
    Entry(3, "train", "difference_square_mean", "row_value"),
    Entry(3, "train", "factor_relu_dec", "flat"),
    Entry(3, "held_out", "center_abs_max", "row_value"),
    Entry(3, "held_out", "relu_rms_inc", "rows"),
    Entry(3, "held_out", "matmul_abs_double", "product"),
    Entry(3, "held_out", "multiply_softmax", "rows"),
    Entry(3, "held_out", "residual_cumsum_half", "rows"),
    Entry(3, "held_out", "center_square_mean", "row_value"),
)
