"""Merging of recipe layers: base recipes (`extends`), the recipe, then the overrides of the command line.

Mappings are merged key by key; lists are replaced. A mapping that names another alternative of its key replaces the
inherited one: `history.keep: {best: 2}` replaces `{last: 3}`. The origin of every path is recorded, so that a message
can name the file and line of a value.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs

from kernelrl_core.plugins.registry import registry
from kernelrl_core.recipe.alternatives import names_another_alternative
from kernelrl_core.recipe.blocks import block_at, component_name, core_keys
from kernelrl_core.recipe.problems import COMMAND_LINE, Origin, Problem, RecipeError
from kernelrl_core.sources import yaml

__all__ = ["Merged", "merge_files", "merge_layers", "override_layer", "override_layers", "read_layer", "shown_path"]

_MAX_BYTES = 1 << 20

Keys = tuple[str, ...]


@attrs.frozen
class Merged:
    """Plain data of merged recipe layers, before conversion to typed values."""

    data: dict[Any, Any] = attrs.field(factory=dict)
    """Keys and values as YAML has them."""
    origins: dict[Keys, Origin] = attrs.field(factory=dict)
    """Path -> origin of its last assignment."""
    sources: tuple[Path, ...] = ()
    """Files read, base recipes first."""

    def origin(self, path: Keys) -> Origin:
        """The origin of `path`, or of the nearest enclosing key that has one."""
        for end in range(len(path), -1, -1):
            if path[:end] in self.origins:
                return self.origins[path[:end]]
        return Origin(COMMAND_LINE)

    def ordered(self, problems: Iterable[Problem]) -> list[Problem]:
        """Mistakes in the order of the files read, then of their lines; those of the command line last."""
        files = [shown_path(path) for path in self.sources]

        def place(problem: Problem) -> tuple[int, int]:
            source = problem.origin.source
            return files.index(source) if source in files else len(files), problem.origin.line or 0

        return sorted(problems, key=place)


def merge_files(
    path: Path,
    find: Callable[[str, Path], Path | None],
    hint: Callable[[str, Path], str] = lambda name, including: "see 'kernelrl recipes list'",
) -> Merged:
    """Read a recipe and its base recipes.

    Args:
        find: returns the file of a base recipe, given its name and the including file; None if there is none.
        hint: returns a suggestion for a name that is not found, given the same arguments.

    Raises:
        RecipeError: a file cannot be read or is not YAML, a base recipe does not exist, or `extends` forms a cycle.
    """
    return _read(path.resolve(), find, hint, ())


def override_layer(text: str) -> Merged:
    """The layer of one override `a.b=VALUE`.

    Raises:
        RecipeError: no `=`, an empty key, no value, a value that is not YAML, or the key `extends`.
    """
    origin = Origin(COMMAND_LINE)
    dotted, equals, value_text = text.partition("=")
    keys = tuple(dotted.strip().split("."))
    if not equals or not all(keys):
        raise RecipeError([Problem(origin, "", f"{text!r} is not an override", "write KEY=VALUE, such as seed=1")])
    if not value_text.strip():
        # Otherwise an unset shell variable would silently remove a value of the recipe.
        hint = f"write {dotted.strip()}=null for no value or the default"
        raise RecipeError([Problem(origin, dotted.strip(), "no value after the equals sign", hint)])
    if keys[0] == "extends":
        hint = "write it in a recipe file"
        raise RecipeError([Problem(origin, "extends", "cannot be set on the command line", hint)])
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


def override_layers(texts: Sequence[str]) -> list[Merged]:
    """The layers of all overrides of a command.

    Raises:
        RecipeError: lists all mistakes, also keys that are given twice.
    """
    layers: list[Merged] = []
    problems: list[Problem] = []
    seen: dict[str, str] = {}
    for text in texts:
        key = text.partition("=")[0].strip()
        if key in seen and seen[key] != text:
            hint = f"remove {seen[key]!r} or {text!r}"
            problems.append(Problem(Origin(COMMAND_LINE), key, "is given twice", hint))
        seen[key] = text
        try:
            layers.append(override_layer(text))
        except RecipeError as error:
            problems.extend(error.problems)
    if problems:
        raise RecipeError(problems)
    return layers


def merge_layers(layers: Sequence[Merged]) -> Merged:
    """Merge layers in order; later layers override earlier ones."""
    result = Merged()
    for layer in layers:
        origins = dict(result.origins)
        data = _merge_maps(result.data, layer.data, (), origins, layer.origins)
        if () in layer.origins:
            origins[()] = layer.origins[()]
        result = Merged(data, origins, tuple(dict.fromkeys((*result.sources, *layer.sources))))
    return result


def read_layer(path: Path) -> Merged:
    """The keys of one file, without those of its base recipes. Those of an empty file are none.

    Raises:
        RecipeError: the file cannot be read, or is no YAML mapping.
    """
    origin = Origin(shown_path(path))
    try:
        content = path.read_bytes()
    except OSError as error:
        raise RecipeError([Problem(origin, "", f"cannot be read: {error.strerror}")]) from None
    if len(content) > _MAX_BYTES:
        message = f"is too large for a recipe: {len(content):,} bytes, limit {_MAX_BYTES:,}"
        raise RecipeError([Problem(origin, "", message)])
    try:
        document = yaml.parse(content.decode("utf-8"))
    except UnicodeDecodeError:
        raise RecipeError([Problem(origin, "", "is not UTF-8 text")]) from None
    except yaml.YamlProblem as error:
        raise RecipeError([Problem(Origin(origin.source, error.line), "", error.message)]) from None
    data = {} if document.data is None else document.data
    if not isinstance(data, dict):
        raise RecipeError([Problem(Origin(origin.source, 1), "", f"is {_sort(data)}, not a mapping of keys to values")])
    origins = {keys: Origin(origin.source, line) for keys, line in document.lines.items()}
    origins.setdefault((), origin)
    return Merged(data, origins, (path,))


def _read(
    path: Path,
    find: Callable[[str, Path], Path | None],
    hint: Callable[[str, Path], str],
    including: tuple[Path, ...],
) -> Merged:
    layer = read_layer(path)
    if not layer.data:
        fix = "start with 'extends: quickstart', or see 'kernelrl recipes copy --help'"
        raise RecipeError([Problem(Origin(shown_path(path), 1), "", "is empty", fix)])
    own = attrs.evolve(layer, data={key: value for key, value in layer.data.items() if key != "extends"})
    bases = _bases(layer.data.get("extends"), path, find, hint, own, (*including, path))
    return merge_layers([*bases, own])


def _bases(
    extends: Any,
    path: Path,
    find: Callable[[str, Path], Path | None],
    hint: Callable[[str, Path], str],
    own: Merged,
    chain: tuple[Path, ...],
) -> list[Merged]:
    names = [] if extends is None else extends
    if isinstance(extends, str):
        names = [extends]
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        message = f"expected the name or path of a recipe, or a list of them, got {_sort(extends)}"
        raise RecipeError([Problem(own.origin(("extends",)), "extends", message)])
    layers: list[Merged] = []
    problems: list[Problem] = []
    for name in names:
        base = find(name, path)
        if base is None:
            message = f"no recipe {name!r} in the directory of this file or among the bundled recipes"
            problems.append(Problem(own.origin(("extends",)), "extends", message, hint(name, path)))
        elif base in chain:
            cycle = " -> ".join(step.name for step in (*chain[chain.index(base) :], base))
            fix = "remove 'extends' from one of these files"
            problems.append(Problem(own.origin(("extends",)), "extends", f"forms a cycle: {cycle}", fix))
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
    component: str = "",
) -> dict[Any, Any]:
    """
    Args:
        component: name of the component whose block contains `path`; empty outside of a block.
    """
    result = dict(below)
    spelt = {str(key): key for key in result}
    for key, value in above.items():
        here = (*path, str(key))
        key = spelt.get(str(key), key)
        old = result.get(key)
        if (
            isinstance(old, Mapping)
            and isinstance(value, Mapping)
            and not names_another_alternative(here, component, old, value)
        ):
            old = _without_old_options(old, value, here, origins)
            block = block_at(here)
            named = component if block is None else str(component_name(block, {**old, **value}, registry()))
            if here in new_origins:
                origins[here] = new_origins[here]
            result[key] = _merge_maps(old, value, here, origins, new_origins, named)
        else:
            _forget(origins, here)
            origins.update({keys: origin for keys, origin in new_origins.items() if keys[: len(here)] == here})
            result[key] = value
    return result


def _without_old_options(
    old: Mapping[Any, Any], new: Mapping[Any, Any], path: Keys, origins: dict[Keys, Origin]
) -> Mapping[Any, Any]:
    block = block_at(path)
    if block is None or "use" not in new:
        return old
    named, before = str(new["use"]), str(component_name(block, old, registry()))
    # `plugin:name` in place of `name` resolves a clash; the component stays the same.
    if named == before or named.endswith(f":{before}"):
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


def shown_path(path: Path) -> str:
    """A path for messages: relative if it is below the working directory."""
    try:
        return str(path.relative_to(Path.cwd()))
    except ValueError:
        return str(path)
