"""Keys and values of former versions, and what a saved recipe means now."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

__all__ = ["FORMER_KEYS", "former_value", "since_former_versions"]

FORMER_KEYS: Mapping[tuple[str, ...], str] = {
    ("evaluation", "profile_kernels"): "remove it: the kernels of a recorded call are always listed",
}
"""Keys that are gone, with the fix. `null` is accepted."""
_FORMER_VALUES: Mapping[tuple[tuple[str, ...], str], str] = {
    (("evaluation", "timing_method"), "window"): "replay",
}


def former_value(path: tuple[str, ...], value: object) -> str:
    """The successor of a value that is gone; empty for another one."""
    return _FORMER_VALUES.get((path, value), "") if isinstance(value, str) else ""


def since_former_versions(saved: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Overrides under which a recipe that a former version saved can be read, each with a notice.

    The notice is empty where the recipe means what it meant then.
    """
    for path in FORMER_KEYS:
        if (value := _at(saved, path)) is not None:
            key = ".".join(path)
            notice = f"{key}={str(value).lower()} has no effect any more" if value else ""
            yield f"{key}=null", notice
    for (path, former), successor in _FORMER_VALUES.items():
        if _at(saved, path) == former:
            key = ".".join(path)
            yield f"{key}={successor}", f"{key} is {successor} now; {former}, as the run was started with, is gone"
    train = saved.get("train")
    if isinstance(train, Mapping):
        if "decontaminate" not in train:
            yield "train.decontaminate=false", ""
        if train.get("exact_resume") is True:
            # It was the default, and accepted with every policy.
            yield "train.exact_resume=null", ""


def _at(data: Any, path: tuple[str, ...]) -> Any:
    for key in path:
        if not isinstance(data, Mapping):
            return None
        data = data.get(key)
    return data
