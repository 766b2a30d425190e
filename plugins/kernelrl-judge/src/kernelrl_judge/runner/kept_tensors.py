"""Tensors that a module keeps outside of parameters and buffers.

They are in attributes, in lists and dictionaries, and in objects of plain classes of the module's own source.
"""

from __future__ import annotations

import functools
import types
from collections.abc import Iterator
from typing import Any

import torch

__all__ = ["kept_tensors", "variables"]

_MOST = 256
"""Maximum number of tensors."""
_DEEPEST = 3
"""Maximum nesting of lists, dictionaries and objects."""


def variables(module: Any) -> dict[str, Any]:
    """The variables of a module, even if its class replaces `__dict__`."""
    found: dict[str, Any] = vars(torch.nn.Module)["__dict__"].__get__(module)
    return found


def kept_tensors(module: Any) -> dict[str, Any]:
    """The tensors that a module and its children keep, by name, such as `block.drawn[0]`.

    No code of the module is executed.
    """
    if not isinstance(module, torch.nn.Module):
        return {}
    found: dict[str, Any] = {}
    for path, tensor in _kept(module):
        found[path] = tensor
        if len(found) == _MOST:
            break
    return found


def _kept(module: Any) -> Iterator[tuple[str, Any]]:
    for prefix, child in _modules(module):
        source = _source(type(child))
        for name, value in list(variables(child).items()):
            if name not in _of_every_module():
                yield from _tensors(value, f"{prefix}{name}", _DEEPEST, source)


def _modules(module: Any, prefix: str = "", above: tuple[int, ...] = ()) -> Iterator[tuple[str, Any]]:
    """A module and its descendants with the prefix of their names, without modules that contain themselves."""
    yield prefix, module
    children = variables(module).get("_modules")
    if not isinstance(children, dict):
        return
    for name, child in list(dict.items(children)):
        if child is not None and id(child) not in above:
            yield from _modules(child, f"{prefix}{name}.", (*above, id(module)))


def _tensors(value: Any, path: str, depth: int, source: str) -> Iterator[tuple[str, Any]]:
    """Tensors in a value, and in the attributes of objects whose class is defined in a source.

    Only exact types are read: objects of other classes may execute code, or may contain very many objects.
    """
    if type(value) in (torch.Tensor, torch.nn.Parameter):
        yield path, value.detach()
    elif type(value) in (list, tuple, dict) and depth:
        pairs = value.items() if type(value) is dict else enumerate(value)
        for key, item in list(pairs):
            path_of_item = f"{path}[{key!r}]" if type(key) in (int, str) else path
            yield from _tensors(item, path_of_item, depth - 1, source)
    elif depth and source and _source(type(value)) == source:
        for name, item in list(_attributes(value).items()):
            yield from _tensors(item, f"{path}.{name}", depth - 1, source)


def _source(kind: type) -> str:
    """The name of the module that defines a class; empty if unknown."""
    name = vars(type)["__dict__"].__get__(kind).get("__module__")
    return name if type(name) is str else ""


def _attributes(value: Any) -> dict[str, Any]:
    """The attributes of an object that is no `torch.nn.Module`, even if its class replaces `__dict__`."""
    kinds = vars(type)["__mro__"].__get__(type(value))
    if torch.nn.Module in kinds:
        return {}
    for kind in kinds:
        found = vars(type)["__dict__"].__get__(kind).get("__dict__")
        if type(found) is types.GetSetDescriptorType:
            return dict(found.__get__(value))
    return {}


@functools.cache
def _of_every_module() -> frozenset[str]:
    """Names of the variables that every module has."""
    return frozenset(vars(torch.nn.Module()))
