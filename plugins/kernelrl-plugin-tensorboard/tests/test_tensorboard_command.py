"""`kernelrl tensorboard`: the real server on a run, and one line for each mistake."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("tensorboard")

from kernelrl_plugin_tensorboard import command as module
from kernelrl_plugin_tensorboard.config import TensorboardConfig
from kernelrl_plugin_tensorboard.logger import TensorboardLogger
from kernelrl_testing.core import main
from kernelrl_testing.waiting import wait_until


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A run directory with one step in its event file; the current directory is the one above `runs`."""
    monkeypatch.chdir(tmp_path)
    directory = tmp_path / "runs/mine"
    directory.mkdir(parents=True)
    (directory / "recipe.yaml").write_text("seed: 0\n")
    logger = TensorboardLogger(TensorboardConfig())
    logger.start(directory, {}, 0)
    logger.step({"step": 0, "reward/mean": 0.5})
    logger.finish("finished")
    return directory


@pytest.fixture
def port() -> int:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        return int(server.getsockname()[1])


def fails(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, list[str]]:
    with pytest.raises(SystemExit) as stop:
        main(["tensorboard", *arguments])
    return int(stop.value.code or 0), capsys.readouterr().err.splitlines()


def served(port: int, page: str) -> Any:
    def found() -> Any:
        try:
            with urllib.request.urlopen(f"http://localhost:{port}/{page}") as reply:
                return json.load(reply)
        except urllib.error.URLError:
            return None

    return wait_until(found)


@pytest.mark.parametrize(("chosen", "name"), [(["mine"], "."), (["--all"], "mine/tensorboard")])
def test_the_server_shows_the_run(run: Path, port: int, chosen: list[str], name: str) -> None:
    command = [sys.executable, "-m", "kernelrl_core.cli.main", "tensorboard", *chosen, "--port", str(port)]
    code = "import sys; from kernelrl_core.cli.main import main; main(sys.argv[1:])"
    command = [sys.executable, "-c", code, "tensorboard", *chosen, "--port", str(port)]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        tags = served(port, "data/plugin/scalars/tags")
    finally:
        server.terminate()
        server.wait()
    assert list(tags) == [name]
    assert "Reward/Mean" in tags[name]


def test_a_port_in_use_is_one_line(run: Path, port: int, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as server:
        server.bind(("127.0.0.1", port))
        server.listen()
        code, lines = fails(capsys, "mine", "--port", str(port), "--host", "127.0.0.1")
    assert code == 2
    assert lines[0] == f"kernelrl: port {port} is in use"
    assert lines[1] == f"kernelrl: fix: --port {port + 1}, or another free port"


def test_a_missing_tensorboard_is_one_line(
    run: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "find_spec", lambda name: None)
    assert fails(capsys, "mine") == (
        3,
        [
            "kernelrl: TensorBoard is not installed",
            "kernelrl: fix: pip install tensorboard",
            "kernelrl: more: kernelrl explain tensorboard",
        ],
    )


@pytest.mark.parametrize(
    ("state", "then"),
    [
        ("finished", "kernelrl eval runs/mine --log-to runs/mine"),
        ("stopped", "kernelrl resume runs/mine --accept-changes"),
    ],
)
def test_a_run_without_event_files_names_the_edit_and_the_command(
    run: Path, capsys: pytest.CaptureFixture[str], state: str, then: str
) -> None:
    for path in (run / "tensorboard").iterdir():
        path.unlink()
    (run / "state.json").write_text(json.dumps({"state": state}))
    edit = "write loggers: {tensorboard: {use: tensorboard}} into runs/mine/recipe.yaml"
    assert fails(capsys, "mine") == (
        2,
        [
            "kernelrl: no event files in runs/mine/tensorboard",
            f"kernelrl: fix: {edit}, then {then}",
            "kernelrl: more: kernelrl explain tensorboard",
        ],
    )


def test_the_option_for_a_new_run_is_quoted_for_the_shell(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for path in (run / "tensorboard").iterdir():
        path.unlink()
    fix = "kernelrl: fix: kernelrl run RECIPE 'loggers.tensorboard={use: tensorboard}'"
    assert fails(capsys, "--all")[1][:2] == ["kernelrl: no event files in runs", fix]


def test_an_unknown_run_names_the_nearest(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, lines = fails(capsys, "mime")
    assert code == 2
    assert "mine" in lines[0]


def test_a_run_or_all_runs(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert fails(capsys)[1][0] == fails(capsys, "mine", "--all")[1][0] == "kernelrl: name either a run or --all"
