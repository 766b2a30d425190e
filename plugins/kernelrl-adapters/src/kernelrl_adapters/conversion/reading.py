"""Reading of a configuration: YAML and overrides, the system that it belongs to, typed values."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs

from kernelrl_adapters.conversion.keys import (
    DATASET,
    FALLBACK,
    KERNEL_RL,
    KERNELBENCH_TINKER,
    KEYS,
    MULTI_TURN_DATASET,
    Key,
)
from kernelrl_core.api.errors import UsageError, nearest, suggestion
from kernelrl_core.api.recipes import (
    Merged,
    Origin,
    Problem,
    RecipeError,
    merge_layers,
    override_layers,
    read_layer,
    shown_path,
)

__all__ = ["SYSTEMS", "Configuration", "read_configuration"]

SYSTEMS = (KERNEL_RL, KERNELBENCH_TINKER)
_OWN_KEYS = ("tasks", "policy", "rewards", "extends", "train")
"""Keys that show a recipe of kernelrl."""
_HOLDOUT = f"{DATASET}holdout_indices"
_GROUPS = (DATASET, MULTI_TURN_DATASET, "multiturn.")
"""Prefixes of keys. The mappings themselves may be empty."""
_EXPECTED = {
    "text": "text",
    "int": "an integer",
    "number": "a number",
    "bool": "true or false",
    "texts": "a list of texts",
    "ints": "a list of integers",
    "levels": "lists of task numbers by level, such as {1: [3, 10]}",
}
_WORDS = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}
"""Booleans of YAML 1.1, which both systems read."""


@attrs.frozen
class Configuration:
    """A configuration of one of the two systems."""

    path: Path
    system: str
    values: Mapping[str, Any]
    """Known key -> value of its type, for keys that are set."""
    unknown: Mapping[str, Any]
    """Keys that the system does not have."""
    origins: Mapping[str, Origin]
    """Key -> place of its value."""
    spelt: Mapping[str, str]
    """Known key -> key as written, where they differ."""

    def __getitem__(self, key: str) -> Any:
        """The value of a key, or the default of the system."""
        if key in self.values:
            return self.values[key]
        return FALLBACK[self.system].get(key, KEYS[key].default)


def read_configuration(path: Path, overrides: Sequence[str] = (), system: str = "") -> Configuration:
    """Read a YAML file and overrides of either system.

    Args:
        overrides: `a.b=VALUE`, or `...b=VALUE` for the only key that ends so.
        system: one of `SYSTEMS`; empty: the one whose keys are set.

    Raises:
        RecipeError: the file cannot be read or is not YAML, or values have a wrong type; lists all mistakes.
        UsageError: the file belongs to neither system, or an override fits no or several keys.
    """
    merged = merge_layers([read_layer(path), *override_layers([*_expanded(overrides)])])
    found = dict(_flat(merged.data))
    given = {key: value for key, value in found.items() if value is not None and value != "None"}
    spelt = {_plain(key): key for key in given if _plain(key) != key and _plain(key) not in given}
    known = {key: given[spelt.get(key, key)] for key in KEYS if spelt.get(key, key) in given}
    unknown = {
        key: value
        for key, value in found.items()
        if key not in KEYS and key not in spelt.values() and f"{key}." not in _GROUPS
    }
    if not _belongs(known, unknown):
        raise _foreign(path, merged, known, unknown)
    origins = {key: _origin(merged, spelt.get(key, key)) for key in (*known, *unknown)}
    problems: list[Problem] = []
    values = {}
    for key, value in known.items():
        try:
            values[key] = _typed(KEYS[key], value)
        except (ValueError, OverflowError):
            written = spelt.get(key, key)
            message = f"expected {_EXPECTED[KEYS[key].kind]}, got {value!r:.60}"
            problems.append(Problem(origins[key], written, message))
    if problems:
        raise RecipeError(merged.ordered(problems))
    return Configuration(path, system or _system(known), values, unknown, origins, spelt)


def _expanded(overrides: Sequence[str]) -> Iterator[str]:
    """Overrides with the wildcard `...` replaced by the key that ends so."""
    for text in overrides:
        name, equals, value = text.partition("=")
        if not name.startswith("..."):
            yield text
            continue
        end = name.removeprefix("...")
        fitting = [key for key in KEYS if key == end or key.endswith(f".{end}")]
        if len(fitting) != 1:
            hint = (
                f"it may be {' or '.join(fitting)}"
                if fitting
                else suggestion(end, {key.rpartition(".")[2] for key in KEYS})
            )
            raise UsageError(f"{name!r} is not the end of one key; {hint}", fix="write the whole key", see="recipe")
        yield f"{fitting[0]}{equals}{value}"


def _flat(data: Mapping[Any, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Dotted keys with their values. Both systems accept dotted keys in YAML, too."""
    levels: dict[Any, Any] = {}
    for name, value in data.items():
        key = f"{prefix}{name}"
        if isinstance(value, Mapping) and value and key != _HOLDOUT:
            yield from _flat(value, f"{key}.")
        elif key.rpartition(".")[0] == _HOLDOUT:
            levels[name] = value
        else:
            yield key, value
    if levels:
        yield _HOLDOUT, levels


def _origin(merged: Merged, key: str) -> Origin:
    return merged.origins.get((key,)) or merged.origin(tuple(key.split(".")))


def _plain(key: str) -> str:
    """The key without the prefix of the multi-turn mode."""
    plain = f"{DATASET}{key.removeprefix(MULTI_TURN_DATASET)}"
    return plain if key.startswith(MULTI_TURN_DATASET) and plain in KEYS else key


def _belongs(known: Mapping[str, Any], unknown: Mapping[str, Any]) -> bool:
    """Names such as `seed` and `learning_rate` are common, and `dataset_builder` is not."""
    return bool(known) and (any(key.startswith(DATASET) for key in known) or len(known) > len(unknown))


def _foreign(path: Path, merged: Merged, known: Mapping[str, Any], unknown: Mapping[str, Any]) -> UsageError:
    name = shown_path(path)
    if any(key in merged.data for key in _OWN_KEYS):
        return UsageError(f"{name} is a recipe of kernelrl", fix=f"kernelrl validate {name}", see="recipe")
    close = {key: nearest(key, KEYS) or nearest(key.rpartition(".")[2], KEYS) for key in unknown}
    typo, meant = next(((key, meant) for key, meant in close.items() if meant), ("", ""))
    system = KEYS[meant].only if meant else ""
    hint = f"; nearest: {typo!r} is like {meant!r} of {system or ' and '.join(SYSTEMS)}" if meant else ""
    total = len(known) + len(unknown)
    why = f"{len(known)} of its {total} keys are theirs{hint}" if total else "it is empty"
    return UsageError(
        f"{name} belongs to neither {' nor '.join(SYSTEMS)}: {why}",
        fix="name a YAML file of one of them; both have the key dataset_builder",
        see="recipe",
    )


def _system(known: Mapping[str, Any]) -> str:
    """The system that alone has one of the keys; kernel-rl for the keys that only older versions of the other have."""
    only = {KEYS[key].only for key in known}
    if KERNEL_RL in only or known.get(f"{DATASET}prompt_option") == "raicl":
        return KERNEL_RL
    return KERNEL_RL if KERNELBENCH_TINKER not in only and "mode" in known else KERNELBENCH_TINKER


def _typed(key: Key, value: Any) -> Any:
    """The value of a key.

    Raises:
        ValueError, OverflowError: it has another type.
    """
    number = isinstance(value, int | float) and not isinstance(value, bool)
    match key.kind:
        case "text" if isinstance(value, str):
            return value
        case "bool" if isinstance(value, bool):
            return value
        case "bool" if isinstance(value, str) and value.lower() in _WORDS:
            return _WORDS[value.lower()]
        case "int" if number and value == int(value):
            return int(value)
        case "number" if number:
            return value
        case "texts" if isinstance(value, str):
            return [value]
        case "texts" if isinstance(value, list) and all(isinstance(item, str) for item in value):
            return value
        case "ints" if isinstance(value, list):
            return [_typed(Key("int"), item) for item in value]
        case "levels" if isinstance(value, Mapping):
            return {int(level): _typed(Key("ints"), numbers) for level, numbers in value.items()}
    raise ValueError(value)
