"""Command lines of pages and help texts: found, split as a shell does, and checked without being executed.

A line is checked against the program itself: click parses options and arguments, recipes and components are those that
exist here, and `KEY=VALUE` are validated with the recipe that they override. A word in capitals is a placeholder.
"""

from __future__ import annotations

import re
import shlex
import tomllib
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import cache
from pathlib import Path

import attrs
import click
from page_blocks import ROOT, Block

from kernelrl_adapters.conversion.keys import KEYS as CONVERTED_KEYS
from kernelrl_core.cli.main import cli
from kernelrl_core.errors import KernelRLError, nearest
from kernelrl_core.planning.load import bundled_recipes, load_recipe, merge_recipe
from kernelrl_core.plugins.registry import registry
from kernelrl_core.recipe.explain import explain
from kernelrl_core.recipe.problems import RecipeError
from kernelrl_core.recipe.structure import structure_recipe

PLACEHOLDER = re.compile(r"[A-Z][A-Z_]*(@[A-Z]+)?(=[A-Z]+)?(\.\.\.)?")
_SEPARATORS = {"&&", "||", "|", ";", "&", "(", ")"}
_REDIRECTIONS = {">", ">>", "<", "2>"}
MISSING = re.compile(r"no such (file|directory)|No module named")
"""In an error about a file of the reader, or about an optional package; the message names it."""
_UNCHECKED_BASE = "quickstart"
"""Recipe that lends its other keys where a line names a recipe of the user."""


@attrs.frozen
class CommandLine:
    """One command, as a shell would call it."""

    place: str
    words: tuple[str, ...]
    output: str | None = None
    """The documented output. None: the page shows none."""


def command_lines(block: Block) -> Iterator[CommandLine]:
    """The commands of a block: of `sh` every line, of `console` those after `$`, of others the lines with `kernelrl`.

    Raises:
        ValueError: a line is no valid shell, for example because of an open quotation mark.
    """
    lines = block.text.replace("\\\n", " ").splitlines()
    if block.language == "console":
        for part in re.split(r"(?m)^\$ ", block.text.replace("\\\n", " "))[1:]:
            first, _, output = part.partition("\n")
            yield from _split(block.place, first, output)
    elif block.language == "sh":
        for line in lines:
            yield from _split(block.place, line, None)


def synopses(block: Block) -> Iterator[CommandLine]:
    """The lines of a block of text that state the form of a command: `kernelrl eval RUN [--output FILE] [--json]`."""
    if block.language == "text":
        for line in block.text.splitlines():
            if line.startswith("kernelrl ") and "[" in line:
                yield CommandLine(block.place, tuple(re.sub(r"[\[\]|]|\.\.\.", " ", line).split()))


def _split(place: str, line: str, output: str | None) -> Iterator[CommandLine]:
    lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    words: list[str] = []
    skip = False
    for word in [*lexer, ";"]:
        if word in _SEPARATORS:
            while words and re.match(r"[A-Z_]+=", words[0]):
                del words[0]
            if words:
                yield CommandLine(place, tuple(words), output)
            words = []
        elif skip or word in _REDIRECTIONS:
            skip = not skip
        else:
            words.append(word)


def leaf(words: Sequence[str]) -> tuple[click.Command, str, list[str]]:
    """The command that words call, its full name, and the rest of the words.

    Raises:
        click.UsageError: there is no such command.
    """
    found: click.Command = cli
    rest = list(words[1:])
    path = [words[0]]
    while isinstance(found, click.Group) and rest and not rest[0].startswith("-"):
        context = click.Context(found, info_name=path[-1])
        child = found.get_command(context, rest[0])
        if child is None:
            close = nearest(rest[0], found.list_commands(context))
            raise click.UsageError(f"no command {rest[0]!r}; did you mean {close!r}?")
        found = child
        path.append(rest.pop(0))
    return found, " ".join(path), rest


def unknown_option(words: Sequence[str]) -> str:
    """The fault of a mention or a synopsis of a command: an option that the command lacks. Empty: none."""
    try:
        command, path, rest = leaf(words)
    except click.UsageError as error:
        return error.message
    known = {option for parameter in command.params for option in parameter.opts} | {"--help", "-h", "--debug"}
    wrong = [word for word in rest if re.match(r"--?[a-z]", word) and word.partition("=")[0] not in known]
    return f"{path}: no option {wrong[0]}; it has {' '.join(sorted(known))}" if wrong else ""


def fault(words: Sequence[str]) -> str:
    """The first fault of a `kernelrl` command line; it is not executed. Empty: none."""
    try:
        command, path, rest = leaf(words)
        if isinstance(command, click.Group) or {"--help", "-h"} & set(rest):
            return unknown_option(words)
        context = command.make_context(path, [word for word in rest if word != "--debug"])
    except click.UsageError as error:
        return error.format_message()
    except KernelRLError as error:
        return str(error)
    for parameter in command.params:
        check = _CHECKS.get(f"{path.removeprefix('kernelrl ')}: {parameter.name}") or _CHECKS.get(str(parameter.name))
        value = context.params.get(str(parameter.name))
        if check is not None and value:
            for one in value if isinstance(value, tuple) and check not in _WHOLE else [value]:
                if not isinstance(one, str) or not PLACEHOLDER.fullmatch(one):
                    wrong = check(one, context)
                    if wrong:
                        return f"{path}: {wrong}"
    return ""


@cache
def _components(kind: str) -> frozenset[str]:
    return frozenset(component.name for component in registry().components(kind))


def _unless_known(name: str, what: str, known: Collection[str]) -> str:
    return "" if name in known else f"no {what} {name!r}; did you mean {nearest(name, known)!r}?"


def _one_of(kind: str) -> Callable[[str, click.Context], str]:
    def check(value: str, context: click.Context) -> str:
        known = _components(kind)
        return (
            "" if value in known else f"no component {value!r} of kind {kind}; did you mean {nearest(value, known)!r}?"
        )

    return check


def _is_own(name: str) -> bool:
    """Whether a recipe is a file of the user."""
    return name.endswith(".yaml") or name.startswith("runs/")


def _recipe(name: str, context: click.Context) -> str:
    return "" if _is_own(name) else _unless_known(name, "recipe", bundled_recipes())


def _base(context: click.Context) -> str:
    """The recipe that a line overrides, or empty for one of the user that the page does not show."""
    given = context.params.get("recipe") or context.params.get("recipe_or_run") or ""
    if Path(given).is_file() or given in bundled_recipes():
        return str(given)
    run = given.removeprefix("runs/")
    return run if run in bundled_recipes() else ""


def _overrides(words: tuple[str, ...], context: click.Context) -> str:
    """Key and value of each override, and with a known recipe also contradictions between them."""
    base, words = _base(context), tuple(word for word in words if not PLACEHOLDER.fullmatch(word))
    chosen = {key: context.params.get(key) for key in ("backend", "evaluator")}
    if context.info_name == "kernelrl bench evaluator":
        chosen["evaluator"] = context.params["name"]
    words = (*(f"{key}.use={use}" for key, use in chosen.items() if use), *words)
    try:
        if base:
            load_recipe(base, words, registry=registry())
            return ""
        problems = structure_recipe(merge_recipe(_UNCHECKED_BASE, words), registry()).problems
    except RecipeError as error:
        problems = list(error.problems)
    return "; ".join(str(problem) for problem in problems if not MISSING.search(problem.message))


def _changes(words: tuple[str, ...], context: click.Context) -> str:
    """As `_overrides`; a key with several values makes several recipes."""
    return "; ".join(filter(None, (_overrides((word,), context) for word in words)))


def _options(key: str) -> Callable[[tuple[str, ...], click.Context], str]:
    """The check of overrides of a recipe, where --recipe names one, and else of options of the component at `key`."""

    def check(words: tuple[str, ...], context: click.Context) -> str:
        if context.params.get("recipe"):
            return _overrides(words, context)
        use = context.params.get("use") or {"tasks": "starter", "evaluator": "modal"}[key]
        wrong = _one_of({"tasks": "tasks", "evaluator": "evaluators"}[key])(use, context)
        return wrong or _overrides((f"{key}.use={use}", *(f"{key}.{word}" for word in words)), context)

    return check


def _task(name: str, context: click.Context) -> str:
    source = name.partition("/")[0]
    if name.endswith(".py") or "/" not in name:
        return ""
    if source == "starter":
        return (
            "" if name in _starter_tasks() else f"no task {name!r}; did you mean {nearest(name, _starter_tasks())!r}?"
        )
    return "" if source in _components("tasks") else f"no task source {source!r}"


@cache
def _starter_tasks() -> frozenset[str]:
    from kernelrl_core.cli.task_source import source_of

    source = source_of(None, "starter", ())
    return frozenset(task.id for split in source.splits() for task in source.tasks(split))


def _tasks_and_overrides(words: tuple[str, ...], context: click.Context) -> str:
    keys = tuple(word for word in words if re.match(r"[a-z_.]+=", word))
    names = [word for word in words if word not in keys][:1]
    key = "tasks" if context.info_name == "kernelrl tasks audit" else ""
    return "".join(_task(name, context) for name in names) or (_options(key) if key else _overrides)(keys, context)


def _checkpoint(value: str, context: click.Context) -> str:
    return "" if re.fullmatch(r"\d+|last|best|base", value) else f"no checkpoint {value!r}"


def _explained(words: tuple[str, ...], context: click.Context) -> str:
    try:
        if not any(PLACEHOLDER.fullmatch(word) for word in words):
            explain(" ".join(words), registry())
    except KernelRLError as error:
        return str(error)
    return ""


def _other_keys(words: tuple[str, ...], context: click.Context) -> str:
    """Keys of the systems whose configurations are converted."""
    return "".join(_unless_known(word.partition("=")[0], "key", CONVERTED_KEYS) for word in words)


def _hack(value: str, context: click.Context) -> str:
    folder = ROOT / "plugins/kernelrl-lab/src/kernelrl_lab"
    known = {path.name for path in [*folder.glob("hacks/*/"), *folder.glob("honest/*/")]}
    known |= {tomllib.loads(path.read_text(encoding="utf-8"))["class"] for path in folder.glob("hacks/*/hack.toml")}
    return _unless_known(value, "hack", known)


_CHECKS: dict[str, Callable[..., str]] = {
    "recipe": _recipe,
    "backend": _one_of("backends"),
    "evaluator": _one_of("evaluators"),
    "against": _one_of("evaluators"),
    "bench evaluator: name": _one_of("evaluators"),
    "use": _one_of("tasks"),
    "checkpoint": _checkpoint,
    "checkpoints": _checkpoint,
    "task": _task,
    "only": _hack,
    "overrides": _overrides,
    "recipes convert: overrides": _other_keys,
    "changes": _changes,
    "settings": _options("tasks"),
    "options": _options("evaluator"),
    "task_and_kernels": _tasks_and_overrides,
    "tasks audit: tasks": _tasks_and_overrides,
    "explain: name": _explained,
}
"""Name of a parameter, if necessary with its command -> the check of its value."""
_WHOLE = (_overrides, _changes, _other_keys, _tasks_and_overrides, _explained, _CHECKS["settings"], _CHECKS["options"])
"""Checks of all values of a parameter together."""
