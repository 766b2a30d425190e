"""The lines that references consist of, each with its translation into C++; the counterpart of `vocabulary.py`.

`x` is an element, `v` the current row, `s` a scalar of the row. Reductions are `Reduction` objects, because fast and
slow kernels differ in whether the loop of a reduction can be vectorised.
"""

from __future__ import annotations

import attrs

__all__ = ["ELEMENTS", "MISTAKES", "REDUCTIONS", "Reduction"]

ELEMENTS = {
    "x = -x": "x = -x;",
    "x = x * x": "x = x * x;",
    "x = x * 2.0": "x = x * 2;",
    "x = x * 0.5": "x = x * 0.5f;",
    "x = x + 1.0": "x = x + 1;",
    "x = x - 1.0": "x = x - 1;",
    "x = torch.relu(x)": "x = x > 0 ? x : 0;",
    "x = torch.exp(x)": "x = std::exp(x);",
    "x = torch.sigmoid(x)": "x = 1 / (1 + std::exp(-x));",
    "x = torch.abs(x)": "x = std::abs(x);",
    "x = torch.sin(x)": "x = std::sin(x);",
    "x = torch.clamp(x, -1.0, 1.0)": "x = x > 1 ? 1 : x < -1 ? -1 : x;",
    "x = torch.where(x > 0.0, x, x * 0.1)": "x = x > 0 ? x : x * 0.1f;",
    "x = x * torch.sigmoid(x)": "x = x / (1 + std::exp(-x));",
    "x = x / (1.0 + torch.abs(x))": "x = x / (1 + std::abs(x));",
    "x = x + z": "x = x + z;",
    "x = x - z": "x = x - z;",
    "x = x * z": "x = x * z;",
    "x = torch.maximum(x, z)": "x = x > z ? x : z;",
    "x = x > z": "x = x > z;",
    "x = x * self.scale": "x = x * scale;",
    "x = x + self.bias": "x = x + bias;",
    "x = x * self.factor": "x = x * factor;",
}
"""Line of a reference → statement on one element."""


@attrs.frozen
class Reduction:
    """A reduction of a row to a scalar, and the statements that use the scalar."""

    operation: str
    """`+`, `max` or `min`; empty for a scan, which depends on the order."""
    term: str
    """Term that each element contributes."""
    then: tuple[str, ...] = ()
    """Statements after the loop; `LOOP` is replaced by the head of a loop over the row."""


_SUM = ("+", "v[j]")
_SUBTRACT = "LOOP v[j] = v[j] - s;"
_DIVIDE = "LOOP v[j] = v[j] / s;"

REDUCTIONS = {
    "x = x - x.mean(dim=1, keepdim=True)": Reduction(*_SUM, ("s = s / n;", _SUBTRACT)),
    "x = x - x.amax(dim=1, keepdim=True)": Reduction("max", "v[j]", (_SUBTRACT,)),
    "x = x - x.amin(dim=1, keepdim=True)": Reduction("min", "v[j]", (_SUBTRACT,)),
    "x = x / x.sum(dim=1, keepdim=True)": Reduction(*_SUM, (_DIVIDE,)),
    "x = x / x.amax(dim=1, keepdim=True)": Reduction("max", "v[j]", (_DIVIDE,)),
    "x = x / torch.abs(x).sum(dim=1, keepdim=True)": Reduction("+", "std::abs(v[j])", (_DIVIDE,)),
    "x = x / torch.sqrt((x * x).mean(dim=1, keepdim=True))": Reduction(
        "+", "v[j] * v[j]", ("s = std::sqrt(s / n);", _DIVIDE)
    ),
    "x = torch.cumsum(x, dim=1)": Reduction("", "v[j] = s += v[j];"),
    "x = x.sum()": Reduction(*_SUM),
    "x = x.sum(dim=1)": Reduction(*_SUM),
    "x = x.mean(dim=1)": Reduction(*_SUM, ("s = s / n;",)),
    "x = x.amax(dim=1)": Reduction("max", "v[j]"),
}
"""Line of a reference → reduction of a row."""

MISTAKES = {
    "x = -x;": "x = 1 - x;",
    "x = x * x;": "x = x + x;",
    "x = x * 2;": "x = x + 2;",
    "x = x * 0.5f;": "x = x / 0.5f;",
    "x = x + 1;": "x = x - 1;",
    "x = x - 1;": "x = x + 1;",
    "x = x > 0 ? x : 0;": "x = x > 0 ? 0 : x;",
    "x = std::exp(x);": "x = 1 + x;",
    "x = 1 / (1 + std::exp(-x));": "x = 1 / (1 + std::exp(x));",
    "x = std::abs(x);": "x = x > 0 ? x : 0;",
    "x = std::sin(x);": "x = std::cos(x);",
    "x = x > 1 ? 1 : x < -1 ? -1 : x;": "x = x > 1 ? 1 : x;",
    "x = x > 0 ? x : x * 0.1f;": "x = x > 0 ? x * 0.1f : x;",
    "x = x / (1 + std::exp(-x));": "x = 1 / (1 + std::exp(-x));",
    "x = x / (1 + std::abs(x));": "x = x / (1 + x * x);",
    "x = x + z;": "x = x - z;",
    "x = x - z;": "x = z - x;",
    "x = x * z;": "x = x + z;",
    "x = x > z ? x : z;": "x = x > z ? z : x;",
    "x = x > z;": "x = x < z;",
    "x = x * scale;": "x = x + scale;",
    "x = x + bias;": "x = x - bias;",
    "x = x * factor;": "x = x + factor;",
    "v[j] = s += v[j];": "v[j] = s = v[j];",
    "LOOP v[j] = v[j] - s;": "LOOP v[j] = v[j] + s;",
    "LOOP v[j] = v[j] / s;": "LOOP v[j] = v[j] * s;",
}
"""Statement → the same statement with a wrong operator or a swapped argument."""
