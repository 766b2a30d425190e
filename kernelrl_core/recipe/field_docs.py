"""Help of attrs fields, from the string literals below them: one source for command line, schema and documentation."""

from __future__ import annotations

import ast
import functools
import inspect
import itertools
import textwrap
import typing
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import attrs

from kernelrl_core.plugins.registry import registry
from kernelrl_core.plugins.use import Use
from kernelrl_core.recipe.structure import field_types, plain, type_words

__all__ = ["FieldDescription", "describe_fields", "field_docs", "yaml_text"]


def field_docs(cls: type[Any]) -> Mapping[str, str]:
    """Field of an attrs class, or member of an enumeration -> the string literal below it in the source, as one line.
    Empty if the source is not available."""
    hashable: Any = cls
    return _read(hashable)


@functools.cache
def _read(cls: Any) -> Mapping[str, str]:
    docs: dict[str, str] = {}
    for owner in reversed(cls.__mro__):
        if not (attrs.has(owner) or owner is cls):
            continue
        try:
            tree = ast.parse(textwrap.dedent(inspect.getsource(owner)))
        except (OSError, TypeError, SyntaxError):
            continue
        body = tree.body[0].body if isinstance(tree.body[0], ast.ClassDef) else []
        for field, below in itertools.pairwise(body):
            target: ast.AST | None = field.target if isinstance(field, ast.AnnAssign) else None
            target = field.targets[0] if isinstance(field, ast.Assign) else target
            if (
                isinstance(target, ast.Name)
                and isinstance(below, ast.Expr)
                and isinstance(below.value, ast.Constant)
                and isinstance(below.value.value, str)
            ):
                docs[target.id] = " ".join(below.value.value.split())
    return docs


@attrs.frozen
class FieldDescription:
    """One key of a class, in the words of a recipe."""

    name: str
    type: str
    """Accepted values and range."""
    default: str
    """Default as YAML; `required` if there is none."""
    help: str
    fields: tuple[FieldDescription, ...] = ()
    """Keys of a value that is a mapping."""
    example: str = ""
    """A valid value as YAML."""


def describe_fields(cls: type[Any]) -> list[FieldDescription]:
    """The `__init__` fields of an attrs class, with those of nested classes."""
    docs, hints = field_docs(cls), field_types(cls)
    found = []
    for field in attrs.fields(cls):
        if not field.init:
            continue
        hint = hints[field.name]
        limits = " and ".join(_limits(field.validator))
        nested = [one for one in (hint, *typing.get_args(hint)) if isinstance(one, type) and attrs.has(one)]
        inner = tuple(part for one in nested if not issubclass(one, Use) for part in describe_fields(one))
        default = _default_text(field)
        example = default if default not in ("required", "null", "[]", "{}") and "other" not in default else ""
        found.append(
            FieldDescription(
                field.name,
                type_words(hint) + (f", {limits}" if limits else ""),
                default,
                docs.get(field.name, "") or _first_paragraph(hint),
                inner,
                example or _example(hint, nested),
            )
        )
    return found


def _first_paragraph(hint: Any) -> str:
    """Of the docstring of an attrs class, as one line."""
    doc = inspect.cleandoc(hint.__doc__ or "") if isinstance(hint, type) and attrs.has(hint) else ""
    return " ".join(doc.partition("\n\n")[0].split())


def _limits(validator: Any) -> Iterator[str]:
    """Range that the number validators of attrs allow, such as `>= 1`."""
    for one in getattr(validator, "_validators", (validator,)):
        one = getattr(one, "validator", one)
        if hasattr(one, "compare_op"):
            yield f"{one.compare_op} {one.bound:g}"


def _default_text(field: Any) -> str:
    if "default" in field.metadata:
        return str(field.metadata["default"])
    if "declared" in field.metadata:
        return f"{{use: {registry().default(field.metadata['declared'])}}}"
    default = field.default
    if default is attrs.NOTHING:
        return "required"
    if hasattr(default, "factory"):
        if default.takes_self:
            return "from the other options"
        default = default.factory()
    return yaml_text(plain(default))


def _example(hint: Any, nested: Sequence[type[Any]]) -> str:
    members = [one for one in (typing.get_args(hint) or (hint,)) if one is not type(None)]
    if nested:
        required = [one for one in describe_fields(nested[0]) if one.default == "required"]
        mapping = "{" + ", ".join(f"{one.name}: {one.example}" for one in required) + "}"
        return f"[{mapping}]" if typing.get_origin(hint) in (tuple, list) else mapping
    if typing.get_origin(hint) in (tuple, list, dict):
        return "{}" if typing.get_origin(hint) is dict else f"[{_example(members[0], ())}]"
    one = members[0]
    if typing.get_origin(one) in (tuple, list):
        return _example(one, ())
    if typing.get_origin(one) is Literal:
        return yaml_text(typing.get_args(one)[0])
    if typing.get_origin(hint) is Literal:
        return yaml_text(members[0])
    one = getattr(one, "__supertype__", one)
    return {bool: "true", int: "1", float: "0.5", Path: "PATH"}.get(one, "TEXT")


def yaml_text(value: Any) -> str:
    """Plain data as YAML on one line."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {yaml_text(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return f"[{', '.join(map(yaml_text, value))}]"
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    return str(value)
