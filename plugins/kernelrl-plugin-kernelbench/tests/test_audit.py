"""Audits apply to the tasks of every source, by content hash."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernelrl_core.api.errors import UsageError
from kernelrl_core.api.evaluators import sha256_text
from kernelrl_core.api.tasks import TaskAudit, append_audit, read_audits
from kernelrl_plugin_kernelbench import benchmark
from kernelrl_plugin_kernelbench.benchmark import KernelBenchTasks
from kernelrl_plugin_kernelbench.config import DatasetConfig, DirectoryConfig, KernelBenchConfig
from kernelrl_plugin_kernelbench.dataset import DatasetTasks
from kernelrl_plugin_kernelbench.directory import DirectoryTasks

TASK = "class Model: ...\ndef get_inputs(): ...\ndef get_init_inputs(): ...\n"


@pytest.fixture
def audit(tmp_path: Path) -> Path:
    file = tmp_path / "audits.jsonl"
    append_audit(file, TaskAudit("elsewhere", sha256_text(TASK), {}, {"identity_pass": "0"}, mended_by="signed"))
    return file


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    found = tmp_path / "bench" / "level1"
    found.mkdir(parents=True)
    (found / "1_a.py").write_text(TASK)
    (found / "2_b.py").write_text(TASK + "# other\n")
    return found.parent


def test_each_source_sets_the_flags_and_overlays_of_the_audit(audit: Path, folder: Path, tmp_path: Path) -> None:
    rows = tmp_path / "rows.jsonl"
    rows.write_text('{"code": ' + f'"{TASK}"'.replace("\n", "\\n") + "}\n")
    sources = [
        KernelBenchTasks(KernelBenchConfig(root=folder, holdout="none", audit=audit)),
        DirectoryTasks(DirectoryConfig(folder, audit=audit)),
        DatasetTasks(DatasetConfig(rows, audit=audit)),
    ]
    for source in sources:
        task = source.tasks("train")[0]
        assert task.flags == ("identity_pass",)
        assert task.input_overlay == "signed"
    assert sources[0].tasks("train")[1].flags == ()


def test_a_missing_audit_file_is_an_error(folder: Path) -> None:
    with pytest.raises(UsageError, match=r"nowhere\.jsonl"):
        DirectoryTasks(DirectoryConfig(folder, audit=folder / "nowhere.jsonl")).tasks("train")


def test_the_bundled_audit_is_readable() -> None:
    audits = read_audits(benchmark._AUDIT)
    assert all(audit.task_id.startswith("kernelbench/") for audit in audits)
