"""Values of tasks and kernels besides tensors, and their plain forms, which the protocol carries as data.

The plain form of a value consists of None, numbers, texts, lists, tuples, dicts, tensors and `ObjectLeaf`. The judge
makes it of every value of a task, and the runner builds the value again from it (`rebuilt`).
"""

from __future__ import annotations

import argparse
import collections
import dataclasses
import enum
import functools
import math
import sys
import types
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import attrs
import torch

from kernelrl_judge.protocol.values import DTYPES, MAX_TEXT_BYTES, ObjectLeaf

__all__ = ["EXACT_TYPES", "TUPLE_TYPES", "NotCarried", "is_exact", "plain", "rebuilt", "sequence_as", "tensor_problem"]

_MAX_DEPTH = 10
_MAX_NODES = 2048
EXACT_TYPES = (
    type(None),
    bool,
    int,
    float,
    str,
    complex,
    range,
    slice,
    set,
    frozenset,
    types.SimpleNamespace,
    torch.dtype,
    torch.device,
    torch.layout,
    torch.memory_format,
)
"""Types of the values, besides tensors, lists, tuples, dicts and numpy's scalars, that a kernel may return."""
TUPLE_TYPES = frozenset((torch.Size, *(kind for kind in vars(torch.return_types).values() if isinstance(kind, type))))
"""Types of tuples of torch, for which the protocol has plain tuples in outputs."""
_TORCH_NAMES = (torch.dtype, torch.layout, torch.memory_format)
"""Types of torch's named constants."""
_NAMESPACES = (types.SimpleNamespace, argparse.Namespace)
_KEYS = (type(None), bool, int, float, str)
_BEHAVIOUR = ("__call__", "__getattr__", "__getattribute__", "__getitem__", "__iter__", "__len__")
"""Special methods by which an object is more than its fields."""
_NUMPY_KINDS = "biufcU"
"""Kinds of numpy's scalars that are numbers or texts of Python."""


class NotCarried(TypeError):
    """A value that the protocol cannot carry.

    Args:
        path: path of the value, such as `[0].scale`; empty for the whole value.
        what: the value in words, such as `a value of type generator`.
    """

    def __init__(self, path: str, what: str) -> None:
        super().__init__(f"{path} is {what}" if path else what)
        self.path = path
        self.what = what


def plain(value: Any, *, flat: bool = False) -> Any:
    """The plain form of a value. Tensors remain, and the plain form of a plain form is equal to it.

    Args:
        flat: named tuples and `torch.Size` become tuples, as in outputs.

    Raises:
        NotCarried: the value has none.
    """
    return _Conversion(flat).plain(value, "", _MAX_DEPTH)


def is_exact(value: Any) -> bool:
    """Whether a value has one of `EXACT_TYPES`, or is a scalar of numpy. A subclass could have its own behaviour."""
    return type(value) in EXACT_TYPES or type(value) in _numpy_scalars(sys.modules.get("numpy"))


def tensor_problem(tensor: torch.Tensor) -> str:
    """Why the protocol cannot carry a tensor, in words; empty if it can."""
    if type(tensor) not in (torch.Tensor, torch.nn.Parameter):
        return f"a tensor of class {type(tensor).__name__}"
    if tensor.is_nested:
        return "a nested tensor"
    if tensor.is_quantized:
        return "a quantised tensor"
    if tensor.layout is not torch.strided:
        return f"a tensor of layout {_name(tensor.layout)}"
    if _name(tensor.dtype) not in DTYPES:
        return f"a tensor of dtype {_name(tensor.dtype)}"
    return ""


def sequence_as(like: Any, items: Iterable[Any]) -> Any:
    """A sequence of items that is a list, tuple or named tuple as another one is."""
    if isinstance(like, list):
        return list(items)
    if hasattr(like, "_fields") and hasattr(like, "_make"):
        return like._make(items)
    return torch.Size(items) if isinstance(like, torch.Size) else tuple(items)


def rebuilt(kind: str, parts: Any) -> Any:
    """The object of an `ObjectLeaf`.

    Args:
        parts: of the leaf, without further leaves.
    """
    return _BUILDERS[kind](parts)


@attrs.define
class _Conversion:
    """Conversion of one value to its plain form."""

    flat: bool
    n_nodes: int = 0

    def plain(self, value: Any, path: str, depth: int, *, tensors: bool = True) -> Any:
        """The plain form of a part of the value.

        Args:
            depth: of further nesting that is allowed.
            tensors: whether the part may contain tensors.
        """
        self.n_nodes += 1
        if depth < 0 or self.n_nodes > _MAX_NODES:
            raise NotCarried(path, "nested too deeply" if depth < 0 else f"one of more than {_MAX_NODES} values")
        if isinstance(value, torch.Tensor):
            problem = tensor_problem(value) if tensors else "a tensor inside of a set, slice or namespace"
            if problem:
                raise NotCarried(path, problem)
            return value
        if isinstance(value, list | tuple):
            return self._sequence(value, path, depth, tensors=tensors)
        if isinstance(value, dict):
            return {
                self._key(key, path): self.plain(item, f"{path}[{key!r}]", depth - 1, tensors=tensors)
                for key, item in value.items()
            }
        return self._object(value, path, depth)

    def _sequence(self, value: Any, path: str, depth: int, *, tensors: bool) -> Any:
        items = [self.plain(item, f"{path}[{number}]", depth - 1, tensors=tensors) for number, item in enumerate(value)]
        if isinstance(value, list):
            return items
        if self.flat or type(value) is tuple:
            return tuple(items)
        if isinstance(value, torch.Size):
            return ObjectLeaf("size", [items])
        fields = getattr(value, "_fields", None)
        if fields is None:
            return tuple(items)
        if not _is_record(type(value), fields):
            raise NotCarried(path, f"a value of type {type(value).__name__}, a named tuple with methods")
        return ObjectLeaf("named_tuple", [type(value).__name__, list(fields), items])

    def _key(self, key: Any, path: str) -> Any:
        key = _without_enumeration(key)
        if type(key) is tuple:
            return tuple(self._key(item, path) for item in key)
        is_plain = type(key) in _KEYS and not (isinstance(key, float) and math.isnan(key))
        if not is_plain or (isinstance(key, int) and not _fits(key)):
            raise NotCarried(path, f"a dict with a key of type {type(key).__name__}")
        return key

    def _object(self, value: Any, path: str, depth: int) -> Any:
        if isinstance(value, ObjectLeaf):
            return value
        value = _without_enumeration(value)
        if type(value) in _numpy_scalars(sys.modules.get("numpy")):
            value = value.item()
        if value is None or type(value) in (bool, float):
            return value
        if type(value) is int:
            if not _fits(value):
                raise NotCarried(path, "an integer of more than 64 bits")
            return value
        if type(value) is str:
            return self._text(value, path)
        parts = self._parts(value, path, depth)
        if parts is None:
            raise NotCarried(path, _in_words(value))
        return ObjectLeaf(*parts)

    def _text(self, value: str, path: str) -> str:
        try:
            is_short = len(value.encode()) <= MAX_TEXT_BYTES
        except UnicodeEncodeError:
            raise NotCarried(path, "a text with characters that UTF-8 does not have") from None
        if not is_short:
            raise NotCarried(path, f"a text of more than {MAX_TEXT_BYTES} bytes")
        return value

    def _parts(self, value: Any, path: str, depth: int) -> tuple[str, Any] | None:
        """Kind and parts of the `ObjectLeaf` of a value; None if there is no such kind."""

        def part(item: Any, name: str = "") -> Any:
            return self.plain(item, path + name, depth - 1, tensors=False)

        if isinstance(value, _TORCH_NAMES):
            return "torch", _name(value)
        match value:
            case complex() if type(value) is complex:
                return "complex", [value.real, value.imag]
            case torch.device():
                return "device", [value.type, value.index]
            case range() | slice():
                return type(value).__name__, [part(value.start), part(value.stop), part(value.step)]
            case set() | frozenset() if type(value) in (set, frozenset):
                return type(value).__name__, sorted(map(part, value), key=repr)
        fields = _fields(value)
        if fields is None:
            return None
        return "namespace", {part(name): part(item, f".{name}") for name, item in fields.items()}


def _without_enumeration(value: Any) -> Any:
    """The value of a member of an enumeration that is itself a number or text, such as `IntEnum`; others unchanged."""
    return value.value if isinstance(value, enum.Enum) and isinstance(value, int | float | str) else value


def _fits(number: int) -> bool:
    return -(2**63) <= number < 2**63


def _name(constant: Any) -> str:
    """Name of a constant in the module `torch`."""
    return str(constant).removeprefix("torch.")


def _in_words(value: Any) -> str:
    if isinstance(value, type):
        return f"the class {value.__name__}"
    return "a function" if isinstance(value, types.FunctionType) else f"a value of type {type(value).__name__}"


def _fields(value: Any) -> Mapping[str, Any] | None:
    """The fields of a namespace, or of a dataclass without methods; None for other values."""
    if type(value) in _NAMESPACES:
        return dict(vars(value))
    if not dataclasses.is_dataclass(value) or isinstance(value, type):
        return None
    names = [field.name for field in dataclasses.fields(value)]
    return {name: getattr(value, name) for name in names} if _is_record(type(value), names) else None


def _is_record(kind: type, fields: Iterable[str]) -> bool:
    """Whether objects of a class are nothing but their fields."""
    names = {name for base in kind.__mro__ if base not in (object, tuple) for name in vars(base)}
    return not any(name in _BEHAVIOUR or not name.startswith("_") for name in names.difference(fields))


@functools.cache
def _numpy_scalars(numpy: Any) -> frozenset[type]:
    """Types of numpy's scalars that equal numbers or texts of Python; empty if numpy is not imported."""
    if numpy is None:
        return frozenset()
    kinds = {kind for kind in numpy.sctypeDict.values() if numpy.dtype(kind).kind in _NUMPY_KINDS}
    # Numbers of Python are less precise than these two types.
    return frozenset(kinds - {numpy.longdouble, numpy.clongdouble})


def _constant(name: str) -> Any:
    found = getattr(torch, name)
    if not isinstance(found, _TORCH_NAMES):
        raise TypeError(f"torch.{name} has another type")
    return found


@functools.lru_cache(maxsize=64)
def _tuple_class(name: str, fields: tuple[str, ...]) -> Any:
    return collections.namedtuple(name, fields)


_BUILDERS: Mapping[str, Callable[[Any], Any]] = {
    "complex": lambda parts: complex(*parts),
    "device": lambda parts: torch.device(parts[0]) if parts[1] is None else torch.device(*parts),
    "frozenset": frozenset,
    "named_tuple": lambda parts: _tuple_class(parts[0], tuple(parts[1]))._make(parts[2]),
    "namespace": lambda parts: types.SimpleNamespace(**parts),
    "range": lambda parts: range(*parts),
    "set": set,
    "size": lambda parts: torch.Size(parts[0]),
    "slice": lambda parts: slice(*parts),
    "torch": _constant,
}
