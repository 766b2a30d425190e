"""Inputs and outputs of references as plain data."""

from __future__ import annotations

import base64
from typing import Any

import torch

__all__ = ["SAMPLES", "decoded", "encoded", "fill_parameters", "sampled"]

SAMPLES = 192
"""Number of elements of an output that are compared, at equal distances."""

_DTYPES = {
    str(dtype).removeprefix("torch."): dtype
    for dtype in (
        *(torch.float32, torch.float64, torch.float16, torch.bfloat16),
        *(torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8, torch.bool),
    )
}
_MAX_DEPTH = 4


def encoded(value: Any, depth: int = 0) -> Any:
    """A tensor, a plain value, or lists and dictionaries of them, as JSON.

    Raises:
        TypeError: any other value.
    """
    if isinstance(value, torch.Tensor):
        name = str(value.dtype).removeprefix("torch.")
        if name not in _DTYPES:
            raise TypeError(name)
        flat = value.detach().cpu().contiguous().reshape(-1)
        content = flat.view(torch.uint8).numpy().tobytes() if flat.numel() else b""
        return {"dtype": name, "shape": list(value.shape), "data": base64.b64encode(content).decode()}
    if value is None or isinstance(value, bool | int | float | str):
        return {"plain": value}
    if isinstance(value, list | tuple) and depth < _MAX_DEPTH:
        return {"list": [encoded(item, depth + 1) for item in value]}
    if isinstance(value, dict) and depth < _MAX_DEPTH:
        return {"dict": {str(key): encoded(item, depth + 1) for key, item in value.items()}}
    raise TypeError(type(value).__name__)


def decoded(value: Any) -> Any:
    """The inverse of `encoded`; tuples become lists."""
    if "plain" in value:
        return value["plain"]
    if "list" in value:
        return [decoded(item) for item in value["list"]]
    if "dict" in value:
        return {key: decoded(item) for key, item in value["dict"].items()}
    content = bytearray(base64.b64decode(value["data"]))
    dtype = _DTYPES[value["dtype"]]
    flat = torch.frombuffer(content, dtype=dtype) if content else torch.empty(0, dtype=dtype)
    return flat.reshape(value["shape"])


def fill_parameters(model: torch.nn.Module) -> None:
    """Set the parameters to values that depend on their shape and on their number among those of the same shape.

    So two models with equal parameters under other names, or in another order of shapes, get equal values.
    """
    counts: dict[tuple[int, ...], int] = {}
    for parameter in model.parameters():
        shape = tuple(parameter.shape)
        counts[shape] = counts.get(shape, 0) + 1
        generator = torch.Generator().manual_seed(counts[shape])
        if parameter.is_floating_point():
            drawn = torch.randn(shape, generator=generator) * 0.5 + 0.25
            with torch.no_grad():
                parameter.copy_(drawn)


def sampled(value: torch.Tensor) -> dict[str, Any]:
    """Shape of an output, and up to `SAMPLES` of its elements as float64."""
    if value.is_complex():
        value = torch.view_as_real(value)
    flat = value.detach().reshape(-1)
    count = flat.numel()
    if count > SAMPLES:
        flat = flat[torch.arange(SAMPLES) * (count - 1) // (SAMPLES - 1)]
    content = flat.to(torch.float64).contiguous().numpy().tobytes()
    return {"shape": list(value.shape), "data": base64.b64encode(content).decode()}
