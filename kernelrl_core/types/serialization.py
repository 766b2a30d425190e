"""Lossless conversion of values to JSON and back.

`from_json(cls, to_json(value)) == value` for every value of `kernelrl_core.types`. Floats are preserved
exactly, because Python writes the shortest text that parses to the same number. NaN and infinities are refused: JSON
has none.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from enum import Enum
from typing import Any, TypeVar

import cattrs
from cattrs.gen import make_dict_structure_fn

from kernelrl_core.types.evaluations import Evaluation

__all__ = ["dumps", "from_json", "loads", "to_json"]

T = TypeVar("T")

_converter = cattrs.Converter(forbid_extra_keys=True)
_converter.register_unstructure_hook(Enum, lambda member: member.value)


def _structure_evaluation(data: Mapping[str, Any], cls: type[Evaluation]) -> Evaluation:
    fields = dict(data)
    for old, names in (("profile", ("own_kernel_share", "eager_speedup", "kernels")), ("provenance", ("checked",))):
        # Rows of older versions contain these facts one level deeper.
        kept = dict(fields.get(old) or {})
        for name in names:
            if name in kept and name not in data:
                fields[name] = kept.pop(name)
        if old in fields:
            fields[old] = kept
    made: Evaluation = _structure_plain(fields, cls)
    return made


_structure_plain = make_dict_structure_fn(Evaluation, _converter, _cattrs_forbid_extra_keys=True)
_converter.register_structure_hook(Evaluation, _structure_evaluation)


def to_json(value: object) -> Any:
    """The value as plain lists, mappings, text and numbers."""
    return _converter.unstructure(value)


def from_json(cls: type[T], data: Mapping[str, Any]) -> T:
    """The value that `to_json` converted to `data`.

    Raises:
        cattrs.BaseValidationError: `data` does not describe a `cls`.
    """
    return _converter.structure(data, cls)


def dumps(value: object) -> str:
    """One line of JSON.

    Raises:
        ValueError: a float is not finite.
    """
    return json.dumps(to_json(value), ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def loads(cls: type[T], line: str) -> T:
    """The value that `dumps` wrote."""
    return from_json(cls, json.loads(line))
