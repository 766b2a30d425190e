"""Every fix and every alarm leads to an entry of explanations/problems.toml, which quotes messages that exist."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import attrs
import pytest

from kernelrl_core.errors import InfrastructureError, KernelRLError, SamplingError, UsageError
from kernelrl_core.monitoring import alarms
from kernelrl_core.plugins.registry import Registry
from kernelrl_core.recipe.explain import explain
from kernelrl_core.recipe.explanations import problems

ROOT = Path(__file__).parents[1]
ENTRIES = problems()
SOURCES = sorted([*ROOT.glob("kernelrl_core/**/*.py"), *ROOT.glob("plugins/*/src/**/*.py")])
OF_TRAINING = {"illegal-memory-access", "out-of-memory", "terminal-encoding", "uniform-groups", "reward-hacks"}
OF_TRAINING |= {"slow-steps"}
"""Entries that no error leads to: outcomes, metrics, other programs."""


@attrs.frozen
class Place:
    """A call that sets a fix."""

    where: str
    see: str
    message: str
    """Regular expression of the message; empty if it is not in the call."""


def classes(trees: dict[Path, ast.Module]) -> dict[str, tuple[list[str], str]]:
    """Class -> names of its bases, and its attribute `see`."""
    found = {}
    for tree in trees.values():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                see = next(
                    (
                        item.value.value
                        for item in node.body
                        if isinstance(item, ast.Assign) and ast.unparse(item.targets[0]) == "see"
                        if isinstance(item.value, ast.Constant)
                    ),
                    "",
                )
                found[node.name] = ([ast.unparse(base) for base in node.bases], see)
    return found


def entry_of(name: str, known: dict[str, tuple[list[str], str]]) -> str | None:
    """The id of an error class; None for a class that is no error of kernelrl."""
    bases, see = known.get(name, ([], ""))
    return see or next((entry for base in bases if (entry := entry_of(base, known))), None)


def regex(node: ast.expr) -> str:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return re.escape(node.value)
    if isinstance(node, ast.JoinedStr):
        return "".join(re.escape(part.value) if isinstance(part, ast.Constant) else ".*" for part in node.values)
    if isinstance(node, ast.BinOp):
        return regex(node.left) + regex(node.right)
    return ".*"


def places() -> Iterator[Place]:
    trees = {path: ast.parse(path.read_text(encoding="utf-8")) for path in SOURCES}
    known = classes(trees)
    for path, tree in trees.items():
        for node in ast.walk(tree):
            if not isinstance(node, ast.Call):
                continue
            given = {word.arg: word.value for word in node.keywords}
            default = entry_of(ast.unparse(node.func), known)
            if "fix" not in given or (default is None and "see" not in given):
                continue
            see = given.get("see")
            where = f"{path.relative_to(ROOT)}:{node.lineno}"
            if see is None or isinstance(see, ast.Constant):
                yield Place(where, see.value if see is not None else default, regex(node.args[0]) if node.args else "")
            else:
                assert "see" in ast.unparse(see), f"{where}: see must be an id, or the id of another error"


@pytest.fixture(scope="module")
def found() -> list[Place]:
    return list(places())


def test_every_fix_leads_to_an_entry(found: list[Place]) -> None:
    assert len(found) > 200
    assert [f"{place.where}: no entry {place.see!r}" for place in found if place.see not in ENTRIES] == []


def test_a_fix_that_another_error_passes_on_keeps_its_entry() -> None:
    passed_on = re.compile(r"fix=error\.fix\)")
    assert [path.name for path in SOURCES if passed_on.search(path.read_text(encoding="utf-8"))] == []


def test_every_entry_is_led_to(found: list[Place]) -> None:
    used = {place.see for place in found} | {"internal-error"} | OF_TRAINING
    assert {name for name in ENTRIES if not name.startswith("alarm-")} - used == set()


def test_every_alarm_leads_to_an_entry_that_quotes_it() -> None:
    """Nine quiet steps, then one in which every watched metric leaves its range."""
    quiet = dict.fromkeys([*alarms._CLIMBING, "finding/result_cache"], 0.0) | dict.fromkeys(alarms._LEVELS, 1.0)
    watching = alarms.Alarms()
    lines = [line for row in [*[quiet] * 9, dict.fromkeys(quiet, 90.0)] for line in watching.after(row)]
    assert len(lines) == len(quiet)
    ids = {line.rpartition("kernelrl explain ")[2]: line.partition(": ")[2].partition(":")[0] for line in lines}
    assert ids.keys() == {name for name in ENTRIES if name.startswith("alarm-")}
    assert [
        name
        for name, text in ids.items()
        if not any(line.startswith(f"alarm: {text}") for line in ENTRIES[name].messages)
    ] == []


@pytest.mark.parametrize("name", ENTRIES)
def test_an_entry_quotes_messages_that_are_printed_and_has_cause_and_fix(name: str, found: list[Place]) -> None:
    quoted = ENTRIES[name].messages
    assert quoted
    assert ENTRIES[name].cause
    assert ENTRIES[name].fix
    # A message such as `{path}: {reason}` fits any line. Only those of files consist of nothing else.
    least = 2 if name in ("storage", "run-files") else 5
    messages = [place.message for place in found if place.see == name and len(place.message.replace(".*", "")) > least]
    if messages:
        assert [line for line in quoted if not any(re.search(message, line) for message in messages)] == []


def test_the_ids_are_in_one_spelling_and_linked_entries_exist() -> None:
    assert [name for name in ENTRIES if not re.fullmatch(r"[a-z]+(-[a-z]+)*", name)] == []
    text = "".join(one.text for one in ENTRIES.values())
    assert set(re.findall(r"\]\(#([\w-]+)\)", text)) <= ENTRIES.keys()


def test_explain_prints_an_entry() -> None:
    only, *others = explain("run-in-use", Registry(()))
    assert (only.what, only.source, others) == ("problem", "docs/troubleshooting.md#run-in-use", [])
    assert only.text.startswith("```text\nrun runs/first is in use by another process\n```\n\nCause: ")


def test_an_error_has_the_entry_of_its_class_or_its_own() -> None:
    assert (UsageError("a").see, UsageError("a", see="recipe").see) == ("arguments", "recipe")
    assert SamplingError.at_boundary(InfrastructureError("a", see="modal")).see == "modal"
    copy = KernelRLError("a", fix="b", see="budget").__reduce__()
    assert copy[0](*copy[1]).see == "budget"
