"""Turns the plain data of a merged recipe into `schema.Recipe`, strictly, and reports every mistake in one pass.

Nothing is coerced: `"3"` is no number, 3 no text, `true` no integer; only an integer may stand where a number is
asked. A path is made absolute against the working directory, so that the saved recipe means the same elsewhere.
"""

from __future__ import annotations

import math
import types
import typing
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Literal

import attrs

from kernelrl_core.errors import KernelRLError, MissingPrerequisite
from kernelrl_core.naming import suggestion
from kernelrl_core.recipe import schema
from kernelrl_core.recipe.blocks import Block, blocks, core_keys
from kernelrl_core.recipe.merge import Keys, Merged
from kernelrl_core.recipe.problems import Problem, RecipeError
from kernelrl_core.recipe.schema import Recipe, Use
from kernelrl_core.registry import Registry

__all__ = ["Structured", "structure", "structure_block"]

_BAD: Any = object()
"""Stands for a value that could not be understood; its problem is recorded."""

_RANGES: dict[Any, tuple[type, str, Callable[[Any], bool]]] = {
    schema.PositiveInt: (int, "an integer of at least 1", lambda v: v >= 1),
    schema.NonNegativeInt: (int, "an integer of at least 0", lambda v: v >= 0),
    schema.PositiveFloat: (float, "a number above 0", lambda v: v > 0),
    schema.NonNegativeFloat: (float, "a number of at least 0", lambda v: v >= 0),
    schema.Fraction: (float, "a number from 0 to 1", lambda v: 0 <= v <= 1),
}


@attrs.frozen
class Structured:
    """What became of a merged recipe."""

    recipe: Recipe | None
    """None when there are problems."""
    resolved: dict[str, Any]
    """Every key with its value, defaults included, as plain data; complete when there are no problems."""
    problems: tuple[Problem, ...]


def structure(merged: Merged, registry: Registry) -> Structured:
    """Understand a recipe.

    Raises:
        nothing: mistakes are in the answer.
    """
    reader = _Reader(merged, registry)
    recipe, resolved = reader.recipe()
    return Structured(recipe, resolved, tuple(reader.problems))


def structure_block(key: str, merged: Merged, registry: Registry) -> Use:
    """The component that one block of a recipe, such as `tasks`, chooses; the rest of the recipe may be missing.

    Raises:
        RecipeError: with every mistake in the block.
    """
    reader = _Reader(merged, registry)
    use, _ = reader.use(merged.data.get(key), blocks()[key], (key,))
    if reader.problems:
        raise RecipeError(reader.problems)
    found: Use = use
    return found


class _Reader:
    def __init__(self, merged: Merged, registry: Registry) -> None:
        self._merged = merged
        self._registry = registry
        self.problems: list[Problem] = []

    def recipe(self) -> tuple[Recipe | None, dict[str, Any]]:
        hints = typing.get_type_hints(Recipe)
        data = self._merged.data
        values: dict[str, Any] = {}
        resolved: dict[str, Any] = {}
        self._unknown_keys(data, Recipe, (), {})
        for field in attrs.fields(Recipe):
            key = field.name
            block = blocks().get(key)
            if key not in data or (data[key] is None and field.default is not attrs.NOTHING):
                if field.default is attrs.NOTHING:
                    self._problem((), f"required key {key!r} is missing")
                    continue
                if key in data and field.default is not None and block is not None and not block.named:
                    self._problem((key,), "cannot be removed; choose another component instead")
                    continue
                default = _default(field)
                if block is not None and not block.named and default is not None:
                    values[key], resolved[key] = self.use({"use": block.default}, block, (key,))
                else:
                    values[key], resolved[key] = default, plain(default)
            elif block is None:
                values[key] = self._value(data[key], hints[key], (key,))
                resolved[key] = plain(values[key])
            elif block.named:
                values[key], resolved[key] = self._named(data[key], block, (key,))
            else:
                values[key], resolved[key] = self.use(data[key], block, (key,))
        if self.problems or _BAD in values.values():
            return None, resolved
        return Recipe(**values), resolved

    # --- components --------------------------------------------------------------------------------------------------

    def _named(self, data: Any, block: Block, path: Keys) -> tuple[Any, dict[str, Any]]:
        if not isinstance(data, Mapping):
            self._problem(path, f"expected a mapping of names to components, got {_shown(data)}")
            return _BAD, {}
        uses: dict[str, Any] = {}
        resolved: dict[str, Any] = {}
        for name, value in data.items():
            if value is not None:
                uses[str(name)], resolved[str(name)] = self.use(value, block, (*path, str(name)))
        return (_BAD if _BAD in uses.values() else uses), resolved

    def use(self, data: Any, block: Block, path: Keys) -> tuple[Any, dict[str, Any]]:
        if not isinstance(data, Mapping):
            self._problem(path, f"expected a mapping with 'use: NAME', got {_shown(data)}")
            return _BAD, {}
        name = data.get("use", block.default) or None
        if not isinstance(name, str):
            known = sorted(component.name for component in self._registry.components(block.kind))
            hint = f"known: {', '.join(known)}" if known else ""
            what = "needs 'use: NAME'" if name is None else f"use: expected text, got {_shown(name)}"
            self._problem(path, what, hint)
            return _BAD, {}
        hints = typing.get_type_hints(block.cls)
        core: dict[str, Any] = {}
        for key, field in core_keys(block.cls).items():
            core[key] = self._value(data[key], hints[key], (*path, key)) if key in data else field.default
        try:
            config = self._registry.config_class(block.kind, name)
        except KernelRLError as error:
            self._problem(
                (*path, "use") if "use" in data else path,
                error.message,
                f"fix: {error.fix}" if error.fix else "",
                missing=isinstance(error, MissingPrerequisite),
            )
            return _BAD, {}
        written = {str(key): value for key, value in data.items() if key != "use" and key not in core}
        options: Any = None
        if config is None:
            for key in written:
                self._problem((*path, key), f"{name} has no options")
        else:
            options = self._object(written, config, path, extra=core)
        if options is _BAD or _BAD in core.values() or (config is None and written):
            return _BAD, {}
        for text in self._contradictions(options):
            self._problem(path, text)
        raw = plain(options) if options is not None else {}
        resolved = {"use": name, **{key: plain(value) for key, value in core.items()}, **raw}
        return block.cls(use=name, options=options, raw=raw, **core), resolved

    @staticmethod
    def _contradictions(options: Any) -> Iterable[str]:
        problems = getattr(options, "problems", None)
        return list(problems()) if callable(problems) else ()

    # --- values ------------------------------------------------------------------------------------------------------

    def _value(self, value: Any, hint: Any, path: Keys) -> Any:
        if hint in _RANGES:
            base, wanted, fits = _RANGES[hint]
            number = self._scalar(value, base)
            if number is _BAD or not fits(number):
                self._problem(path, f"expected {wanted}, got {_shown(value)}")
                return _BAD
            return number
        origin, arguments = typing.get_origin(hint), typing.get_args(hint)
        if hint is Any or hint is object:
            return value
        if hint is type(None):
            return None if value is None else self._refuse(path, "nothing (null)", value)
        if origin is Literal:
            matches = [choice for choice in arguments if choice == value and type(choice) is type(value)]
            return matches[0] if matches else self._refuse(path, _choices(arguments), value, known=arguments)
        if origin in (typing.Union, types.UnionType):
            return self._union(value, arguments, path)
        if origin in (tuple, list):
            return self._sequence(value, origin, arguments, path)
        if isinstance(origin, type) and issubclass(origin, Mapping):
            if not isinstance(value, Mapping):
                return self._refuse(path, "a mapping", value)
            found = {
                self._value(key, arguments[0], (*path, str(key))): self._value(item, arguments[1], (*path, str(key)))
                for key, item in value.items()
            }
            return _BAD if _BAD in found or _BAD in found.values() else found
        if attrs.has(hint):
            return self._object(value, hint, path)
        if hint is Path:
            return (
                Path(value).expanduser().absolute()
                if isinstance(value, str) and value
                else self._refuse(path, "a path", value)
            )
        scalar = self._scalar(value, hint)
        return self._refuse(path, _NAMES.get(hint, str(hint)), value) if scalar is _BAD else scalar

    @staticmethod
    def _scalar(value: Any, hint: Any) -> Any:
        if hint is float and type(value) in (int, float):
            return float(value) if math.isfinite(value) else _BAD
        return value if type(value) is hint else _BAD

    def _union(self, value: Any, arguments: tuple[Any, ...], path: Keys) -> Any:
        if value is None and type(None) in arguments:
            return None
        candidates = [hint for hint in arguments if hint is not type(None)]
        if isinstance(value, Mapping):
            objects = [hint for hint in candidates if attrs.has(hint)]
            fitting = [hint for hint in objects if set(value) & {field.name for field in attrs.fields(hint)}]
            if len(fitting or objects) == 1:
                return self._value(value, (fitting or objects)[0], path)
        before = len(self.problems)
        for hint in candidates:
            found = self._value(value, hint, path)
            if found is not _BAD:
                del self.problems[before:]
                return found
        if len(candidates) > 1:
            # One message for the whole choice, unless a mapping came close to one of its forms.
            del self.problems[before:]
            return self._refuse(path, " or ".join(_described(hint) for hint in candidates), value)
        return _BAD

    def _sequence(self, value: Any, origin: Any, arguments: tuple[Any, ...], path: Keys) -> Any:
        if not isinstance(value, list):
            return self._refuse(path, "a list", value)
        if (origin is tuple and len(arguments) == 2 and arguments[1] is not Ellipsis) or len(arguments) > 2:
            if len(value) != len(arguments):
                return self._refuse(path, f"a list of {len(arguments)}", value)
            pairs = enumerate(zip(value, arguments, strict=True))
            items = [self._value(item, hint, (*path, str(i))) for i, (item, hint) in pairs]
        else:
            items = [self._value(item, arguments[0], (*path, str(i))) for i, item in enumerate(value)]
        return _BAD if _BAD in items else origin(items)

    def _object(self, value: Any, cls: type[Any], path: Keys, extra: Mapping[str, Any] | None = None) -> Any:
        if not isinstance(value, Mapping):
            return self._refuse(path, "a mapping", value)
        hints = typing.get_type_hints(cls)
        bad = self._unknown_keys(value, cls, path, extra or {})
        values: dict[str, Any] = {}
        for field in attrs.fields(cls):
            if not field.init:
                continue
            if field.name in value:
                values[field.name] = self._value(value[field.name], hints[field.name], (*path, field.name))
            elif field.default is attrs.NOTHING:
                self._problem(path, f"required key {field.name!r} is missing")
                bad = True
        if bad or _BAD in values.values():
            return _BAD
        try:
            return cls(**values)
        except (ValueError, TypeError) as error:
            self._problem(path, str(error.args[0] if error.args else error))
            return _BAD

    def _unknown_keys(self, value: Mapping[Any, Any], cls: type[Any], path: Keys, extra: Mapping[str, Any]) -> bool:
        known = {field.name for field in attrs.fields(cls) if field.init}
        if issubclass(cls, Recipe):
            known.add("extends")
        unknown = [key for key in value if key not in known]
        for key in unknown:
            elsewhere = _places(str(key)) if not path or str(key) not in extra else []
            choices = known | set(extra) | ({"use"} if extra else set())
            hint = suggestion(str(key), choices)
            if elsewhere and not hint.startswith("did you mean"):
                hint = f"it belongs to {' or '.join(elsewhere)}"
            self._problem((*path, str(key)), "unknown key", hint)
        return bool(unknown)

    def _refuse(self, path: Keys, wanted: str, value: Any, known: tuple[Any, ...] = ()) -> Any:
        hint = ""
        if known and isinstance(value, str):
            hint = suggestion(value, [str(choice) for choice in known])
            hint = hint if hint.startswith("did you mean") else ""
        self._problem(path, f"expected {wanted}, got {_shown(value)}", hint)
        return _BAD

    def _problem(self, path: Keys, message: str, hint: str = "", *, missing: bool = False) -> None:
        self.problems.append(Problem(self._merged.origin(path), ".".join(path), message, hint, missing))


_NAMES: dict[Any, str] = {int: "an integer", float: "a number", bool: "true or false", str: "text"}


def plain(value: Any) -> Any:
    """A value of a recipe as the plain data that reads back as it."""
    if isinstance(value, Use):
        core = {key: plain(getattr(value, key)) for key in core_keys(type(value))}
        return {"use": value.use, **core, **{key: plain(item) for key, item in value.raw.items()}}
    if attrs.has(type(value)):
        return {field.name: plain(getattr(value, field.name)) for field in attrs.fields(type(value)) if field.init}
    if isinstance(value, Mapping):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return str(value) if isinstance(value, Path) else value


def _default(field: attrs.Attribute[Any]) -> Any:
    default: Any = field.default
    return default.factory() if hasattr(default, "factory") else default


def _places(key: str) -> list[str]:
    """Blocks of core in which `key` would be right."""
    hints = typing.get_type_hints(Recipe)
    return [
        name
        for name, hint in hints.items()
        if isinstance(hint, type)
        and attrs.has(hint)
        and not issubclass(hint, Use)
        and key in {field.name for field in attrs.fields(hint)}
    ]


def _choices(choices: Iterable[Any]) -> str:
    return " or ".join(repr(choice) if isinstance(choice, str) else str(choice) for choice in choices)


def _described(hint: Any) -> str:
    if hint in _RANGES:
        return _RANGES[hint][1]
    if typing.get_origin(hint) is Literal:
        return _choices(typing.get_args(hint))
    if isinstance(hint, type) and attrs.has(hint):
        required = [field.name for field in attrs.fields(hint) if field.default is attrs.NOTHING]
        return "{" + ", ".join(f"{name}: …" for name in required) + "}"
    if typing.get_origin(hint) in (tuple, list):
        return "a list"
    if isinstance(typing.get_origin(hint), type) and issubclass(typing.get_origin(hint), Mapping):
        return "a mapping"
    return "a path" if hint is Path else _NAMES.get(hint, str(hint))


def _shown(value: Any) -> str:
    if value is None:
        return "nothing (null)"
    if isinstance(value, Mapping | list):
        return "a mapping" if isinstance(value, Mapping) else "a list"
    sort = {bool: "true or false", int: "an integer", float: "a number", str: "text"}.get(type(value), "")
    text = repr(value) if len(repr(value)) <= 60 else repr(value)[:57] + "…"
    return f"{text} ({sort})" if sort else text
