"""Strict conversion of the plain data of a recipe to typed values, with a list of all mistakes.

Values are not converted: `"3"` is not a number, 3 is not text, true is not an integer. The one exception is an integer
for a float. null for a key whose type does not allow it means: use the default. General converters either stop at the
first mistake in a class, check ranges only when all types are correct, or lose the path; hence this code.
"""

from __future__ import annotations

import difflib
import math
import types
import typing
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, TypeAlias, Union

import attrs

from kernelrl_core.errors import KernelRLError, MissingPrerequisite, nearest, suggestion
from kernelrl_core.interfaces.config import ComponentConfig
from kernelrl_core.plugins.registry import Registry
from kernelrl_core.recipe import schema
from kernelrl_core.recipe.blocks import Block, block_at, blocks, component_name, core_keys
from kernelrl_core.recipe.merge import Merged
from kernelrl_core.recipe.problems import Problem, RecipeError
from kernelrl_core.recipe.rules.components import own_problems
from kernelrl_core.recipe.rules.evaluation import stated_rules
from kernelrl_core.recipe.schema import Recipe, Use

__all__ = ["Structured", "allows_none", "component_block", "field_types", "plain", "structure_recipe", "type_words"]

Keys: TypeAlias = tuple[str, ...]

_RANGES: dict[Any, tuple[Any, str, Callable[[Any], bool]]] = {
    schema.PositiveInt: (int, "an integer of at least 1", lambda v: v >= 1),
    schema.NonNegativeInt: (int, "an integer of at least 0", lambda v: v >= 0),
    schema.PositiveFloat: (float, "a number above 0", lambda v: v > 0),
    schema.NonNegativeFloat: (float, "a number of at least 0", lambda v: v >= 0),
    schema.Fraction: (float, "a number from 0 to 1", lambda v: 0 <= v <= 1),
}
"""Ranges are types, so that they are checked in the same pass."""

_INVALID: Any = object()


@attrs.frozen
class Structured:
    """The recipe keys without mistakes, and the mistakes in the others."""

    parts: dict[str, Any]
    """Recipe key -> value, for every key without a mistake; defaults included."""
    problems: tuple[Problem, ...]


def structure_recipe(merged: Merged, registry: Registry) -> Structured:
    """Convert merged data to the values of a recipe. Imports config classes, and of implementations only checkers."""
    walk = _Walk(merged, registry)
    hints = typing.get_type_hints(Recipe)
    parts: dict[str, Any] = {}
    known = [field.name for field in attrs.fields(Recipe)]
    for key in merged.data:
        if key not in known:
            walk.unknown_key((), key, known)
    for field in attrs.fields(Recipe):
        before = len(walk.problems)
        value = merged.data.get(field.name)
        if value is None and not (field.name in merged.data and allows_none(hints[field.name])):
            block = blocks().get(field.name)
            if block is not None and block.optional:
                value = walk.block(block, {}, (field.name,))
            else:
                value = walk.default(field, ())
        else:
            value = walk.part(field.name, hints[field.name], value)
        if value is not _INVALID and len(walk.problems) == before:
            parts[field.name] = value
    if merged.data.get("forbid") is None and "checkers" in parts:
        parts["forbid"] = stated_rules(parts["checkers"], registry)
    return Structured(parts, tuple(walk.problems))


def component_block(key: str, block: Mapping[str, Any], registry: Registry) -> Use:
    """Read one component block, such as `{use: torch, lora_rank: 16}`, without the rest of a recipe.

    Args:
        key: recipe key whose blocks select components of the same kind, such as `policy`.

    Raises:
        RecipeError: lists all mistakes in the block; their paths begin with `key`.
    """
    walk = _Walk(Merged({key: dict(block)}), registry)
    use = walk.block(blocks()[key], dict(block), (key,))
    if not walk.problems:
        for found in own_problems((key,), use):
            walk.say(found.path, found.message, found.hint)
    if walk.problems:
        raise RecipeError(walk.problems)
    assert isinstance(use, Use)
    return use


def field_types(cls: type) -> dict[str, Any]:
    """Field -> type of an attrs class, for its `__init__` fields, with forward references resolved."""
    hints = typing.get_type_hints(cls)
    return {field.name: hints.get(field.name, Any) for field in attrs.fields(cls) if field.init}


def allows_none(wanted: Any) -> bool:
    """Whether the type `wanted` includes None."""
    return wanted is Any or wanted is type(None) or type(None) in _members(wanted)


def _members(wanted: Any) -> tuple[Any, ...]:
    if typing.get_origin(wanted) in (Union, types.UnionType):
        return typing.get_args(wanted)
    return (wanted,)


class _Walk:
    def __init__(self, merged: Merged, registry: Registry) -> None:
        self.merged = merged
        self.registry = registry
        self.problems: list[Problem] = []

    def say(self, path: Keys, message: str, hint: str = "", *, missing: bool = False) -> Any:
        self.problems.append(Problem(self.merged.origin(path), ".".join(path), message, hint, missing))
        return _INVALID

    # --- blocks with `use` ---

    def part(self, key: str, wanted: Any, value: Any) -> Any:
        block = blocks().get(key)
        if block is None or value is None:
            return self.value(wanted, value, (key,))
        if not block.named:
            return self.block(block, value, (key,))
        if not isinstance(value, Mapping):
            return self.expected("a mapping of names to components", value, (key,))
        result = {}
        for name, entry in value.items():
            if not isinstance(name, str):
                self.say((key, str(name)), f"the name must be text, got {_shown(name)}")
            elif entry is not None:
                result[name] = self.block(block, entry, (key, name))
        return result

    def block(self, block: Block, value: Any, path: Keys) -> Any:
        if not isinstance(value, Mapping):
            return self.expected("a mapping with 'use: NAME'", value, path)
        values = {key: self._core_value(block.cls, field, value, path) for key, field in core_keys(block.cls).items()}
        name = component_name(block, value, self.registry)
        if not name or not isinstance(name, str):
            kind_names = sorted(component.name for component in self.registry.components(block.kind))
            if "use" in value and value["use"] is not None:
                return self.expected("the name of a component", value["use"], (*path, "use"))
            return self.say(path, "required key 'use' is missing", f"known: {', '.join(kind_names) or 'none'}")
        use_path = (*path, "use") if "use" in value else path
        try:
            self.registry.find(block.kind, name)
            config = self.registry.config_class(block.kind, name)
            types_of_options = field_types(config)
        except MissingPrerequisite as error:
            return self.say(use_path, error.message, error.fix, missing=True)
        except KernelRLError as error:
            return self.say(use_path, error.message, error.fix)
        except Exception as error:  # plugin code, imported here
            plugin = self.registry.plugin_of(block.kind, name).name
            return self.say(use_path, f"plugin {plugin}: the options of {name!r} cannot be read: {error}")
        raw = {key: option for key, option in value.items() if key not in ("use", *core_keys(block.cls))}
        options = self.fields(config, raw, path, also=("use", *core_keys(block.cls)))
        if options is _INVALID or _INVALID in values.values():
            return _INVALID
        written = {key: plain(getattr(options, key)) for key in types_of_options}
        return block.cls(use=name, options=options, raw=written, **values)

    def _core_value(self, cls: type[Use], field: Any, value: Mapping[Any, Any], path: Keys) -> Any:
        if value.get(field.name) is None:
            return field.default
        return self.value(typing.get_type_hints(cls)[field.name], value[field.name], (*path, field.name))

    # --- values ---

    def value(self, wanted: Any, value: Any, path: Keys) -> Any:
        if wanted in (Any, object):
            return value
        if wanted in _RANGES:
            base, words, fits = _RANGES[wanted]
            if not _is(base, value) or not fits(value):
                return self.expected(words, value, path)
            return base(value)
        if hasattr(wanted, "__supertype__"):
            return self.value(wanted.__supertype__, value, path)
        origin = typing.get_origin(wanted)
        if origin in (Union, types.UnionType):
            return self.union(wanted, value, path)
        if origin is Literal:
            return self.choice(typing.get_args(wanted), value, path)
        if attrs.has(wanted):
            if not isinstance(value, Mapping):
                return self.expected(type_words(wanted), value, path)
            return self.fields(wanted, value, path)
        if origin in (tuple, list) or wanted in (tuple, list):
            return self.sequence(wanted, value, path)
        if wanted is dict or (isinstance(origin, type) and issubclass(origin, Mapping)):
            return self.mapping(typing.get_args(wanted) or (Any, Any), value, path)
        if wanted is Path:
            return (
                Path(value).expanduser().absolute()
                if _is(str, value) and value
                else self.expected("a path", value, path)
            )
        if not _is(wanted, value):
            return self.expected(type_words(wanted), value, path)
        return float(value) if wanted is float else value

    def union(self, wanted: Any, value: Any, path: Keys) -> Any:
        members = typing.get_args(wanted)
        if value is None and type(None) in members:
            return None
        members = tuple(member for member in members if member is not type(None))
        if len(members) == 1:
            return self.value(members[0], value, path)
        found = self.problems
        candidates = []
        # Each alternative is tried alone; the one with the fewest mistakes is reported.
        for member in members:
            self.problems = []
            result = self.value(member, value, path)
            if result is not _INVALID and not self.problems:
                self.problems = found
                return result
            if attrs.has(member) and isinstance(value, Mapping):
                candidates.append((len(self.problems), self.problems))
        self.problems = found
        if candidates:
            self.problems.extend(min(candidates, key=lambda c: c[0])[1])
            return _INVALID
        hint = ""
        choices = [c for member in members if typing.get_origin(member) is Literal for c in typing.get_args(member)]
        if isinstance(value, str) and (close := nearest(value, choices)):
            hint = f"did you mean {close!r}?"
        return self.expected(" or ".join(type_words(member) for member in members), value, path, hint)

    def choice(self, choices: tuple[Any, ...], value: Any, path: Keys) -> Any:
        if any(value == choice and type(value) is type(choice) for choice in choices):
            return value
        close = nearest(value, [c for c in choices if isinstance(c, str)]) if isinstance(value, str) else ""
        return self.expected(type_words(Literal[choices]), value, path, f"did you mean {close!r}?" if close else "")

    def sequence(self, wanted: Any, value: Any, path: Keys) -> Any:
        make = list if list in (wanted, typing.get_origin(wanted)) else tuple
        arguments = typing.get_args(wanted) or (Any, ...)
        if not isinstance(value, (list, tuple)):
            return self.expected(type_words(wanted), value, path)
        if make is tuple and Ellipsis not in arguments:
            if len(value) != len(arguments):
                return self.expected(type_words(wanted), value, path)
            inner: list[Any] = list(arguments)
        else:
            inner = [arguments[0]] * len(value)
        items = [
            self.value(each, item, (*path, str(index)))
            for index, (each, item) in enumerate(zip(inner, value, strict=True))
        ]
        return _INVALID if any(item is _INVALID for item in items) else make(items)

    def mapping(self, arguments: tuple[Any, ...], value: Any, path: Keys) -> Any:
        if not isinstance(value, Mapping):
            return self.expected("a mapping", value, path)
        result = {}
        for key, item in value.items():
            if item is None and not allows_none(arguments[1]):
                continue
            here = (*path, str(key))
            made_key = self.value(arguments[0], key, here)
            made = self.value(arguments[1], item, here)
            if made_key is _INVALID or made is _INVALID:
                return _INVALID
            result[made_key] = made
        return result

    def fields(self, cls: Any, value: Mapping[Any, Any], path: Keys, also: tuple[str, ...] = ()) -> Any:
        hints = field_types(cls)
        renamed = cls.renamed_options if issubclass(cls, ComponentConfig) else {}
        for key in value:
            if key not in hints and key not in renamed:
                self.unknown_key(path, key, [*hints, *also])
        before = len(self.problems)
        former = self._former_names(renamed, value, path)
        values = {}
        for field in attrs.fields(cls):
            if not field.init:
                continue
            key = former.get(field.name, field.name)
            given = value.get(key)
            if given is None and not (key in value and allows_none(hints[field.name])):
                if field.default is attrs.NOTHING:
                    self.default(field, path)
                continue
            made = self.value(hints[field.name], given, (*path, key))
            if made is not _INVALID:
                self._validate(field, made, (*path, key))
            values[field.alias] = made
        if len(self.problems) > before:
            return _INVALID
        try:
            return cls(**values)
        except Exception as error:  # validators of a plugin may raise anything
            return self.say(path, _error_text(error))

    def _former_names(self, renamed: Mapping[str, str], value: Mapping[Any, Any], path: Keys) -> dict[str, str]:
        """Field -> its former name, for every field that the recipe sets under the former name."""
        found = {}
        for former, name in renamed.items():
            if value.get(name) is None and former in value:
                found[name] = former
            elif value.get(former) is not None:
                hint = f"remove {former!r}, or write {'.'.join((*path, former))}=null"
                self.say((*path, former), f"{former!r} is the former name of {name!r}; both are given", hint)
        return found

    def _validate(self, field: Any, value: Any, path: Keys) -> None:
        # A class runs its validators only when every field is valid. Called here, they report in the same pass. A
        # validator that needs the whole object fails here, and runs in the class.
        if field.validator is None or field.converter is not None:
            return
        try:
            field.validator(None, field, value)
        except (ValueError, TypeError) as error:
            self.say(path, _error_text(error))
        except AttributeError:
            return

    def default(self, field: Any, path: Keys) -> Any:
        if field.default is attrs.NOTHING:
            return self.say(path, f"required key {field.name!r} is missing")
        return field.default.factory() if isinstance(field.default, attrs.Factory) else field.default  # type: ignore[arg-type]

    # --- messages ---

    def expected(self, words: str, value: Any, path: Keys, hint: str = "") -> Any:
        return self.say(path, f"expected {words}, got {_shown(value)}", hint)

    def unknown_key(self, path: Keys, key: Any, known: list[str]) -> None:
        here = (*path, str(key))
        if not isinstance(key, str):
            self.say(here, f"a key must be text, got {_shown(key)}")
            return
        if key == "<<":
            self.say(here, "merge keys are not supported", "use extends")
            return
        close, others = nearest(key, known), [other for other in self._known_paths() if other[:-1] != path]
        inside = [other for other in others if other[: len(path)] == path]
        found = [other for other in inside if other[-1] == key] or [other for other in others if other[-1] == key]
        if not found and not close:
            # A component may have several keys where another has a mapping, such as `clip_low` for `clip: {low: …}`.
            found = [other for other in inside if other[-1].startswith(f"{key}_")]
        inside_found = any(other in inside for other in found)
        elsewhere = [".".join(other) for other in found]
        if elsewhere and _similarity(key, close) < 0.85:
            hint = f"it belongs at {' or '.join(elsewhere[:3])!r}"
            if not inside_found:
                hint += self._options_hint(path)
        elif close:
            hint = f"did you mean {close!r}?"
        else:
            hint = suggestion(key, known)
        self.say(here, f"unknown key {key!r}", hint)

    def _options_hint(self, path: Keys) -> str:
        """The command that lists the options of the component whose block is at `path`; empty for another path."""
        block = block_at(path)
        if block is None:
            return ""
        value: Any = self.merged.data
        for key in path:
            value = value[key]
        name = str(component_name(block, value, self.registry))
        return f"; for the options of {name!r}: kernelrl plugins show {self.registry.plugin_of(block.kind, name).name}"

    def _known_paths(self) -> Iterator[Keys]:
        """Paths of the schema, and of the options of this recipe's components."""
        for name, wanted in field_types(Recipe).items():
            yield (name,)
            block = blocks().get(name)
            if block is None:
                for member in _members(wanted):
                    if attrs.has(member):
                        yield from ((name, inner) for inner in field_types(member))
                continue
            value = self.merged.data.get(name)
            if not isinstance(value, Mapping):
                continue
            for entry_name, entry in value.items() if block.named else [("", value)]:
                use = component_name(block, entry, self.registry) if isinstance(entry, Mapping) else None
                try:
                    options = field_types(self.registry.config_class(block.kind, use)) if isinstance(use, str) else {}
                except Exception:  # reported when the block itself is read
                    continue
                prefix = (name, str(entry_name)) if block.named else (name,)
                yield from ((*prefix, option) for option in [*core_keys(block.cls), *options])
                for option, wanted in options.items():
                    for member in filter(attrs.has, _members(wanted)):
                        yield from ((*prefix, option, inner) for inner in field_types(member))


def _similarity(one: str, other: str) -> float:
    return difflib.SequenceMatcher(None, one, other).ratio()


def _is(wanted: Any, value: Any) -> bool:
    if wanted is float:
        return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
    if wanted is int:
        return isinstance(value, int) and not isinstance(value, bool)
    return isinstance(wanted, type) and isinstance(value, wanted)


def type_words(wanted: Any) -> str:
    """The values that a type accepts, in the words of error messages, such as `an integer of at least 1`."""
    simple = {int: "an integer", float: "a finite number", bool: "true or false", str: "text", Path: "a path"}
    if wanted in simple:
        return simple[wanted]
    if wanted in _RANGES:
        return _RANGES[wanted][1]
    if hasattr(wanted, "__supertype__"):
        return type_words(wanted.__supertype__)
    if wanted is type(None):
        return "null"
    origin = typing.get_origin(wanted)
    if origin in (Union, types.UnionType):
        return " or ".join(map(type_words, typing.get_args(wanted)))
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return f"a mapping of names to {type_words(typing.get_args(wanted)[1])}"
    if wanted is Any:
        return "any value"
    if origin is Literal:
        return " or ".join(_shown(choice) for choice in typing.get_args(wanted))
    if origin in (tuple, list):
        arguments = [argument for argument in typing.get_args(wanted) if argument is not Ellipsis]
        if origin is tuple and Ellipsis not in typing.get_args(wanted):
            return f"a list of {len(arguments)} values ({', '.join(type_words(a) for a in arguments)})"
        return f"a list, each {type_words(arguments[0])}"
    if isinstance(wanted, type) and issubclass(wanted, Use):
        return "a mapping with 'use: NAME' and the options of the component"
    if attrs.has(wanted):
        return f"a mapping with {', '.join(repr(name) for name in field_types(wanted))}"
    return getattr(wanted, "__name__", str(wanted))


def _shown(value: Any) -> str:
    if isinstance(value, (Mapping, list)):
        return "a mapping" if isinstance(value, Mapping) else "a list"
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}…"


def _error_text(error: Exception) -> str:
    return " ".join(str(error.args[0] if error.args else error).split()) or type(error).__name__


def plain(value: Any) -> Any:
    """A typed value as plain data for YAML and JSON. `structure_recipe` converts it back to an equal value."""
    if isinstance(value, Use):
        core = {key: plain(getattr(value, key)) for key in core_keys(type(value))}
        return {"use": value.use, **core, **{key: plain(option) for key, option in value.raw.items()}}
    if attrs.has(type(value)):
        return {field.name: plain(getattr(value, field.name)) for field in attrs.fields(type(value)) if field.init}
    if isinstance(value, Mapping):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    return str(value) if isinstance(value, Path) else value
