"""Audits of tasks: incomplete files are readable, training excludes flagged tasks."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelrl_core.environment.environment import Environment
from kernelrl_core.errors import UsageError
from kernelrl_core.planning.load import recipe_from_mapping
from kernelrl_core.plugins.registry import registry
from kernelrl_core.recipe.schema import TrainSettings
from kernelrl_core.tasks.selection import training_tasks
from kernelrl_core.types import EvaluationSettings, Task
from kernelrl_core.types import serialization as codec
from kernelrl_core.types.audits import (
    FLAGS,
    TaskAudit,
    annotate,
    append_audit,
    audit_conditions,
    quarantine_reasons,
    read_audits,
)
from kernelrl_testing.fakes import FakeTasks

SETTINGS = EvaluationSettings()
TASKS = [Task(f"t/{name}", f"source of {name}") for name in ("a", "b", "c")]


def audit_of(task: Task, settings: EvaluationSettings = SETTINGS, **found: Any) -> TaskAudit:
    return TaskAudit(task.id, task.sha256, audit_conditions(settings), **found)


@given(st.integers(min_value=0, max_value=400))
def test_a_file_cut_anywhere_in_its_last_line_can_be_read_and_continued(
    tmp_path_factory: pytest.TempPathFactory, cut: int
) -> None:
    file = tmp_path_factory.mktemp("audit") / "audits.jsonl"
    for task in TASKS[:2]:
        append_audit(file, audit_of(task, flags={"tiny": "äöü 1 byte"}))
    content = file.read_bytes()
    first = content.index(b"\n") + 1
    file.write_bytes(content[: first + min(cut, len(content) - first - 2)])
    append_audit(file, audit_of(TASKS[2]))
    assert [audit.task_id for audit in read_audits(file)] == ["t/a", "t/c"]


def test_an_incomplete_last_line_is_skipped_and_another_bad_line_is_an_error(tmp_path: Path) -> None:
    file = tmp_path / "audits.jsonl"
    line = codec.dumps(audit_of(TASKS[0]))
    file.write_text(line + "\n" + line[:30])
    assert len(read_audits(file)) == 1
    file.write_text(line[:30] + "\n" + line + "\n")
    with pytest.raises(UsageError, match=r"audits\.jsonl:1: not an audit"):
        read_audits(file)


def test_training_excludes_flagged_tasks_and_reports_them() -> None:
    flagged = attrs.evolve(TASKS[0], flags=("zeros_pass", "tiny"))
    tasks, line = training_tasks(FakeTasks([flagged, *TASKS[1:]]), TrainSettings())
    assert tasks == TASKS[1:]
    assert line == "1 of 3 tasks are in quarantine (zeros_pass 1); train.quarantine=false includes them"
    tasks, line = training_tasks(FakeTasks([flagged, *TASKS[1:]]), TrainSettings(quarantine=False))
    assert len(tasks) == 3
    assert line is None
    with pytest.raises(UsageError, match="1 of 1 tasks are in quarantine"):
        training_tasks(FakeTasks([flagged]), TrainSettings())


@pytest.mark.parametrize(
    ("found", "reasons"),
    [
        ({"flags": {"tiny": ""}}, ()),
        ({"flags": {"zeros_pass": "", "tiny": ""}}, ("zeros_pass",)),
        ({"flags": {"zeros_pass": ""}, "mended_by": "signed"}, ()),
        ({"flags": {"zeros_pass": "", "nondeterministic": ""}, "mended_by": "signed"}, ("nondeterministic",)),
        ({"unaudited": "too slow"}, ()),
    ],
)
def test_a_task_that_an_overlay_fixes_is_not_quarantined(found: dict[str, Any], reasons: tuple[str, ...]) -> None:
    audit = audit_of(TASKS[0], **found)
    task = annotate(TASKS[0], {audit.sha256: audit})
    assert quarantine_reasons(task) == reasons
    assert task.input_overlay == found.get("mended_by")


def test_an_audit_belongs_to_the_content_of_a_task() -> None:
    audit = audit_of(TASKS[0], flags={"zeros_pass": ""})
    assert annotate(attrs.evolve(TASKS[0], reference="changed"), {audit.sha256: audit}).flags == ()


def test_flags_are_documented() -> None:
    text = (Path(__file__).parents[2] / "docs" / "tasks.md").read_text()
    for name, flag in FLAGS.items():
        assert f"| `{name}` | {flag.meaning} |" in text


@pytest.mark.parametrize(
    ("profile", "recipes", "used"),
    [
        ("strict", "none", "signed"),
        ("strict", "mixed", "mixed"),
        ("kernelbench", "none", "none"),
    ],
)
def test_a_task_with_an_overlay_is_evaluated_with_it(profile: str, recipes: str, used: str) -> None:
    blocks = {
        "tasks": {"use": "starter"},
        "backend": {"use": "triton"},
        "policy": {"use": "torch"},
        "rewards": {"correct": {"use": "correctness"}},
        "evaluation": {"profile": profile, "input_overlay": recipes},
    }
    recipe = recipe_from_mapping(blocks, registry=registry(), name="test").recipe
    environment = Environment.from_recipe(recipe, registry=registry(), secret=b"s", cache_dir=None)
    task = attrs.evolve(TASKS[0], input_overlay="signed")
    asyncio.run(environment.aclose())
    assert environment.evaluator.spec.settings.for_task(task).input_overlay == used
