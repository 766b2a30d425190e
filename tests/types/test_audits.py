"""Audits of tasks: incomplete files are readable, audits are not repeated, training excludes flagged tasks."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelrl_core.api.evaluators import Evaluator
from kernelrl_core.cli.tasks_audit import _document, _lines
from kernelrl_core.environment.environment import Environment
from kernelrl_core.environment.task_audit import AuditOptions, run_audits
from kernelrl_core.errors import UsageError
from kernelrl_core.planning.load import recipe_from_mapping
from kernelrl_core.plugins.registry import registry
from kernelrl_core.recipe.schema import TrainSettings
from kernelrl_core.tasks.selection import training_tasks
from kernelrl_core.types import Evaluation, EvaluationRequest, EvaluationSettings, Task
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
from kernelrl_testing.waiting import takes_async

SETTINGS = EvaluationSettings()
TASKS = [Task(f"t/{name}", f"source of {name}") for name in ("a", "b", "c")]


def audit_of(task: Task, settings: EvaluationSettings = SETTINGS, **found: Any) -> TaskAudit:
    return TaskAudit(task.id, task.sha256, audit_conditions(settings), **found)


class Auditor(Evaluator):
    """Replaces an evaluator; records its calls."""

    use = "auditor"
    capacity = 1

    def __init__(
        self, unaudited: str | None = None, stop_at: str | None = None, equal: Mapping[str, tuple[str, ...]] = {}
    ) -> None:
        self.audited: list[str] = []
        self.n_comparisons = 0
        self._unaudited, self._stop_at, self._equal = unaudited, stop_at, equal

    async def evaluate(self, request: EvaluationRequest) -> Evaluation:
        raise AssertionError("an audit evaluates no candidate")

    async def audit(self, task: Task, settings: EvaluationSettings, timeout_s: float) -> TaskAudit:
        self.audited.append(task.id)
        if task.id == self._stop_at:
            await takes_async(60)
        return audit_of(task, settings, unaudited="too slow" if task.id == self._unaudited else None)

    async def equal_tasks(self, tasks: Sequence[Task]) -> Mapping[str, tuple[str, ...]]:
        self.n_comparisons += 1
        return self._equal


def run(auditor: Auditor, file: Path, settings: EvaluationSettings = SETTINGS) -> list[TaskAudit]:
    async def limited() -> list[TaskAudit]:
        # Like Ctrl-C: the audit is cancelled at any point.
        options = AuditOptions(output=file, timeout_s=5.0)
        auditing = run_audits(TASKS, settings, auditor, options, lambda number, audit: None)
        return await asyncio.wait_for(auditing, 0.5)

    return asyncio.run(limited())


def test_an_interrupted_audit_is_continued(tmp_path: Path) -> None:
    file = tmp_path / "audits.jsonl"
    with pytest.raises(TimeoutError):
        run(Auditor(stop_at="t/c"), file)
    assert [audit.task_id for audit in read_audits(file)] == ["t/a", "t/b"]
    again = Auditor()
    assert [audit.task_id for audit in run(again, file)] == ["t/a", "t/b", "t/c"]
    assert again.audited == ["t/c"]


def test_other_settings_need_another_audit(tmp_path: Path) -> None:
    file = tmp_path / "audits.jsonl"
    run(Auditor(), file)
    again = Auditor()
    run(again, file, EvaluationSettings(precision="bf16"))
    assert again.audited == ["t/a", "t/b", "t/c"]


def test_an_unaudited_task_is_listed_and_audited_again(tmp_path: Path) -> None:
    file = tmp_path / "audits.jsonl"
    audits = run(Auditor(unaudited="t/b"), file)
    assert _document(audits)["unaudited"] == ["t/b"]
    assert "t/b  unaudited: too slow" in _lines(audits)
    assert _lines(audits)[-1] == "3 tasks: 2 clean, 0 flagged (0 fixed by input overlay), 1 unaudited"
    again = Auditor()
    run(again, file)
    assert again.audited == ["t/b"]


def test_tasks_that_compute_the_same_are_found_once_and_annotated(tmp_path: Path) -> None:
    file = tmp_path / "audits.jsonl"
    first, second, third = (task.sha256 for task in TASKS)
    equal = {first: (second,), second: (first,), third: ()}
    audits = run(Auditor(equal=equal), file)
    assert "t/a  computes the same as t/b" in _lines(audits)
    again = Auditor()
    assert run(again, file) == audits
    assert again.n_comparisons == 0
    by_hash = {audit.sha256: audit for audit in read_audits(file)}
    assert [annotate(task, by_hash).equals for task in TASKS] == [(second,), (first,), ()]


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
