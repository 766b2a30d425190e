"""Generate the reference pages for authors of plugins from docstrings.

    python scripts/plugin_pages.py

Writes docs/plugins/KIND.md for each kind, docs/plugins/values.md, docs/findings.md, and the generated sections of
docs/plugins.md, which are between `<!-- generated: NAME -->` and `<!-- end -->`. Sources: `kernelrl_core/interfaces`,
`kernelrl_core/types`, `kernelrl_core/api` and the rules of evaluators and checkers. A test fails while a page differs
from its source.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import itertools
import re
import textwrap
from collections.abc import Iterator, Mapping
from enum import Enum
from pathlib import Path
from typing import Any

import attrs

from kernelrl_core import api
from kernelrl_core.interfaces.component import Component
from kernelrl_core.interfaces.config import ComponentConfig, MachineFact
from kernelrl_core.interfaces.requirements import Requires
from kernelrl_core.plugins.kinds import KINDS_BY_NAME
from kernelrl_core.plugins.new_package import documentation, read_sample
from kernelrl_core.plugins.registry import registry
from kernelrl_core.recipe.explain import default_rules, evaluator_rules
from kernelrl_core.recipe.field_docs import field_docs
from kernelrl_core.recipe.schema import Recipe
from kernelrl_core.testing import contracts, fakes, fixtures, training, values
from kernelrl_core.testing.contracts import CONTRACTS, ComponentContract
from kernelrl_core.types import (
    CHECKER_FAILED_RULE,
    Candidate,
    Evaluation,
    Extraction,
    Finding,
    Outcome,
    Rule,
    SampleId,
    Score,
    Severity,
    TaskSettings,
    Turn,
    Verdict,
)

ROOT = Path(__file__).resolve().parents[1]
GUIDE = ROOT / "docs/plugins.md"
PAGES = ROOT / "docs/plugins"
FINDINGS = ROOT / "docs/findings.md"
KINDS = tuple(kind for kind in KINDS_BY_NAME if kind != "commands")
"""Kinds whose values and options are documented."""
IN_GUIDE = (
    Component,
    Requires,
    ComponentConfig,
    MachineFact,
    Turn,
    Candidate,
    Evaluation,
    Finding,
    Rule,
    Outcome,
    Severity,
    Verdict,
)
"""Classes whose tables are in docs/plugins.md and not in docs/plugins/values.md."""
_WIDTH = 140
_SUFFIXES = {"_us": "µs", "_s": "s", "_mib": "MiB"}
_UNITS = {
    "advantage": "score",
    "advantages": "score",
    "context_tokens": "tokens",
    "eager_speedup": "ratio",
    "excessive_speedup": "ratio",
    "logprobs": "nats",
    "max_abs": "of the output",
    "max_tokens": "tokens",
    "mean_abs": "of the output",
    "own_kernel_share": "0 to 1",
    "sampler_logprobs": "nats",
    "seconds": "s",
    "speedup": "ratio",
    "speedup_ci": "ratio",
    "staleness": "updates",
    "tests_passed": "trials",
    "tests_total": "trials",
    "total": "score",
    "trials": "trials",
    "wrong_share": "0 to 1",
}
"""Field -> unit, for names without a unit suffix."""


def generated() -> Mapping[Path, str]:
    """Path -> text of every page, docs/plugins.md included."""
    pages = {PAGES / f"{kind}.md": kind_page(kind) for kind in KINDS_BY_NAME}
    own = {PAGES / "values.md": values_page(), PAGES / "testing.md": testing_page()}
    own[FINDINGS] = findings_page()
    return {GUIDE: guide(GUIDE.read_text(encoding="utf-8")), **own, **pages}


def kind_page(kind: str) -> str:
    """The page of a kind."""
    known = KINDS_BY_NAME[kind]
    module, sample = importlib.import_module(known.module), read_sample(kind)
    title, _, rest = documentation(kind).partition(": ")
    prose, *_ = re.split(r"\n    # src/", rest, maxsplit=1)
    own = [getattr(module, name) for name in module.__all__]
    classes = [value for value in own if inspect.isclass(value) and value is not ComponentConfig]
    options = next((cls for cls in classes if issubclass(cls, ComponentConfig)), None)
    implementation = "`click.Command`" if kind == "commands" else "function"
    parts = [
        f"# {title}",
        _note(known.module),
        _linked(prose[0].upper() + prose[1:].strip()),
        "| | |\n|---|---|\n"
        f"| hook | `kernelrl_{kind}` |\n"
        f"| implementation | {f'class derived from `{known.base_name}`' if known.base_name else implementation} |\n"
        f"| options | {f'class derived from `{options.__name__}`' if options else 'those of the command line'} |",
    ]
    if options:
        names = _names(importlib.import_module(known.api).__all__)
        parts.append(
            _wrapped(
                f"`{known.api}` exports: {names}. For fields of values that are not on this page see "
                "[values](values.md) and the [guide](../plugins.md#turn)."
            )
        )
    command = f"kernelrl plugins new {kind} {sample.name.replace('_', '-')}"
    parts += [
        "## Sample plugin",
        _wrapped(
            f"`{command}` writes this plugin, with `pyproject.toml`, `README.md` and a licence "
            "([your first plugin](../plugins.md#your-first-plugin))."
        ),
        *(f"`{path}`:\n\n```python\n{text}```" for path, text in sample.files.items()),
    ]
    if sample.recipe:
        parts += ["In a recipe:", f"```yaml\n{sample.recipe}```"]
    if contract := CONTRACTS.get(kind):
        parts += [
            "## Test",
            _wrapped(
                f"`{contract.__name__}` contains the tests that every component of this kind must pass. The tests of a "
                "plugin derive a class from it."
            ),
            *_attributes(contract, ComponentContract),
        ]
    for alias in (name for name, value in zip(module.__all__, own, strict=True) if not inspect.isclass(value)):
        parts += [f"## {alias}", f"`{_alias_source(module, alias)}`", _linked(_texts_below(module)[alias])]
    for cls in sorted(classes, key=lambda cls: (issubclass(cls, ComponentConfig), attrs.has(cls))):
        parts += [f"## {cls.__name__}", _linked(_markdown(inspect.getdoc(cls) or ""))]
        parts += list(_table(cls) if attrs.has(cls) else _attributes(cls))
        parts += list(_methods(cls))
        if cls is options:
            parts.append(
                "Every options class also has the methods of [`ComponentConfig`](../plugins.md#componentconfig)."
            )
    return "\n\n".join(parts) + "\n"


def values_page() -> str:
    """The page with the fields of all values that the API exports, except those of the guide."""
    seen: dict[str, type[Any]] = {}
    for kind in KINDS:
        public = importlib.import_module(KINDS_BY_NAME[kind].api)
        for name in public.__all__:
            value = getattr(public, name)
            if inspect.isclass(value) and value.__module__.startswith("kernelrl_core.types.") and value not in IN_GUIDE:
                seen[name] = value
    # Contained in other values; no module exports them.
    seen |= {cls.__name__: cls for cls in (Extraction, SampleId, Score, TaskSettings)}
    parts = [
        "# Values",
        _note("kernelrl_core.types"),
        _wrapped(
            "Fields of the values that plugins get and return. `Turn`, `Candidate`, `Evaluation`, `Finding`, `Rule` "
            "and their enumerations are in the [guide](../plugins.md#turn). All classes are frozen. `type = value` is "
            "the type of a field and its default."
        ),
    ]
    for name in sorted(seen):
        parts += _section(seen[name], "##")
    return "\n\n".join(parts) + "\n"


def declared_rules() -> list[tuple[str, Rule]]:
    """Each rule of this repository with the place of its findings."""
    known = registry()
    rules = []
    for label in ("source_rules", "evaluation_rules"):
        rules += [(f"checker `{label}`", rule) for rule in default_rules(known, label)]
    rules += [("judge", rule) for rule in evaluator_rules(known, "local")]
    return [*rules, ("core", CHECKER_FAILED_RULE)]


def findings_page() -> str:
    """The page with one section per finding."""
    parts = [
        "# Findings",
        _note("the declarations of the rules"),
        _wrapped(
            "A finding is a reported rule with evidence. Its severity is `note`, `suspect` or `hack`; the worst one is "
            "the verdict of the turn. A note changes neither score nor verdict. A finding of a stated rule (`forbid`) "
            "that is more than a note rejects: the outcome is `rejected`. Other suspect kernels stay `correct`, and "
            "rewards count their speedup as at most 1. A hack ends as `hacked`. `kernelrl explain RULE` prints the "
            "same text."
        ),
        "| finding | severity | from |\n|---|---|---|\n"
        + "\n".join(f"| [`{rule.id}`](#{rule.id}) | {rule.severity.value} | {by} |" for by, rule in declared_rules()),
    ]
    for by, rule in declared_rules():
        stated = ", stated by default" if rule.id in attrs.fields(Recipe).forbid.default else ""
        rows = {
            "meaning": rule.reason,
            "rule": rule.statement,
            "severity": f"{rule.severity.value}, from {by}{stated}",
            "example": rule.example,
            "honest look-alike": rule.look_alike,
            "does not find": rule.misses,
            "cost": rule.cost or "none: it reads the source or an existing result",
        }
        table = "\n".join(f"| {name} | {text} |" for name, text in rows.items())
        parts += [f"## {rule.id}", f"| | |\n|---|---|\n{table}"]
    return "\n\n".join(parts) + "\n"


def guide(text: str) -> str:
    """The text of the guide with its generated sections renewed."""

    def section(match: re.Match[str]) -> str:
        name = match[1]
        if name == "imports":
            content = imports()
        elif name == "builders":
            content = builders()
        else:
            (cls,) = (cls for cls in IN_GUIDE if cls.__name__ == name)
            content = "\n\n".join(_section(cls, "###")).replace("(../plugins/", "(plugins/").replace("(../", "(")
        return f"<!-- generated: {name} -->\n\n{content}\n\n<!-- end -->"

    return re.sub(r"<!-- generated: (\w+) -->\n.*?<!-- end -->", section, text, flags=re.DOTALL)


def imports() -> str:
    """Every module of the API with the names that it exports."""
    paths = sorted(Path(api.__path__[0]).glob("[a-z]*.py"))
    lines = []
    for name in ("kernelrl_core.api", *(f"kernelrl_core.api.{path.stem}" for path in paths)):
        lines.append(_wrapped(f"- `{name}`: {_names(importlib.import_module(name).__all__)}", indent="  "))
    return "\n".join(lines)


def builders() -> str:
    """Signature and documentation of each function of `kernelrl_core.testing.values`."""
    constants = "Constants: `REFERENCE` is the source of a complete task, `SOURCE` that of a candidate."
    return "\n\n".join([constants, *_definitions(values)])


def testing_page() -> str:
    """The page with the public names of the test kit, except the builders of the guide and the contract classes."""
    parts = [
        "# Test kit",
        _note("kernelrl_core.testing"),
        _wrapped(
            "The [guide](../plugins.md#test-kit) introduces the test kit and documents the builders of values. The "
            "page of a kind documents its contract class."
        ),
    ]
    for module in (contracts, fakes, training, fixtures):
        parts += [
            f"## {module.__name__}",
            _linked(_markdown(inspect.cleandoc(module.__doc__ or ""))),
        ]
        parts += _definitions(module, skip=tuple(cls.__name__ for cls in (*CONTRACTS.values(), ComponentContract)))
    return "\n\n".join(parts) + "\n"


def _definitions(module: Any, skip: tuple[str, ...] = ()) -> Iterator[str]:
    """Signature and documentation of the public functions of a module, and of its classes with documented methods."""
    public = [name for name in module.__all__ if name not in skip]
    for node in ast.parse(inspect.getsource(module)).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name in public:
            yield f"`{_signature(node)}`"
            yield _linked(_markdown(ast.get_docstring(node) or ""))
        elif isinstance(node, ast.ClassDef) and node.name in public:
            methods = [inner for inner in node.body if isinstance(inner, ast.FunctionDef | ast.AsyncFunctionDef)]
            own = [inner for inner in methods if not inner.name.startswith("_") and ast.get_docstring(inner)]
            made = next((inner.args for inner in methods if inner.name == "__init__"), None)
            yield f"`class {node.name}({_arguments(made) if made is not None else ''})`"
            yield _linked(_markdown(ast.get_docstring(node) or ""))
            yield from ("\n".join(f"- `{_signature(inner)}`: {_one_line(inner)}" for inner in own),) if own else ()


def _one_line(node: ast.FunctionDef | ast.AsyncFunctionDef) -> str:
    return " ".join((ast.get_docstring(node) or "").split())


def _signature(node: ast.FunctionDef | ast.AsyncFunctionDef) -> str:
    prefix = "async " if isinstance(node, ast.AsyncFunctionDef) else ""
    result = f" -> {ast.unparse(node.returns)}" if node.returns is not None else ""
    return f"{prefix}{node.name}({_arguments(node.args)}){result}"


def _arguments(arguments: ast.arguments) -> str:
    text = ast.unparse(arguments).removeprefix("self").removeprefix(", ").replace("_BY_OUTCOME", "…")
    return re.sub(r"(?<=[\w\]])=", " = ", text)


def _section(cls: type[Any], level: str) -> list[str]:
    parts = [f"{level} {cls.__name__}", _linked(_markdown(inspect.getdoc(cls) or ""))]
    if issubclass(cls, Enum):
        rows = "\n".join(f"| `{member.value}` | {_linked(_texts_below(cls).get(member.name, ''))} |" for member in cls)
        return [*parts, f"| value | meaning |\n|---|---|\n{rows}"]
    parts += list(_table(cls))
    if cls is ComponentConfig:
        parts += list(_methods(cls))
    return parts


def _table(cls: type[Any]) -> Iterator[str]:
    """The fields and properties of an attrs class."""
    docs = field_docs(cls)
    # As written: `attrs.Attribute.type` changes where cattrs resolves it.
    hints = {name: hint for owner in reversed(cls.__mro__) for name, hint in inspect.get_annotations(owner).items()}
    rows = [
        (field.name, _type(hints[field.name]) + _default(field.default), _unit(field.name), docs.get(field.name, ""))
        for field in attrs.fields(cls)
    ]
    for name, value in vars(cls).items():
        if isinstance(value, property) and not name.startswith("_"):
            annotation = inspect.signature(value.fget).return_annotation if value.fget else ""
            meaning = f"Property. {' '.join((inspect.getdoc(value) or '').split())}"
            rows.append((name, _type(annotation), _unit(name), meaning))
    if cls is ComponentConfig:
        rows += [(name, "class attribute", "", docs[name]) for name in docs]
    if rows:
        units = any(unit for _, _, unit, _ in rows)
        head = (
            "| field | type | unit | meaning |\n|---|---|---|---|"
            if units
            else "| field | type | meaning |\n|---|---|---|"
        )
        yield "\n".join([head, *(_row(row if units else (row[0], row[1], row[3])) for row in rows)])


def _row(cells: tuple[str, ...]) -> str:
    name, type_, *rest = cells
    code = type_.replace("|", "\\|")
    return (
        " | ".join(["| `" + name + "`", f"`{code}`" if code else "", *map(_linked, rest)]).replace("|  |", "| |") + " |"
    )


def _attributes(*classes: type[Any]) -> Iterator[str]:
    """The documented class attributes of base classes."""
    rows = []
    for cls in classes:
        hints = inspect.get_annotations(cls)
        for name, text in _texts_below(cls).items():
            hint = re.sub(r"^ClassVar\[(.*)\]$", r"\1", _type(hints[name]))
            rows.append(f"| `{name}` | `{hint}` | {_linked(text)} |")
    if rows:
        yield "\n".join(["| attribute | type | meaning |\n|---|---|---|", *rows])


def _methods(cls: type[Any]) -> Iterator[str]:
    """The public methods that a base class defines."""
    for name, method in vars(cls).items():
        if name.startswith("_") or not inspect.isfunction(method):
            continue
        signature = inspect.signature(method)
        arguments = ", ".join(str(value) for key, value in signature.parameters.items() if key != "self")
        arguments = re.sub(r": '([^']*)'", r": \1", arguments)
        prefix = "async " if inspect.iscoroutinefunction(method) else ""
        abstract = getattr(method, "__isabstractmethod__", False) or "Required." in (method.__doc__ or "")
        result = f" -> {_type(signature.return_annotation)}"
        yield f"### {cls.__name__}.{name}"
        yield f"`{prefix}{name}({arguments}){result}` ({'required' if abstract else 'optional'})"
        yield _linked(_markdown((inspect.getdoc(method) or "").replace(" Required.", "")))


def _markdown(text: str) -> str:
    """A docstring with its sections `Args`, `Returns` and `Raises` as lists, and its indented samples fenced."""
    samples = r"(?m)(?<=\n\n)(?:^    .*\n?(?:\n(?=    ))*)+"
    text, *sections = re.split(r"(?m)^(?=(?:Args|Returns|Raises):$)", text)
    text = re.sub(samples, lambda found: f"```python\n{textwrap.dedent(found[0]).rstrip()}\n```\n", text)
    text = "".join([text, *sections])
    lines: list[str] = []
    section = ""
    for line in text.splitlines():
        if re.fullmatch(r"(Args|Returns|Raises):", line):
            section = line[:-1]
            lines += ["**" + {"Args": "Arguments"}.get(section, section) + "**", ""]
        elif section and (item := re.fullmatch(r"    (\S[^:]*): (.*)", line)) and section != "Returns":
            names = ", ".join(f"`{name}`" for name in item[1].split(", "))
            lines.append(f"- {names}: {item[2]}")
        elif section:
            lines.append("  " + line.strip() if section != "Returns" and line.strip() else line.strip())
        else:
            lines.append(line)
    return "\n".join(lines).strip()


def _linked(text: str) -> str:
    """Text in which names of documentation pages are links."""
    return re.sub(r"(?<!/)docs/(\w+)\.md", r"[\1](../\1.md)", text)


def _note(source: str) -> str:
    return f"<!-- Generated by scripts/plugin_pages.py from {source}. Edit the docstrings there. -->"


def _names(names: list[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _wrapped(text: str, indent: str = "") -> str:
    return textwrap.fill(text, _WIDTH, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)


def _unit(name: str) -> str:
    return next((unit for suffix, unit in _SUFFIXES.items() if name.endswith(suffix)), _UNITS.get(name, ""))


def _type(hint: Any) -> str:
    text = hint if isinstance(hint, str) else getattr(hint, "__name__", str(hint))
    return " ".join(re.sub(r"\[\s+", "[", re.sub(r",?\s+\]", "]", text)).split())


def _default(default: Any) -> str:
    if default is attrs.NOTHING:
        return ""
    if hasattr(default, "factory"):
        default = default.factory()
    if isinstance(default, Enum):
        return f" = {type(default).__name__}.{default.name}"
    if attrs.has(type(default)):
        return f" = {type(default).__name__}({'…' if default == Score(0.0) else ''})"
    return f" = {default!r}" if len(repr(default)) < 30 else " = (…)"


def _body(owner: Any) -> list[ast.stmt]:
    (tree,) = (ast.parse(textwrap.dedent(inspect.getsource(owner))),)
    (cls,) = tree.body if inspect.isclass(owner) else (tree,)
    assert isinstance(cls, ast.ClassDef | ast.Module)
    return cls.body


def _texts_below(owner: Any) -> dict[str, str]:
    """Name of an attribute, member or type alias -> the text literal under its definition."""
    found = {}
    for node, below in itertools.pairwise(_body(owner)):
        target = node.targets[0] if isinstance(node, ast.Assign) else getattr(node, "target", None)
        is_text = isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant)
        if isinstance(target, ast.Name) and is_text:
            found[target.id] = " ".join(str(below.value.value).split())
    return found


def _alias_source(module: Any, name: str) -> str:
    (node,) = (n for n in _body(module) if isinstance(n, ast.AnnAssign) and getattr(n.target, "id", "") == name)
    return f"{name} = {ast.unparse(node.value)}"


def main() -> None:
    PAGES.mkdir(exist_ok=True)
    for path, text in generated().items():
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
