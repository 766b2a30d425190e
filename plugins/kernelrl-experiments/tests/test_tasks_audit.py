"""`kernelrl tasks audit`: results are kept and not repeated; errors end it with one message."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from kernelrl_core.cli.main import main
from kernelrl_core.interfaces.evaluators import Evaluator
from kernelrl_core.plugins.registry import Registry
from kernelrl_core.types import Evaluation, EvaluationRequest, EvaluationSettings, Task, TaskDtypes
from kernelrl_core.types.audits import TaskAudit, annotate, audit_conditions, read_audits
from kernelrl_experiments.audit_command import _document, _lines
from kernelrl_experiments.task_audit import AuditOptions, run_audits
from kernelrl_testing.fakes import FakeEvaluator
from kernelrl_testing.waiting import takes_async

SOURCE = "class Model: ...\ndef get_inputs(): ...\ndef get_init_inputs(): ...\nraise SystemExit('executed')\n"
SETTINGS = EvaluationSettings()
TASKS = [Task(f"t/{name}", f"source of {name}") for name in ("a", "b", "c")]


def audit_of(task: Task, settings: EvaluationSettings = SETTINGS, unaudited: str | None = None) -> TaskAudit:
    return TaskAudit(task.id, task.sha256, audit_conditions(settings), unaudited=unaudited)


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


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("level1/relu", "level1/gelu", "level2/softmax"):
        path = tmp_path / f"{name}.py"
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"{SOURCE}# {name}\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def audit(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as caught:
        main(["tasks", "audit", *arguments])
    out, err = capsys.readouterr()
    return int(caught.value.code or 0), out, err


@pytest.mark.parametrize("path", ["audits.jsonl", "new/audits.jsonl"])
def test_an_output_that_cannot_be_written_is_refused_before_the_audit(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    monkeypatch.setattr("os.access", lambda place, mode: False)
    code, out, err = audit(capsys, "level1/relu.py", "--output", path)
    assert (code, out) == (2, "")
    assert err.startswith(f"kernelrl: --output {path}: {folder} cannot be written\n")


class Flagger(FakeEvaluator):
    """Flags `gelu`, and cannot audit `softmax`."""

    def __init__(self) -> None:
        super().__init__()
        self.audited: list[tuple[str, str]] = []

    async def audit(self, task: Task, settings: Any, timeout_s: float) -> TaskAudit:
        self.audited.append((task.id.rpartition("/")[2], settings.precision))
        flags = {"identity_pass": "error 0.001"} if "gelu" in task.id else {}
        failed = "hangs" if "softmax" in task.id else None
        corrected = "signed" if flags else None
        dtypes = TaskDtypes(("float16",), (), ("float32",))
        return TaskAudit(task.id, task.sha256, audit_conditions(settings), flags, corrected, failed, dtypes=dtypes)


@pytest.fixture
def auditor(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Flagger:
    made, real = Flagger(), Registry.make
    make: Callable[..., Any] = lambda self, kind, use: made if kind == "evaluators" else real(self, kind, use)
    monkeypatch.setattr(Registry, "make", make)
    return made


def test_an_audit_lists_flagged_and_unaudited_tasks_and_counts_the_rest(
    auditor: Flagger, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = audit(capsys, "--use", "directory", "path=.")
    lines = out.splitlines()
    assert code == 0
    assert lines[:3] == [
        "directory/level1/gelu  identity_pass  fixed by input overlay signed  (inputs float16; outputs float32)",
        "    identity_pass: error 0.001",
        "directory/level2/softmax  unaudited: hangs",
    ]
    assert lines[-1] == "3 tasks: 1 clean, 1 flagged (1 fixed by input overlay), 1 unaudited"
    assert "1  directory/level1/gelu  identity_pass" in err


def test_an_audit_continues_its_output_and_repeats_only_failed_tasks(
    auditor: Flagger, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["--use", "directory", "path=.", "--output", "audits.jsonl", "--jobs", "1", "--json"]
    first = json.loads(audit(capsys, *command)[1])
    assert [name for name, _ in auditor.audited] == ["gelu", "relu", "softmax"]
    assert first["tasks"][0]["dtypes"] == {"inputs": ["float16"], "parameters": [], "outputs": ["float32"]}
    assert (first["counts"], first["unaudited"]) == ({"identity_pass": 1}, ["directory/level2/softmax"])
    assert json.loads(audit(capsys, *command)[1]) == first
    assert [name for name, _ in auditor.audited[3:]] == ["softmax"]


def test_an_audit_takes_level_split_and_precision(auditor: Flagger, capsys: pytest.CaptureFixture[str]) -> None:
    choice = ["--level", "1", "--split", "train", "--precision", "bf16"]
    audit(capsys, "--use", "directory", "path=.", "holdout={names: [gelu]}", *choice)
    assert auditor.audited == [("relu", "bf16")]


def test_a_disk_error_ends_an_audit_with_one_message(
    auditor: Flagger, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(path: Path, audit: TaskAudit) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("kernelrl_experiments.task_audit.append_audit", full)
    code, out, err = audit(capsys, "level1/relu.py", "--output", "audits.jsonl")
    assert (code, out) == (1, "")
    assert err.startswith("kernelrl: audits.jsonl: No space left on device\n")
