"""Report of a runner on the parameters of its candidate: which of the reference's it has."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import attrs

__all__ = ["ParameterMatch", "ParameterSpread", "read_parameter_match"]


@attrs.frozen
class ParameterMatch:
    """Parameters of the reference that a candidate has, and how they were found."""

    lacking: frozenset[str] = frozenset()
    """Names of the parameters for which the candidate has no tensor."""
    is_by_value: bool = False
    """True if some have other names and were found by their values, so that equal ones cannot be distinguished."""


@attrs.frozen
class ParameterSpread:
    """How far drawn parameters are from those of the constructor, as a share of their own spread."""

    share: float
    has_large_values: bool


def read_parameter_match(note: Any, parameters: Collection[str]) -> ParameterMatch:
    """Read the note of a runner on the parameters of its candidate. The runner is not trusted.

    Args:
        parameters: names of the reference's parameters and saved buffers.
    """
    expected = frozenset(parameters)
    if not isinstance(note, dict):
        return ParameterMatch(lacking=expected)
    names = note.get("names")
    found = map(str, names) if isinstance(names, list) else ()
    return ParameterMatch(lacking=expected.difference(found), is_by_value=note.get("renamed") != 0)
