"""Every public name is documented: its meaning, its errors, the shapes and units of numbers."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import attrs
import pytest
from docpages.docstrings import module_of, origin, texts_below, tree, unit
from docpages.kinds import kit_modules
from docpages.python import api_modules

from kernelrl_core import errors
from kernelrl_core.recipe.field_docs import describe_fields, field_docs
from kernelrl_core.recipe.schema import Recipe

ROOT = Path(__file__).parents[2]
MODULES = [*api_modules(), *kit_modules()]
NAMES = sorted({(origin(module, name), name) for module in MODULES for name in module.__all__})
ERRORS = {name for name in errors.__all__ if inspect.isclass(getattr(errors, name))}
WITHOUT_UNIT = {
    *("atol", "rtol", "parts", "similarity", "weight", "weights", "temperature", "top_p"),
    *(
        "library_share",
        "clip_low",
        "clip_high",
        "learning_rate",
        "beta1",
        "beta2",
        "eps",
        "weight_decay",
        "max_grad_norm",
    ),
}
"""Fields that are pure numbers."""


def value_of(module: str, name: str) -> Any:
    value = getattr(importlib.import_module(module), name)
    return inspect.unwrap(getattr(value, "_get_wrapped_function", lambda: value)())


def functions(value: Any) -> Iterator[tuple[str, Any, str]]:
    """Name, function and documentation of a function, or of the public methods and properties of a class."""
    if inspect.isfunction(value):
        yield value.__name__, value, inspect.getdoc(value) or ""
    elif inspect.isclass(value):
        for name, member in vars(value).items():
            function = member.fget if isinstance(member, property) else getattr(member, "__func__", member)
            if inspect.isfunction(function) and not name.startswith(("_", "test_")):
                yield f"{value.__name__}.{name}", function, inspect.getdoc(getattr(value, name)) or ""


def raised(function: Any) -> set[str]:
    """Classes of the errors in the `raise` statements of a function."""
    found = (node.exc for node in ast.walk(tree(function)) if isinstance(node, ast.Raise))
    calls = (node.func for node in found if isinstance(node, ast.Call))
    return {node.id for node in calls if isinstance(node, ast.Name)} & ERRORS


def numbers_in_sequences(hint: str) -> bool:
    return re.search(r"(?:Sequence|list|tuple)\[(?:Sequence|list|tuple)\[(?:float|int)", hint) is not None


@pytest.mark.parametrize(("module", "name"), NAMES, ids=[".".join(pair) for pair in NAMES])
class TestPublicName:
    def test_has_a_meaning(self, module: str, name: str) -> None:
        value = value_of(module, name)
        if inspect.isclass(value):
            assert vars(value).get("__doc__"), name
        elif not inspect.isfunction(value):
            assert texts_below(module_of(module)).get(name), f"write a text below {module}.{name}"
        assert [method for method, _, text in functions(value) if not text] == []

    def test_names_the_errors_that_it_raises(self, module: str, name: str) -> None:
        missing = [
            (method, error)
            for method, function, text in functions(value_of(module, name))
            for error in raised(function)
            if error not in text
        ]
        assert missing == []

    def test_gives_the_shape_of_nested_numbers(self, module: str, name: str) -> None:
        for method, function, text in functions(value_of(module, name)):
            if numbers_in_sequences(
                ast.unparse(tree(function).args) + ast.unparse(tree(function).returns or ast.Pass())
            ):
                assert re.search(r"\[\w+\]\[\w+\]", text), f"{method}: write the shape, such as [sample][token]"

    def test_fields_have_a_meaning_and_a_unit(self, module: str, name: str) -> None:
        value = value_of(module, name)
        if not (inspect.isclass(value) and attrs.has(value)):
            return
        docs = field_docs(value)
        if value is Recipe:
            docs = {field.name: field.help for field in describe_fields(Recipe)}
        for field in attrs.fields(value):
            if field.name.startswith("_"):
                continue
            assert docs.get(field.name), f"{name}.{field.name}"
            if float in (field.type, *typing.get_args(field.type)):
                known = unit(field.name) or field.name in WITHOUT_UNIT
                assert known, f"{name}.{field.name}: a unit in the name, in `_UNITS` of docpages, or in WITHOUT_UNIT"
