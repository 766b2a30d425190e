"""Tasks of the lab, in KernelBench's format."""

from __future__ import annotations

import textwrap

__all__ = [
    "ABS_MEAN",
    "BIASED",
    "CONSTANT",
    "CUMSUM",
    "DEAD_BRANCH",
    "DIAGONAL",
    "FIXED_INPUT",
    "IN_RANGE",
    "LAYER_SCALE",
    "MATMUL",
    "PAIR",
    "RELU_DOUBLE",
    "ROW_MEAN",
    "SOFTMAX",
    "ZEROED",
    "large",
    "task",
]


def task(forward: str, inputs: str = "torch.randn(20, 64)", *, init: str = "", arguments: str = "x") -> str:
    """A reference without options.

    Args:
        forward: body of `forward`.
        inputs: expressions of the inputs.
        init: lines of the constructor after the call of its parent's.
        arguments: parameters of `forward`.
    """
    constructor = ""
    if init:
        constructor = "    def __init__(self):\n        super().__init__()\n" + textwrap.indent(init, " " * 8) + "\n\n"
    body = textwrap.indent(forward, " " * 8)
    return (
        "import torch\nimport torch.nn as nn\n\n\nclass Model(nn.Module):\n"
        f"{constructor}    def forward(self, {arguments}):\n{body}\n\n\n"
        f"def get_inputs():\n    return [{inputs}]\n\n\ndef get_init_inputs():\n    return []\n"
    )


def large(source: str) -> str:
    """The task with inputs that take a processor long enough to be timed."""
    return source.replace("torch.randn(20, 64)", "torch.randn(512, 512)")


RELU_DOUBLE = task("return torch.relu(x) * 2.0")
BIASED = task(
    "return torch.relu(x * self.weight + self.bias)",
    init=("self.weight = nn.Parameter(torch.randn(64))\nself.bias = nn.Parameter(torch.randn(64))"),
)
PAIR = task("return torch.relu(x), x * 2.0")
SOFTMAX = task("return torch.softmax(x, dim=1)")
CUMSUM = task("return torch.cumsum(x, dim=1)")
ROW_MEAN = task("return x.mean(dim=1, keepdim=True).expand_as(x).contiguous()")
MATMUL = task("return a @ b", "torch.randn(32, 64), torch.randn(64, 32)", arguments="a, b")
ABS_MEAN = task("return x.abs().mean(dim=1)", "torch.randn(8, 4096)")

CONSTANT = task("return torch.softmax(x.mean(dim=1, keepdim=True), dim=1)")
"""Ones, whatever the input is."""
ZEROED = task("return torch.relu(x) * 0.0", "torch.randn(1024, 1024)")
"""Zeros for every finite input."""
IN_RANGE = task("return torch.clamp(x, 0.0, 1.0)", "torch.rand(20, 64)")
"""The operation does nothing to inputs of this distribution."""
FIXED_INPUT = task("return torch.relu(x) * 2.0", "torch.arange(1280.0).reshape(20, 64) - 640.0")
"""The inputs are not drawn."""
LAYER_SCALE = task("return x + self.scale * torch.tanh(x)", init="self.scale = nn.Parameter(1e-6 * torch.randn(64))")
"""The effect of the parameters is below the tolerance."""
DIAGONAL = task("return a @ b", "torch.diag(torch.randn(32)), torch.randn(32, 32)", arguments="a, b")
"""Every input has a structure that nothing promises."""
DEAD_BRANCH = task("y = torch.exp(torch.tanh(x))\ny = y - y.detach()\nreturn torch.relu(x) * 2.0 + y")
"""Part of the graph cannot influence the result."""
