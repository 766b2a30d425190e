"""Files of checkpoints: complete or absent, damage found, and those that are left."""

from __future__ import annotations

import asyncio
import errno
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from kernelrl_core.errors import KernelRLError, StorageError, UsageError
from kernelrl_core.runs.checkpoints import (
    begin_from,
    checkpoint_damage,
    kept_checkpoints,
    load_checkpoint,
    prune_checkpoints,
    save_checkpoint,
    sweep,
)
from kernelrl_core.runs.directory import RunDir
from kernelrl_testing.fakes import FakePolicy


class FullDisk(FakePolicy):
    async def save(self, directory: Path) -> Mapping[str, Any]:
        (directory / "part").write_text("half")
        raise OSError(errno.ENOSPC, "No space left on device")


def saved(directory: Path, policy: FakePolicy | None = None, name: str = "000001") -> dict[str, Any]:
    """The row of a checkpoint that was saved."""
    row = asyncio.run(save_checkpoint(policy or FakePolicy(), directory, name, component="policy 'fake'"))
    return {"name": name, **row}


def test_a_saved_checkpoint_is_loaded_with_its_weights(tmp_path: Path) -> None:
    row, other = saved(tmp_path, FakePolicy(0.7)), FakePolicy(0.1)
    asyncio.run(load_checkpoint(other, tmp_path, row, component="policy 'fake'"))
    assert other.weight == 0.7


def test_a_full_disk_is_a_storage_error_and_leaves_no_checkpoint(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="No space left on device"):
        saved(tmp_path, FullDisk())
    assert [path.name for path in tmp_path.iterdir() if not path.name.startswith(".")] == []
    sweep(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_damage_is_described_and_a_damaged_checkpoint_is_not_loaded(tmp_path: Path) -> None:
    row = saved(tmp_path)
    (file,) = (tmp_path / "000001").iterdir()
    assert checkpoint_damage(tmp_path, row) == ""
    file.write_text("other")
    assert checkpoint_damage(tmp_path, row) == f"{file.name} differs from the saved file"
    file.unlink()
    assert checkpoint_damage(tmp_path, row) == f"{file.name} is missing"
    with pytest.raises(KernelRLError, match=f"is damaged: {file.name} is missing"):
        asyncio.run(load_checkpoint(FakePolicy(), tmp_path, row, component="policy 'fake'"))
    (tmp_path / "000001").rmdir()
    assert checkpoint_damage(tmp_path, row) == "its files are missing"


def test_files_that_the_system_cannot_read_are_a_damage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    row = saved(tmp_path)

    def broken(path: Path, mode: str = "r") -> Any:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(Path, "open", broken)
    assert checkpoint_damage(tmp_path, row) == "its files cannot be read: Input/output error"


def test_without_a_state_of_the_policy_nothing_is_loaded(tmp_path: Path) -> None:
    policy = FakePolicy(0.3)
    asyncio.run(load_checkpoint(policy, tmp_path, {"name": "000001", "policy": None}, component="policy 'fake'"))
    assert policy.weight == 0.3


def test_a_policy_that_cannot_train_loads_no_checkpoint(tmp_path: Path) -> None:
    row = saved(tmp_path)
    fixed: Any = object()
    with pytest.raises(UsageError, match="policy 'fixed' cannot load checkpoints"):
        asyncio.run(load_checkpoint(fixed, tmp_path, row, component="policy 'fixed'"))


def test_missing_first_weights_are_named(tmp_path: Path) -> None:
    with pytest.raises(KernelRLError, match="the weights that the run began with are missing"):
        asyncio.run(begin_from(FakePolicy(), {}, tmp_path / "origin", component="policy 'fake'"))


def test_the_newest_checkpoints_are_kept(tmp_path: Path) -> None:
    for number in range(1, 5):
        saved(tmp_path, name=f"{number:06d}")
    prune_checkpoints(tmp_path, None)
    assert len(list(tmp_path.iterdir())) == 4
    prune_checkpoints(tmp_path, 2)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["000003", "000004"]


def test_a_checkpoint_that_was_saved_again_after_a_damage_is_the_last_one(tmp_path: Path) -> None:
    run = RunDir.create(tmp_path / "run", {}, {})
    metrics = {"step": 0, "time/total": 1.0, "progress/done_frac": 0.5}
    rows = [
        {"name": name, "step": step, "policy": {}, "loop": {"next_step": step + 1}, "metrics": metrics}
        for step, name in ((0, "000001"), (1, "000002"), (2, "000003"), (0, "000001"))
    ]
    run.journal_path("checkpoints").write_text("".join(json.dumps(row) + "\n" for row in rows))
    for name in ("000001", "000002"):
        (run.checkpoints / name).mkdir()
    assert list(kept_checkpoints(run)) == ["000002", "000001"]
