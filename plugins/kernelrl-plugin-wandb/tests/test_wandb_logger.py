"""Logger `wandb` in offline mode, with the real package; the requirement of a key."""

from __future__ import annotations

from pathlib import Path

import attrs
import pytest

pytest.importorskip("wandb")

import wandb

from kernelrl_plugin_wandb.config import WandbConfig
from kernelrl_plugin_wandb.local_data import last_value, logged
from kernelrl_plugin_wandb.logger import WandbLogger
from kernelrl_testing.contracts import LoggerContract

OFFLINE = WandbConfig(project="mine", mode="offline")


class TestWandb(LoggerContract):
    component = "wandb"
    options = {"project": "mine", "mode": "offline"}  # noqa: RUF012


def data_files(run: Path) -> list[Path]:
    return sorted(run.glob("wandb/*run-*/*.wandb"))


def log(run: Path, *steps: int) -> int:
    logger = WandbLogger(OFFLINE)
    held = logger.start(run, {"train": {"steps": 3}}, 0)
    logger.evaluation({"step": 0, "eval/pass@1": 0.25})
    for step in steps:
        logger.step({"step": step, "reward/mean": 0.5, "train/kl": None})
    logger.finish("finished")
    wandb.teardown()  # W&B writes the rest of its file when the process ends
    return held


def test_metrics_keep_their_names(tmp_path: Path) -> None:
    log(tmp_path, 0, 1)
    (path,) = data_files(tmp_path)
    rows = [row for row in logged(path) if "reward/mean" in row]
    assert [(row["step"], row["reward/mean"]) for row in rows] == [(0, 0.5), (1, 0.5)]
    assert "train/kl" not in rows[0]


def test_an_evaluation_has_its_own_axis_and_counts_as_no_step(tmp_path: Path) -> None:
    assert log(tmp_path) == -1
    (path,) = data_files(tmp_path)
    (row,) = logged(path)
    assert (row["eval/step"], row["eval/pass@1"]) == (0, 0.25)
    assert log(tmp_path) == -1


def test_a_resumed_run_has_the_id_of_the_first_process(tmp_path: Path) -> None:
    log(tmp_path, 0)
    assert log(tmp_path, 1) == 0
    assert len({path.name for path in data_files(tmp_path)}) == 1


def test_the_end_of_a_damaged_file_is_ignored(tmp_path: Path) -> None:
    log(tmp_path, *range(300))
    (path,) = data_files(tmp_path)
    data = path.read_bytes()
    assert last_value(tmp_path / "wandb", "progress/batch") == 299
    path.write_bytes(data[: len(data) // 2])
    assert 100 < last_value(tmp_path / "wandb", "progress/batch") < 200


@pytest.fixture
def no_login(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("WANDB_API_KEY", raising=False)
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    return tmp_path / "netrc"


def test_online_needs_a_key(no_login: Path) -> None:
    found = WandbConfig(project="mine").requires()
    assert found.environment == ("WANDB_API_KEY",)
    assert "mode: offline" in found.fix
    assert OFFLINE.requires().environment == ()


def test_a_stored_login_is_a_key(no_login: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    no_login.write_text("machine api.wandb.ai login user password secret\n")
    assert WandbConfig(project="mine").requires().environment == ()
    monkeypatch.setenv("WANDB_BASE_URL", "https://wandb.example.org")
    assert WandbConfig(project="mine").requires().environment == ("WANDB_API_KEY",)


def test_the_project_is_required() -> None:
    assert list(attrs.evolve(OFFLINE, project="").problems()) == ["project: name the project on W&B"]
