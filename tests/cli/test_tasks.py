"""`kernelrl tasks`: results on stdout, talk on stderr, errors that say what to write."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kernelrl_core.cli.main import main
from kernelrl_core.plugins.registry import Registry
from kernelrl_core.types import Task, TaskDtypes
from kernelrl_core.types.audits import TaskAudit, audit_conditions
from kernelrl_testing.fakes import FakeEvaluator

TASK = "class Model: ...\ndef get_inputs(): ...\ndef get_init_inputs(): ...\nraise SystemExit('executed')\n"

pytest.importorskip("kernelrl_plugin_kernelbench")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for level, name in ((1, "relu"), (1, "gelu"), (2, "softmax")):
        (tmp_path / f"level{level}").mkdir(exist_ok=True)
        (tmp_path / f"level{level}" / f"{name}.py").write_text(TASK)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as caught:
        main(["tasks", *arguments])
    out, err = capsys.readouterr()
    return int(caught.value.code or 0), out, err


def test_list_takes_a_source_and_its_options(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["list", "--use", "directory", "path=.", "holdout={names: [gelu]}"]
    code, out, err = run(capsys, *arguments, "--json")
    rows = json.loads(out)["tasks"]
    assert code == 0
    assert [(row["id"], row["split"], row["level"]) for row in rows] == [
        ("directory/level1/relu", "train", 1),
        ("directory/level2/softmax", "train", 2),
        ("directory/level1/gelu", "held_out", 1),
    ]
    code, out, err = run(capsys, *arguments, "--level", "1", "--split", "train")
    assert out.splitlines() == ["directory/level1/relu  level 1  train"]
    assert err == "1 tasks\n"


def test_list_and_show_state_the_dtypes_that_the_source_names(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "level2" / "softmax.py").write_text(f"{TASK}x = torch.float16, y.long()\n")
    source = ["--use", "directory", "path=."]
    _, out, _ = run(capsys, "list", *source)
    assert "directory/level2/softmax  level 2  train  float16,int64" in out
    _, out, _ = run(capsys, "list", *source, "--json")
    assert [row["named_dtypes"] for row in json.loads(out)["tasks"]] == [[], [], ["float16", "int64"]]
    _, out, _ = run(capsys, "show", "directory/level2/softmax", *source[:2], "path=.")
    assert "# named_dtypes  float16 int64\n" in out


def test_show_prints_the_reference_of_a_file_and_of_an_id(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "show", "level1/relu.py")
    assert code == 0
    assert out.endswith(TASK)
    code, out, _ = run(capsys, "show", "directory/level2/softmax", "path=.", "--use", "directory", "--json")
    assert json.loads(out)["reference"] == TASK


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["list", "--use", "directry"], 2, "did you mean 'directory'"),
        (["list", "--use", "directory", "paht=."], 2, "did you mean 'path'"),
        (["list", "--use", "directory", "path=nowhere"], 2, "no such directory"),
        (["list", "--use", "directory", "path=.", "--split", "test"], 2, "no split 'test'"),
        (["list", "--use", "directory", "--recipe", "quickstart"], 2, "exclude each other"),
        (["list", "--use", "kernelbench", "root=nowhere"], 3, "fix: git clone https://"),
        (["show", "nowhere.py"], 2, "no such file"),
    ],
)
def test_mistakes_end_with_a_message_and_a_code(
    folder: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], code: int, message: str
) -> None:
    actual, out, err = run(capsys, *arguments)
    assert (actual, out) == (code, "")
    assert message in err
    assert "Traceback" not in err


def test_only_the_tasks_of_a_recipe_are_read(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    recipe = folder / "r.yaml"
    recipe.write_text("tasks: {use: directory, path: level1}\npolicy: {use: nowhere}\ntrain: {sets: 3}\n")
    code, out, err = run(capsys, "list", "-r", str(recipe), "tasks.holdout={names: [gelu]}")
    assert (code, len(out.splitlines())) == (0, 2), err
    code, _, err = run(capsys, "list", "-r", str(recipe), "train.steps=3")
    assert (code, err) == (2, "kernelrl: command line: train: has no effect here; known: tasks\n")


@pytest.mark.parametrize("path", ["audits.jsonl", "new/audits.jsonl"])
def test_an_output_that_cannot_be_written_is_refused_before_the_audit(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    monkeypatch.setattr("os.access", lambda place, mode: False)
    code, out, err = run(capsys, "audit", "level1/relu.py", "--output", path)
    assert (code, out) == (2, "")
    assert err.startswith(f"kernelrl: --output {path}: {folder} cannot be written\n")


class Auditor(FakeEvaluator):
    """Flags `gelu`, and cannot audit `softmax`."""

    def __init__(self) -> None:
        super().__init__()
        self.audited: list[tuple[str, str]] = []

    async def audit(self, task: Task, settings: Any, timeout_s: float) -> TaskAudit:
        self.audited.append((task.id.rpartition("/")[2], settings.precision))
        flags = {"identity_pass": "error 0.001"} if "gelu" in task.id else {}
        failed = "hangs" if "softmax" in task.id else None
        mended = "signed" if flags else None
        dtypes = TaskDtypes(("float16",), (), ("float32",))
        return TaskAudit(task.id, task.sha256, audit_conditions(settings), flags, mended, failed, dtypes=dtypes)


@pytest.fixture
def auditor(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Auditor:
    for path in folder.glob("*/*.py"):
        path.write_text(f"{TASK}# {path.stem}\n")
    made, real = Auditor(), Registry.make
    make: Callable[..., Any] = lambda self, kind, use: made if kind == "evaluators" else real(self, kind, use)
    monkeypatch.setattr(Registry, "make", make)
    return made


def test_an_audit_lists_flagged_and_unaudited_tasks_and_counts_the_rest(
    auditor: Auditor, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = run(capsys, "audit", "--use", "directory", "path=.")
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
    auditor: Auditor, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["audit", "--use", "directory", "path=.", "--output", "audits.jsonl", "--jobs", "1", "--json"]
    first = json.loads(run(capsys, *command)[1])
    assert [name for name, _ in auditor.audited] == ["gelu", "relu", "softmax"]
    assert first["tasks"][0]["dtypes"] == {"inputs": ["float16"], "parameters": [], "outputs": ["float32"]}
    assert (first["counts"], first["unaudited"]) == ({"identity_pass": 1}, ["directory/level2/softmax"])
    assert json.loads(run(capsys, *command)[1]) == first
    assert [name for name, _ in auditor.audited[3:]] == ["softmax"]


def test_an_audit_takes_level_split_and_precision(auditor: Auditor, capsys: pytest.CaptureFixture[str]) -> None:
    choice = ["--level", "1", "--split", "train", "--precision", "bf16"]
    run(capsys, "audit", "--use", "directory", "path=.", "holdout={names: [gelu]}", *choice)
    assert auditor.audited == [("relu", "bf16")]


def test_a_disk_error_ends_an_audit_with_one_message(
    auditor: Auditor, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(path: Path, audit: TaskAudit) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("kernelrl_core.environment.task_audit.append_audit", full)
    code, out, err = run(capsys, "audit", "level1/relu.py", "--output", "audits.jsonl")
    assert (code, out) == (1, "")
    assert err.startswith("kernelrl: audits.jsonl: No space left on device\n")
