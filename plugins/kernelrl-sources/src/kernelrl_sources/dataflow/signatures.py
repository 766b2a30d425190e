"""Arguments of a call by their names, so that a position, a keyword and an alias are one spelling.

Sources: signatures of `torch`, `torch.nn.functional` and `torch.nn`, and the aliases of NumPy that `torch` accepts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kernelrl_sources.dataflow.graph import Node
from kernelrl_sources.dataflow.values import Const

__all__ = ["bound_arguments"]

_ALIASES = {"axis": "dim", "keepdims": "keepdim", "ord": "p", "a_min": "min", "a_max": "max"}

_REDUCTION = ("dim", "keepdim")
_SCAN = ("dim",)
_LOSS = ("weight", "size_average", "ignore_index", "reduce", "reduction")
_FUNCTIONS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("sum", "mean", "amax", "amin", "max", "min", "prod", "all", "any"), _REDUCTION),
    **dict.fromkeys(("argmax", "argmin", "logsumexp", "median"), _REDUCTION),
    **dict.fromkeys(("var", "std", "varmean", "stdmean"), ("dim", "unbiased", "keepdim")),
    **dict.fromkeys(("softmax", "logsoftmax", "softmin", "cumsum", "cumprod"), _SCAN),
    "norm": ("p", "dim", "keepdim"),
    "normalize": ("p", "dim", "eps"),
    "clamp": ("min", "max"),
    "gelu": ("approximate",),
}
"""Canonical name of a function or method -> names of its arguments after the tensor."""

_LAYERS: dict[str, tuple[str, ...]] = {
    "linear": ("in_features", "out_features", "bias"),
    "bilinear": ("in1_features", "in2_features", "out_features", "bias"),
    **dict.fromkeys(
        ("conv1d", "conv2d", "conv3d"),
        ("in_channels", "out_channels", "kernel_size", "stride", "padding", "dilation", "groups", "bias"),
    ),
    **dict.fromkeys(
        ("convtranspose1d", "convtranspose2d", "convtranspose3d"),
        ("in_channels", "out_channels", "kernel_size", "stride", "padding", "output_padding", "groups", "bias"),
    ),
    **dict.fromkeys(("batchnorm1d", "batchnorm2d", "batchnorm3d"), ("num_features", "eps", "momentum", "affine")),
    **dict.fromkeys(
        ("instancenorm1d", "instancenorm2d", "instancenorm3d"), ("num_features", "eps", "momentum", "affine")
    ),
    "layernorm": ("normalized_shape", "eps", "elementwise_affine", "bias"),
    "rmsnorm": ("normalized_shape", "eps", "elementwise_affine"),
    "groupnorm": ("num_groups", "num_channels", "eps", "affine"),
}
"""Canonical name of a layer -> names of the arguments of its constructor."""

_DEFAULTS: dict[tuple[str, str], Any] = {
    ("gelu", "approximate"): "none",
    ("interpolate", "mode"): "nearest",
    ("upsample", "mode"): "nearest",
}
"""Operator and argument -> a value that changes nothing."""


def bound_arguments(
    label: str, arguments: Sequence[Any], named: Mapping[str, Any], *, layer: bool = False, inputs: int = 0
) -> tuple[str, list[Any], dict[str, Any]]:
    """Canonical name and arguments of a call.

    Args:
        label: canonical name of the operator.
        layer: whether it is the constructor of a layer.
        inputs: number of leading arguments that are tensors: 1 for a function, 0 for a method.
    """
    keywords = {_ALIASES.get(name, name): value for name, value in named.items()}
    names = (_LAYERS if layer else _FUNCTIONS).get(label, ())
    if label in ("var", "std") and len(arguments) > inputs and _is_boolean(arguments[inputs]):
        names = names[1:]
    positional = list(arguments[:inputs])
    for position, value in enumerate(arguments[inputs:]):
        if position < len(names) and not isinstance(value, Node):
            keywords[names[position]] = value
        else:
            positional.append(value)
    for name, value in list(keywords.items()):
        if not isinstance(value, Const):
            continue
        is_mean = label.endswith(("loss", "entropy", "entropywithlogits", "kldiv")) and name == "reduction"
        if value.value == _DEFAULTS.get((label, name), "mean" if is_mean else _NOTHING):
            del keywords[name]
    if "correction" in keywords:
        keywords["unbiased"] = Const(_number(keywords.pop("correction")) != 0)
    if label in ("norm", "normalize"):
        label = _of_order(label, keywords)
    if label == "clamp" and _is_absent(keywords.get("min")) and not _is_absent(keywords.get("max")):
        label = "clampmax"
    return label, positional, keywords


_NOTHING = object()


def _of_order(label: str, keywords: dict[str, Any]) -> str:
    """A norm with its order in the name: `l1norm`, `norm` of order 2, `pnorm` of another order, which stays."""
    order = keywords.pop("p", Const(2))
    if isinstance(order, Const) and order.value in (2, "fro", None):
        return label
    if _number(order) == 1:
        return f"l1{label}"
    keywords["p"] = order
    return f"p{label}"


def _number(value: Any) -> Any:
    return value.value if isinstance(value, Const) else None


def _is_absent(value: Any) -> bool:
    return value is None or (isinstance(value, Const) and value.value is None)


def _is_boolean(value: Any) -> bool:
    return isinstance(value, Const) and isinstance(value.value, bool)
