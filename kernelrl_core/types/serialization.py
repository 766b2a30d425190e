"""Lossless conversion of values to JSON and back.

`from_json(cls, to_json(value)) == value` for every value of `kernelrl_core.types`. Floats are preserved
exactly, because Python writes the shortest text that parses to the same number. NaN and infinities are refused: JSON
has none.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping
from enum import Enum
from typing import Any, TypeVar

import attrs
import cattrs
from cattrs.gen import make_dict_structure_fn, make_dict_unstructure_fn

from kernelrl_core.types.evaluations import (
    DeviceKernel,
    Evaluation,
    EvaluationFacts,
    ExtensionBuild,
    Roofline,
    TimingFacts,
)

__all__ = ["dumps", "from_json", "loads", "to_json"]

T = TypeVar("T")

_converter = cattrs.Converter(forbid_extra_keys=True)
_converter.register_unstructure_hook(Enum, lambda member: member.value)


# Facts that were not determined take no space in a row. The parts come first: the facts use their hooks.
for _facts_class in (ExtensionBuild, DeviceKernel, Roofline, TimingFacts, EvaluationFacts):
    _without_defaults = make_dict_unstructure_fn(_facts_class, _converter, _cattrs_omit_if_default=True)
    _converter.register_unstructure_hook(_facts_class, _without_defaults)

_structure_current = make_dict_structure_fn(Evaluation, _converter, _cattrs_forbid_extra_keys=True)
_tolerant_converter = cattrs.Converter()

_FORMER_NAMES = {"stages_s": "phases_s", "timing_is_eager": "direct_because"}
"""Key of the former mapping `profile` -> field of `EvaluationFacts`, where they differ."""


def _structure_evaluation(data: Mapping[str, Any], cls: type[Evaluation]) -> Evaluation:
    """An evaluation. Rows of older versions have the facts in an untyped mapping `profile`."""
    fields = dict(data)
    profile = fields.pop("profile", None)
    made: Evaluation = _structure_current(fields, cls)
    if isinstance(profile, Mapping) and profile:
        return attrs.evolve(made, facts=_former_facts(profile))
    return made


def _former_facts(profile: Mapping[str, Any]) -> EvaluationFacts:
    """The facts of a row that has them in an untyped mapping. A value that does not fit its field is dropped."""
    fields: dict[str, Any] = {}
    for key, value in profile.items():
        name = _FORMER_NAMES.get(key, key)
        if name not in attrs.fields_dict(EvaluationFacts):
            continue
        with contextlib.suppress(cattrs.BaseValidationError):
            facts = _tolerant_converter.structure({name: value}, EvaluationFacts)
            fields[name] = getattr(facts, name)
    return EvaluationFacts(**fields)


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
