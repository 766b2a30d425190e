"""Documentation of Python objects as Markdown: signatures, fields, methods, docstrings."""

from __future__ import annotations

import ast
import inspect
import itertools
import re
import textwrap
from collections.abc import Iterator
from enum import Enum
from typing import Any

import attrs

from docpages.markdown import code, linked, table
from kernelrl_core.interfaces.config import ComponentConfig
from kernelrl_core.recipe.field_docs import field_docs
from kernelrl_core.types import Score

_SUFFIXES = {"_bytes": "bytes", "_gb_s": "GB/s", "_ghz": "GHz", "_mib": "MiB", "_s": "s", "_us": "µs"}
_UNITS = {
    "achieved_tflops": "TFLOP/s",
    "advantage": "score",
    "advantages": "score",
    "bandwidth_share": "ratio",
    "context_tokens": "tokens",
    "cpu_seconds": "s",
    "eager_speedup": "ratio",
    "error_ratio": "ratio",
    "excessive_speedup": "ratio",
    "flop_share": "ratio",
    "flops": "operations",
    "gap": "score",
    "high": "score",
    "library_kernel_share": "0 to 1",
    "logprobs": "nats",
    "low": "score",
    "max_abs": "of the output",
    "max_tokens": "tokens",
    "mean_abs": "of the output",
    "min_speedup": "ratio",
    "own_kernel_share": "0 to 1",
    "sampler_logprobs": "nats",
    "seconds": "s",
    "speedup": "ratio",
    "speedup_ci": "ratio",
    "stages": "s",
    "staleness": "updates",
    "tests_passed": "trials",
    "tests_total": "trials",
    "tflops": "TFLOP/s",
    "total": "score",
    "trials": "trials",
    "waiting_share": "0 to 1",
    "wrong_share": "0 to 1",
}
"""Field -> unit, for names without a unit suffix."""


def entry(name: str, value: Any, module: str, level: str = "###") -> Iterator[str]:
    """Heading and documentation of a public name.

    Args:
        module: the module that defines it, for names whose documentation is a text below the definition.
    """
    value = inspect.unwrap(getattr(value, "_get_wrapped_function", lambda: value)())
    if inspect.isclass(value):
        yield from class_entry(value, level)
        return
    # Without code, underscores around a name would be emphasis.
    yield f"{level} `{name}`" if name.startswith("_") else f"{level} {name}"
    if inspect.isfunction(value):
        yield signature(tree(value))
        yield linked(markdown(inspect.getdoc(value) or ""))
    else:
        yield definition(module, name)
        yield linked(texts_below(module_of(module)).get(name, ""))


def class_entry(cls: type[Any], level: str = "###") -> Iterator[str]:
    """Heading, docstring, fields and methods of a class."""
    yield f"{level} {cls.__name__}"
    if not (attrs.has(cls) or issubclass(cls, Enum)):
        yield signature(tree(cls))
    yield linked(markdown(own_doc(cls)))
    if issubclass(cls, Enum):
        docs = field_docs(cls)
        yield table(("value", "meaning"), ((f"`{one.value}`", linked(docs.get(one.name, ""))) for one in cls))
        return
    yield from fields(cls) if attrs.has(cls) else attributes(cls)
    if cls is ComponentConfig:
        yield from methods(cls)
    elif found := [
        f"- {signature(inner)}: {linked(one_line(inner))}"
        for owner in cls.__mro__
        # A class of a library below the core has no page of its own.
        if owner is cls or owner.__module__.startswith(("kernelrl_devices.", "kernelrl_sources."))
        for inner in tree(owner).body
        if isinstance(inner, ast.FunctionDef | ast.AsyncFunctionDef)
        and not inner.name.startswith("_")
        # A method without docstring is documented in the base class.
        and ast.get_docstring(inner)
        and not {"property", "overload"} & {getattr(one, "id", "") for one in inner.decorator_list}
    ]:
        yield "\n".join(found)


def own_doc(cls: type[Any]) -> str:
    """The docstring of the class itself, not that of a base class."""
    return inspect.cleandoc(vars(cls).get("__doc__") or "")


def tree(value: Any) -> Any:
    """Syntax tree of a function or a class."""
    return ast.parse(textwrap.dedent(inspect.getsource(value))).body[0]


def module_of(name: str) -> Any:
    return __import__(name, fromlist=["_"])


def origin(module: Any, name: str) -> str:
    """The module from which a module of the API imports a name."""
    for node in ast.parse(inspect.getsource(module)).body:
        if isinstance(node, ast.ImportFrom) and any(alias.name == name for alias in node.names):
            return str(node.module)
    return str(module.__name__)


def definition(module: str, name: str) -> str:
    """The code that defines a constant or a type alias; its name alone if that is long."""
    for node in ast.parse(inspect.getsource(module_of(module))).body:
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        if any(getattr(target, "id", "") == name for target in targets):
            text = f"{name} = {ast.unparse(node.value)}"  # type: ignore[attr-defined]
            return f"`{text if len(text) < 120 and '`' not in text else name}`"
    return f"`{name}`"


def signature(node: Any) -> str:
    """Signature of a function or a class, as code."""
    if isinstance(node, ast.ClassDef):
        made = next((inner.args for inner in node.body if getattr(inner, "name", "") == "__init__"), None)
        return f"`class {node.name}({arguments(made) if made is not None else ''})`"
    prefix = "async " if isinstance(node, ast.AsyncFunctionDef) else ""
    result = f" -> {ast.unparse(node.returns)}" if node.returns is not None else ""
    return f"`{prefix}{node.name}({arguments(node.args)}){result}`"


def arguments(of: ast.arguments) -> str:
    text = re.sub(r"^(self|cls)(, )?", "", ast.unparse(of)).replace("_BY_OUTCOME", "…")
    return re.sub(r"(?<=[\w\]'])=", " = ", text)


def one_line(node: ast.FunctionDef | ast.AsyncFunctionDef) -> str:
    """The docstring of a method as one paragraph."""
    text = " ".join((ast.get_docstring(node) or "").split())
    return re.sub(r" (Args|Returns|Raises):", lambda found: f" {_SECTIONS[found[1]]}:", text)


def fields(cls: type[Any]) -> Iterator[str]:
    """The fields and properties of an attrs class as a table."""
    docs = field_docs(cls)
    # As written: `attrs.Attribute.type` changes where cattrs resolves it.
    hints = {name: hint for owner in reversed(cls.__mro__) for name, hint in inspect.get_annotations(owner).items()}
    rows = [
        (field.name, type_text(hints[field.name]) + default(field.default), unit(field.name), docs.get(field.name, ""))
        for field in attrs.fields(cls)
        if not field.name.startswith("_")
    ]
    for name, value in vars(cls).items():
        if isinstance(value, property) and not name.startswith("_"):
            annotation = inspect.signature(value.fget).return_annotation if value.fget else ""
            rows.append((name, type_text(annotation), unit(name), f"Property. {inspect.getdoc(value) or ''}"))
    if cls is ComponentConfig:
        rows += [(name, "class attribute", "", docs[name]) for name in docs]
    if rows:
        units = any(row[2] for row in rows)
        head = ("field", "type", "unit", "meaning") if units else ("field", "type", "meaning")
        cells = [(f"`{name}`", code(type_), *((of,) if units else ()), linked(text)) for name, type_, of, text in rows]
        yield table(head, cells)


def attributes(*classes: type[Any]) -> Iterator[str]:
    """The documented class attributes of base classes as a table."""
    rows = []
    for cls in classes:
        hints = inspect.get_annotations(cls)
        for name, text in texts_below(cls).items():
            hint = re.sub(r"^ClassVar\[(.*)\]$", r"\1", type_text(hints.get(name, "")))
            rows.append((f"`{name}`", code(hint), linked(text)))
    if rows:
        yield table(("attribute", "type", "meaning"), rows)


def methods(cls: type[Any]) -> Iterator[str]:
    """The public methods that a base class defines, each with a heading."""
    for name, method in vars(cls).items():
        if name.startswith("_") or not inspect.isfunction(method):
            continue
        abstract = getattr(method, "__isabstractmethod__", False) or "Required." in (method.__doc__ or "")
        yield f"### {cls.__name__}.{name}"
        yield f"{signature(tree(method))} ({'required' if abstract else 'optional'})"
        yield linked(markdown((inspect.getdoc(method) or "").replace(" Required.", "")))


def markdown(text: str) -> str:
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
            lines += [f"**{_SECTIONS[section]}**", ""]
        elif section and (item := re.fullmatch(r"    (\S[^:]*): (.*)", line)) and section != "Returns":
            named = ", ".join(f"`{name}`" for name in item[1].split(", "))
            lines.append(f"- {named}: {item[2]}")
        elif section:
            lines.append("  " + line.strip() if section != "Returns" and line.strip() else line.strip())
        else:
            lines.append(line)
    return "\n".join(lines).strip()


_SECTIONS = {"Args": "Arguments", "Returns": "Returns", "Raises": "Raises"}


def unit(name: str) -> str:
    return next((of for suffix, of in _SUFFIXES.items() if name.endswith(suffix)), _UNITS.get(name, ""))


def type_text(hint: Any) -> str:
    text = hint if isinstance(hint, str) else getattr(hint, "__name__", str(hint))
    return " ".join(re.sub(r"\[\s+", "[", re.sub(r",?\s+\]", "]", text)).split())


def default(of: Any) -> str:
    """The default of a field as code; empty if there is none."""
    if of is attrs.NOTHING:
        return ""
    if hasattr(of, "factory"):
        if of.takes_self:
            return " = (…)"
        of = of.factory()
    if isinstance(of, Enum):
        return f" = {type(of).__name__}.{of.name}"
    if attrs.has(type(of)):
        return f" = {type(of).__name__}({'…' if of == Score(0.0) else ''})"
    return f" = {of!r}" if len(repr(of)) < 30 else " = (…)"


def body(owner: Any) -> list[ast.stmt]:
    found = ast.parse(textwrap.dedent(inspect.getsource(owner)))
    return found.body[0].body if inspect.isclass(owner) else found.body  # type: ignore[attr-defined]


def texts_below(owner: Any) -> dict[str, str]:
    """Name of an attribute, member, constant or type alias -> the text literal below its definition."""
    found = {}
    for node, below in itertools.pairwise(body(owner)):
        target = node.targets[0] if isinstance(node, ast.Assign) else getattr(node, "target", None)
        is_text = isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant)
        if isinstance(target, ast.Name) and is_text:
            found[target.id] = " ".join(str(below.value.value).split())
    return found


def alias_source(module: Any, name: str) -> str:
    (node,) = (one for one in body(module) if isinstance(one, ast.AnnAssign) and getattr(one.target, "id", "") == name)
    return f"{name} = {ast.unparse(node.value)}"
