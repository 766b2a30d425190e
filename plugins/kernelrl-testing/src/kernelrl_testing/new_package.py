"""A new plugin package: the sample plugin of a kind under another name.

`samples` has a folder per kind, whose files are Python that is linted and, as a new package, tested.
`package_templates` has the files that are the same for all kinds.
"""

from __future__ import annotations

import ast
import keyword
import re
from collections.abc import Callable, Collection, Mapping
from importlib import metadata
from pathlib import Path

import attrs

from kernelrl_core.errors import LookupFailed, UsageError, nearest
from kernelrl_core.plugins.kinds import KINDS_BY_NAME
from kernelrl_core.plugins.known_distributions import distribution_of, known_distributions
from kernelrl_core.plugins.registry import Registry
from kernelrl_core.version import __version__

__all__ = [
    "MAX_NAME",
    "Sample",
    "plugin_package",
    "read_sample",
    "require_free_name",
    "require_possible_name",
]

MAX_NAME = 24
"""Characters of a name: with more, lines of a package would be too long."""
_NAME = re.compile(r"[a-z][a-z0-9]*(_[a-z0-9]+)*")
_SAMPLES = Path(__file__).parent / "samples"
_TEMPLATES = Path(__file__).parent / "package_templates"


@attrs.frozen
class Sample:
    """The sample plugin of a kind."""

    name: str
    """Name of the plugin, with `_` between words."""
    files: Mapping[str, str]
    """Path in the package -> text."""
    recipe: str
    """Keys of a recipe, as YAML, that select the component; empty for a command."""


def read_sample(kind: str) -> Sample:
    """The sample plugin of a kind."""
    folder = _SAMPLES / kind
    paths = sorted(path for part in ("src", "tests") for path in (folder / part).rglob("*.py"))
    files = {path.relative_to(folder).as_posix(): path.read_text(encoding="utf-8") for path in paths}
    (package,) = {path.parent.name for path in paths if path.name == "__init__.py"}
    recipe = folder / "recipe.yaml"
    text = recipe.read_text(encoding="utf-8") if recipe.is_file() else ""
    return Sample(package.removeprefix("kernelrl_plugin_"), files, text)


def kind_named(word: str, name: str) -> str:
    """The kind that a user names: `rewards`, or `reward` for one component of it.

    Args:
        name: of the plugin, for the message.

    Raises:
        LookupFailed: there is none; the message suggests the nearest one.
    """
    words = {known.singular.partition(" ")[0]: kind for kind, known in KINDS_BY_NAME.items()}
    words |= {kind: kind for kind in KINDS_BY_NAME}
    if word in words:
        return words[word]
    close = words.get(nearest(word, words), "")
    hint = f"did you mean {close!r}?" if close else f"known: {', '.join(KINDS_BY_NAME)}"
    raise LookupFailed(f"no kind of plugin {word!r}; {hint}", fix=_command(close or "KIND", name))


def require_possible_name(kind: str, name: str) -> None:
    """Check that the package of a plugin would be valid Python.

    Args:
        name: with `_` between words.

    Raises:
        UsageError: it would not.
    """
    possible = _kebab(re.sub(r"[^a-z0-9]+", "_", name.lower()).strip("_").removeprefix("kernelrl_plugin_"))
    fix = _command(kind, possible if possible[:1].isalpha() else f"my-{possible}")
    if name.startswith("kernelrl_plugin_"):
        raise UsageError(f"name {_kebab(name)!r}: the package adds 'kernelrl-plugin-' to the name", fix=fix)
    if not _NAME.fullmatch(name) or len(name) > MAX_NAME:
        rule = "write lower-case letters and digits, with single - or _ between words, and a letter first"
        raise UsageError(f"name {name!r}: {rule}; at most {MAX_NAME} characters", fix=fix)
    sample = read_sample(kind)
    words = {word for text in sample.files.values() for word in re.findall(r"\w+", text)}
    own = {word for word in words if _camel(sample.name) in word}
    made = {word.replace(_camel(sample.name), _camel(name)) for word in own}
    if taken := made & {*(words - own), *keyword.kwlist}:
        raise UsageError(
            f"name {_kebab(name)!r}: the code of the plugin uses {min(taken)} for something else",
            fix=_command(kind, f"my-{possible}"),
        )


def require_free_name(kind: str, name: str, registry: Registry, commands: Collection[str]) -> None:
    """Check that no plugin, distribution or component of the kind has the name, installed or bundled.

    Args:
        name: as `require_possible_name` accepts it.
        commands: names of the commands of the core.

    Raises:
        UsageError: one has it.
    """
    distribution = _kebab(f"kernelrl_plugin_{name}")
    component = _kebab(name) if kind == "commands" else name
    offered = [
        plugin.dist for plugin in registry.plugins for one in plugin.components.get(kind, ()) if one.name == component
    ]
    core = ["kernelrl"] if kind == "commands" and component in commands else []
    if owners := [*core, *offered, *filter(None, [distribution_of(kind, component)])]:
        what = f"{KINDS_BY_NAME[kind].singular} {component!r} exists already, in {owners[0]}"
    elif owners := [plugin.dist for plugin in registry.plugins if plugin.name == name]:
        what = f"plugin {name!r} exists already, in {owners[0]}"
    elif distribution in known_distributions() or _is_installed(distribution):
        what = f"distribution {distribution} exists already"
    else:
        return
    raise UsageError(what, fix=_command(kind, f"my-{_kebab(name)}"))


def plugin_package(kind: str, name: str) -> dict[str, str]:
    """Path -> text of every file of a new package.

    Args:
        name: as `require_possible_name` accepts it.
    """
    import jinja2

    sample = read_sample(kind)
    renamed = _renaming(sample.name, name)
    files = {renamed(path): renamed(text) for path, text in sample.files.items()}
    package = f"kernelrl_plugin_{name}"
    major, minor = __version__.split(".")[:2]
    facts = {
        "kind": kind,
        "name": name,
        "command": _kebab(name),
        "package": package,
        "distribution": _kebab(package),
        "title": (ast.get_docstring(ast.parse(files[f"src/{package}/__init__.py"])) or "").rstrip("."),
        "recipe": renamed(sample.recipe),
        "api": f"{major}.{minor}",
        "next_api": f"{major}.{int(minor) + 1}",
    }
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_TEMPLATES),
        undefined=jinja2.StrictUndefined,
        autoescape=False,
        trim_blocks=True,
        keep_trailing_newline=True,
    )
    common = {path.stem: environment.get_template(path.name).render(facts) for path in sorted(_TEMPLATES.iterdir())}
    return {**common, f"src/{package}/py.typed": "", **files}


def _command(kind: str, name: str) -> str:
    return f"kernelrl plugins new {kind} {name[:MAX_NAME].strip('-')}"


def _is_installed(distribution: str) -> bool:
    try:
        metadata.distribution(distribution)
    except metadata.PackageNotFoundError:
        return False
    return True


def _renaming(old: str, new: str) -> Callable[[str], str]:
    """Replaces a name in all of its spellings."""
    # In one pass: the new name may contain the old one.
    spellings = {spell(old): spell(new) for spell in (_camel, _kebab, str)}
    pattern = re.compile(rf"(?<![A-Za-z0-9])({'|'.join(spellings)})(?![a-z0-9])")
    return lambda text: pattern.sub(lambda found: spellings[found[1]], text)


def _kebab(name: str) -> str:
    return name.replace("_", "-")


def _camel(name: str) -> str:
    return "".join(word.capitalize() for word in name.split("_"))
