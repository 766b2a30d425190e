"""Differences between two resolved recipes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kernelrl_core.recipe.field_docs import yaml_text

__all__ = ["changes", "differences"]


def differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """A text such as `train.steps (20 -> 30)` for each key of two resolved recipes that differs and has an effect."""
    return [f"{key} ({_shown(before)} -> {_shown(after)})" for key, before, after in changes(old, new)]


def changes(old: Any, new: Any, path: Sequence[str] = ()) -> list[tuple[str, Any, Any]]:
    """(key, old value, new value) for each key of plain data that differs. A key that one side lacks has the value
    None."""
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        return [
            change
            for key in dict.fromkeys((*old, *new))
            for change in changes(old.get(key), new.get(key), (*path, str(key)))
        ]
    return [] if old == new or path == ("train", "exact_resume") else [(".".join(path), old, new)]


def _shown(value: Any) -> str:
    text = yaml_text(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
