"""Tensors that a module keeps outside of parameters and buffers: in attributes, in lists and dictionaries, and in
objects of plain classes of the module's own source."""

from __future__ import annotations

import functools
import types
from collections.abc import Iterator
from typing import Any

__all__ = ["kept_tensors", "variables"]

_MOST = 256
_DEEPEST = 3
"""Lists, dictionaries and objects in each other."""


def variables(module: Any) -> dict[str, Any]:
    """Those of a module, whatever its class makes of `__dict__`."""
    import torch

    found: dict[str, Any] = vars(torch.nn.Module)["__dict__"].__get__(module)
    return found


def kept_tensors(module: Any) -> dict[str, Any]:
    """The tensors that a module and those below it keep, by name, such as `block.drawn[0]`. Runs no code of theirs."""
    import torch

    if not isinstance(module, torch.nn.Module):
        return {}
    found: dict[str, Any] = {}
    for prefix, held in _modules(module):
        for name, value in [*variables(held).items()]:
            if name not in _of_every_module():
                for path, tensor in _tensors(value, f"{prefix}{name}", _DEEPEST, _source(type(held))):
                    found[path] = tensor
                    if len(found) == _MOST:
                        return found
    return found


def _modules(module: Any, prefix: str = "", above: tuple[int, ...] = ()) -> Iterator[tuple[str, Any]]:
    yield prefix, module
    children = variables(module).get("_modules")
    for name, child in [*dict.items(children)] if isinstance(children, dict) else ():
        if child is not None and id(child) not in above:
            yield from _modules(child, f"{prefix}{name}.", (*above, id(module)))


def _tensors(value: Any, path: str, depth: int, source: str) -> Iterator[tuple[str, Any]]:
    """Tensors in a value, exact types alone, and in what objects of classes of a source have in attributes: others may
    have code of their own, or very much in them."""
    import torch

    if type(value) in (torch.Tensor, torch.nn.Parameter):
        yield path, value.detach()
    elif type(value) in (list, tuple, dict) and depth:
        pairs = value.items() if type(value) is dict else enumerate(value)
        for key, item in [*pairs]:
            yield from _tensors(item, f"{path}[{key!r}]" if type(key) in (int, str) else path, depth - 1, source)
    elif depth and source and _source(type(value)) == source:
        for name, item in [*_attributes(value).items()]:
            yield from _tensors(item, f"{path}.{name}", depth - 1, source)


def _source(kind: type) -> str:
    """The name of the source that a class was defined in; empty of what none defines."""
    name = vars(type)["__dict__"].__get__(kind).get("__module__")
    return name if type(name) is str else ""


def _attributes(value: Any) -> dict[str, Any]:
    """Those of an object that is no module, whatever its class makes of `__dict__`."""
    import torch

    kinds = vars(type)["__mro__"].__get__(type(value))
    if torch.nn.Module not in kinds:
        for kind in kinds:
            found = vars(type)["__dict__"].__get__(kind).get("__dict__")
            if type(found) is types.GetSetDescriptorType:
                return dict(found.__get__(value))
    return {}


@functools.cache
def _of_every_module() -> frozenset[str]:
    import torch

    return frozenset(vars(torch.nn.Module()))
