"""Help of attrs fields, from the string literals below them: one source for command line, schema and documentation."""

from __future__ import annotations

import ast
import inspect
import itertools
import textwrap
from typing import Any

import attrs

__all__ = ["describe_fields", "field_docs"]


def field_docs(cls: type[Any]) -> dict[str, str]:
    """Field -> the string literal below it in the source, as one line. Empty if the source is not available."""
    docs: dict[str, str] = {}
    for owner in reversed(cls.__mro__):
        if not attrs.has(owner):
            continue
        try:
            tree = ast.parse(textwrap.dedent(inspect.getsource(owner)))
        except (OSError, TypeError, SyntaxError):
            continue
        body = tree.body[0].body if isinstance(tree.body[0], ast.ClassDef) else []
        for field, below in itertools.pairwise(body):
            if (
                isinstance(field, ast.AnnAssign)
                and isinstance(field.target, ast.Name)
                and isinstance(below, ast.Expr)
                and isinstance(below.value, ast.Constant)
                and isinstance(below.value.value, str)
            ):
                docs[field.target.id] = " ".join(below.value.value.split())
    return docs


def describe_fields(cls: type[Any]) -> list[dict[str, str]]:
    """Name, type, default and help of every `__init__` field, as text."""
    docs = field_docs(cls)
    return [
        {
            "name": field.name,
            "type": _type_text(field.type),
            "default": _default_text(field.default),
            "help": docs.get(field.name, ""),
        }
        for field in attrs.fields(cls)
        if field.init
    ]


def _type_text(hint: Any) -> str:
    return hint if isinstance(hint, str) else getattr(hint, "__name__", str(hint))


def _default_text(default: Any) -> str:
    if default is attrs.NOTHING:
        return "required"
    if hasattr(default, "factory"):
        if default.takes_self:
            return "from the other options"
        default = default.factory()
    return "null" if default is None else str(default)
