"""Lays recipes over each other: what a recipe extends, the recipe itself, then the command line's overrides.

Maps are merged key by key and lists replaced. The origin of every path is kept, so that a message can name the file
and line that a value really comes from.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs

from kernelrl_core.recipe.blocks import block_at, core_keys
from kernelrl_core.recipe.problems import COMMAND_LINE, Origin, Problem, RecipeError
from kernelrl_core.sources import yaml

__all__ = ["Merged", "merge_files", "merge_layers", "override_layer"]

_MAX_BYTES = 1 << 20

Keys = tuple[str, ...]


@attrs.frozen
class Merged:
    """A recipe after all layers, before it is understood."""

    data: dict[Any, Any] = attrs.field(factory=dict)
    origins: dict[Keys, Origin] = attrs.field(factory=dict)
    """Path -> where it was written last."""
    sources: tuple[Path, ...] = ()
    """Files it was read from, bases first."""

    def origin(self, path: Keys) -> Origin:
        """Where `path` was written, or the nearest thing around it."""
        for end in range(len(path), -1, -1):
            if path[:end] in self.origins:
                return self.origins[path[:end]]
        return Origin(COMMAND_LINE)


def merge_files(
    path: Path,
    find: Callable[[str, Path], Path | None],
    hint: Callable[[str, Path], str] = lambda name, directory: "see 'kernelrl recipes list'",
) -> Merged:
    """Read a recipe and everything it extends.

    Args:
        find: finds what `extends` names, given the name and the including file's directory; None when there is none.
        hint: what to write in place of a name that is not found, given the same.

    Raises:
        RecipeError: a file cannot be read, is not YAML, extends what is not there, or a cycle.
    """
    return _read(path.resolve(), find, hint, ())


def override_layer(text: str) -> Merged:
    """The layer of one `a.b=VALUE` of the command line.

    Raises:
        RecipeError: no `=`, an empty key, no value, or a value that is not YAML.
    """
    origin = Origin(COMMAND_LINE)
    dotted, equals, value_text = text.partition("=")
    keys = tuple(dotted.strip().split("."))
    if not equals or not all(keys):
        raise RecipeError([Problem(origin, "", f"{text!r} is not an override", "write key=value, such as seed=1")])
    if not value_text.strip():
        # Else an unset variable of a shell would quietly undo what the recipe says.
        hint = f"write a value, or {dotted.strip()}=null for none, or the default where there is always one"
        raise RecipeError([Problem(origin, dotted.strip(), "nothing stands after the equals sign", hint)])
    if keys[0] == "extends":
        raise RecipeError([Problem(origin, "extends", "cannot be changed here", "write it in a recipe")])
    try:
        document = yaml.parse(value_text)
    except yaml.YamlProblem as error:
        raise RecipeError([Problem(origin, dotted, f"{value_text!r}: {error.message}")]) from None
    data = document.data
    for key in reversed(keys):
        data = {int(key) if key.isdecimal() else key: data}
    origins = {keys[:end]: origin for end in range(1, len(keys) + 1)}
    origins |= {(*keys, *below): origin for below in document.lines}
    return Merged(data, origins)


def merge_layers(layers: Sequence[Merged]) -> Merged:
    """Lay each layer over those before it."""
    result = Merged()
    for layer in layers:
        origins = dict(result.origins)
        data = _merge_maps(result.data, layer.data, (), origins, layer.origins)
        if () in layer.origins:
            origins[()] = layer.origins[()]
        result = Merged(data, origins, tuple(dict.fromkeys((*result.sources, *layer.sources))))
    return result


def _read(
    path: Path,
    find: Callable[[str, Path], Path | None],
    hint: Callable[[str, Path], str],
    including: tuple[Path, ...],
) -> Merged:
    origin = Origin(_shown(path))
    try:
        content = path.read_bytes()
    except OSError as error:
        raise RecipeError([Problem(origin, "", f"cannot be read: {error.strerror}")]) from None
    if len(content) > _MAX_BYTES:
        raise RecipeError([Problem(origin, "", f"{len(content):,} bytes are too many for a recipe")])
    try:
        document = yaml.parse(content.decode("utf-8"))
    except UnicodeDecodeError:
        raise RecipeError([Problem(origin, "", "is not UTF-8 text")]) from None
    except yaml.YamlProblem as error:
        raise RecipeError([Problem(Origin(origin.source, error.line), "", error.message)]) from None
    data = document.data
    if data is None:
        fix = "write 'extends: quickstart' for a start, or see 'kernelrl recipes copy --help'"
        raise RecipeError([Problem(Origin(origin.source, 1), "", "is empty", fix)])
    if not isinstance(data, dict):
        raise RecipeError([Problem(Origin(origin.source, 1), "", f"is {_sort(data)}, not a mapping of keys to values")])
    origins = {keys: Origin(origin.source, line) for keys, line in document.lines.items()}
    origins.setdefault((), origin)
    own = Merged({key: value for key, value in data.items() if key != "extends"}, origins, (path,))
    bases = _bases(data.get("extends"), path, find, hint, own, (*including, path))
    return merge_layers([*bases, own])


def _bases(
    extends: Any,
    path: Path,
    find: Callable[[str, Path], Path | None],
    hint: Callable[[str, Path], str],
    own: Merged,
    chain: tuple[Path, ...],
) -> list[Merged]:
    names = [extends] if isinstance(extends, str) else extends if extends is not None else []
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        message = f"expected the name or path of a recipe, or a list of them, got {_sort(extends)}"
        raise RecipeError([Problem(own.origin(("extends",)), "extends", message)])
    layers: list[Merged] = []
    problems: list[Problem] = []
    for name in names:
        base = find(name, path.parent)
        if base is None:
            message = f"there is no recipe {name!r} beside this file, and none is bundled under that name"
            problems.append(Problem(own.origin(("extends",)), "extends", message, hint(name, path.parent)))
        elif base in chain:
            round_trip = " -> ".join(step.name for step in (*chain[chain.index(base) :], base))
            problems.append(Problem(own.origin(("extends",)), "extends", f"goes round in a circle: {round_trip}"))
        else:
            try:
                layers.append(_read(base, find, hint, chain))
            except RecipeError as error:
                problems.extend(error.problems)
    if problems:
        raise RecipeError(problems)
    return layers


def _merge_maps(
    below: Mapping[Any, Any],
    above: Mapping[Any, Any],
    path: Keys,
    origins: dict[Keys, Origin],
    new_origins: Mapping[Keys, Origin],
) -> dict[Any, Any]:
    result = dict(below)
    spelt = {str(key): key for key in result}
    for key, value in above.items():
        here = (*path, str(key))
        key = spelt.get(str(key), key)
        old = result.get(key)
        if isinstance(old, Mapping) and isinstance(value, Mapping):
            old = _without_old_options(old, value, here, origins)
            if here in new_origins:
                origins[here] = new_origins[here]
            result[key] = _merge_maps(old, value, here, origins, new_origins)
        else:
            _forget(origins, here)
            origins.update({keys: origin for keys, origin in new_origins.items() if keys[: len(here)] == here})
            result[key] = value
    return result


def _without_old_options(
    old: Mapping[Any, Any], new: Mapping[Any, Any], path: Keys, origins: dict[Keys, Origin]
) -> Mapping[Any, Any]:
    block = block_at(path)
    if block is None or "use" not in new or new["use"] == old.get("use", block.default):
        return old
    kept = {key: value for key, value in old.items() if key in core_keys(block.cls)}
    for key in old.keys() - kept.keys():
        _forget(origins, (*path, str(key)))
    return kept


def _forget(origins: dict[Keys, Origin], path: Keys) -> None:
    for keys in [keys for keys in origins if keys[: len(path)] == path]:
        del origins[keys]


def _sort(value: Any) -> str:
    return {dict: "a mapping", list: "a list", str: "text", type(None): "nothing"}.get(type(value), "a single value")


def _shown(path: Path) -> str:
    try:
        return str(path.relative_to(Path.cwd()))
    except ValueError:
        return str(path)
