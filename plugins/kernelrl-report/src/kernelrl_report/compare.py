"""The document and the lines of `kernelrl runs compare`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import attrs

from kernelrl_core.api.commands import difference_table, table
from kernelrl_core.api.results import Result, common_tasks, differences, paired_differences, shared_tasks, task_values
from kernelrl_core.api.runs import summary

__all__ = ["comparison", "comparison_lines"]

_OF_RUNS = {
    "state": "state",
    "steps": "steps",
    "last_correct_rate": "train correct, last steps",
    "last_reward": "train reward, last steps",
    "best_speedup": "best speedup in training",
    "seconds_all": "seconds",
    "usd": "USD",
}
"""Fact of a run -> its label."""


def comparison(results: Sequence[Result]) -> dict[str, Any]:
    """The first result compared with each other one, as plain data.

    Raises:
        UsageError: two results have no common task.
    """
    base, *others = results
    return {
        "results": [_facts(result) for result in results],
        "comparisons": [_pair(base, other, number) for number, other in enumerate(others, 1)],
    }


def comparison_lines(document: Mapping[str, Any]) -> list[str]:
    """The same for a terminal."""
    results = document["results"]
    names = [f"({number}) {result['name']}" for number, result in enumerate(results, 1)]
    keys = [key for key in results[0] if key != "name" and any(result[key] is not None for result in results)]
    head = ["", *(f"({number})" for number in range(1, len(results) + 1))]
    facts = [[_OF_RUNS.get(key, key.replace("_", " ")), *(_shown(result[key]) for result in results)] for key in keys]
    lines = [*names, "", *table([head, *facts])]
    for pair in document["comparisons"]:
        changed = f"({pair['changed'] + 1})"
        lines += ["", f"{changed} compared with (1): {_tasks_text(pair)}"]
        lines += difference_table({changed: pair["differences"]}, "(1)")
        lines.append(_recipes_text(pair["recipe"]))
        lines += [f"  {change}" for change in pair["recipe"] or ()]
    return [*lines, "", "intervals are over tasks; they do not cover the variation between training runs"]


def _facts(result: Result) -> dict[str, Any]:
    """Size and cost of a result, and facts about its run; None for a fact that is not known."""
    turns = [turn for group in result.groups for turn in group.turns]
    facts = summary(result.run) if result.run is not None else {}
    if result.steps is not None and result.steps != facts.get("steps"):
        # The other facts are those of the whole run.
        facts = {"steps": result.steps}
    return {
        "name": result.name,
        "tasks": len(result.groups),
        "episodes": sum(len(group.episodes) for group in result.groups),
        "reply_tokens": sum(len(turn.reply.tokens) for turn in turns),
        **{key: facts.get(key) for key in _OF_RUNS},
    }


def _pair(base: Result, changed: Result, number: int) -> dict[str, Any]:
    common = common_tasks(base, changed)
    values = [task_values(result.restricted(common).groups) for result in (base, changed)]
    compared = len(shared_tasks(values))
    known = base.recipe is not None and changed.recipe is not None
    return {
        "changed": number,
        "tasks": compared,
        "tasks_lost": len(common) - compared,
        "tasks_only_in_one": len(base.hashes.keys() ^ changed.hashes.keys()),
        "tasks_of_other_content": len(base.hashes.keys() & changed.hashes.keys()) - len(common),
        "differences": [attrs.asdict(row) for row in paired_differences(values[:1], values[1:])],
        "recipe": differences(base.recipe or {}, changed.recipe or {}) if known else None,
    }


def _tasks_text(pair: Mapping[str, Any]) -> str:
    excluded = {
        "lost to infrastructure errors": pair["tasks_lost"],
        "in one of them only": pair["tasks_only_in_one"],
        "with other contents": pair["tasks_of_other_content"],
    }
    parts = [f"{count} {why}" for why, count in excluded.items() if count]
    text = f"{pair['tasks']} common tasks"
    return f"{text}; excluded: {', '.join(parts)}" if parts else text


def _recipes_text(changes: Sequence[str] | None) -> str:
    if changes is None:
        return "the recipes are not compared: a file has none"
    return "the recipes differ in:" if changes else "the recipes are equal"


def _shown(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.3f}"
    return "–" if value is None else str(value)
