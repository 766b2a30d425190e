"""`kernelrl explain`: the meaning of a recipe key, option, component, metric, rule or problem."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import attrs
import click

from kernelrl_core.cli.output import print_json, print_lines
from kernelrl_core.plugins.registry import registry
from kernelrl_core.recipe.explain import explain
from kernelrl_core.recipe.field_docs import FieldDescription


@click.command("explain")
@click.argument("name", nargs=-1, required=True)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def command(name: tuple[str, ...], as_json: bool) -> None:
    """Explain NAME: type, default, range, effect, source and an example; or the causes and fixes of a problem.

    NAME is a recipe key, an option of a component, a component, a metric, a rule, an outcome, a verdict or a problem,
    whose name errors and alarms print after 'more'. A component may be preceded by its kind.

    \b
    Examples:
      kernelrl explain train.mismatch
      kernelrl explain policies torch
      kernelrl explain kernel/correct_rate
      kernelrl explain no_kernel
      kernelrl explain run-in-use
    """
    found = explain(" ".join(name), registry())
    if as_json:
        print_json({"name": " ".join(name), "explanations": [attrs.asdict(one) for one in found]})
        return
    for number, one in enumerate(found):
        lines = [""] if number else []
        lines += [f"{one.name}  ({one.what})", *_indented(one.text)]
        if one.field is not None:
            lines += [f"  type     {one.field.type}", f"  default  {one.field.default}"]
        if one.metric is not None:
            lines += [f"  formula  {one.metric.formula}", f"  unit     {one.metric.unit}"]
            lines += [f"  good     {one.metric.good}"]
            lines += [f"  like     {one.metric.like}"] if one.metric.like else []
        lines += [f"  example  {one.example}"] if one.example else []
        lines += [f"  source   {one.source}"]
        print_lines([*lines, *option_lines(one.field.fields if one.field is not None else one.options)])


def _indented(text: str) -> Iterator[str]:
    """The lines of a text, indented; those of code blocks more, without their fences."""
    indent = "  "
    for line in text.splitlines():
        if line.startswith("```"):
            indent = "  " if len(indent) > 2 else "      "
        else:
            yield f"{indent}{line}".rstrip()


def option_lines(fields: Iterable[FieldDescription], indent: str = "  ") -> list[str]:
    """Lines about options: name, type, default and help, and indented below them those of nested keys."""
    lines = []
    for field in fields:
        lines.append(f"{indent}{field.name}: {field.type}; default {field.default}")
        lines += [f"{indent}    {field.help}"] if field.help else []
        lines += option_lines(field.fields, f"{indent}    ")
    return lines
