"""`kernelrl modal`, and commands whose recipe has evaluator `modal`, without a server."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import pytest
from modal_standin import Function, evaluator_on, run_virtually, served

from kernelrl_plugin_modal.config import ModalConfig
from kernelrl_testing.core import main_module

Call = Callable[..., tuple[int, str, str]]
RECIPE = Path(__file__).parents[3] / "recipes" / "smoke.yaml"


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Call:
    """Runs the command line without a token: exit code, stdout, stderr."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MODAL_TOKEN_ID", raising=False)
    monkeypatch.setenv("MODAL_CONFIG_PATH", str(tmp_path / "modal.toml"))

    def run(*arguments: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as stop:
            main_module.main(list(arguments))
        out, err = capsys.readouterr()
        assert isinstance(stop.value.code, int)
        return stop.value.code, out, err

    return run


@pytest.mark.parametrize(
    "words",
    [
        ("modal", "deploy"),
        ("modal", "status"),
        ("modal", "logs"),
        ("modal", "down"),
        ("run", str(RECIPE), "--name", "one", "evaluator.use=modal"),
    ],
    ids=lambda words: " ".join(words[:2]),
)
def test_without_a_token_a_command_ends_with_3_and_the_fix(call: Call, words: tuple[str, ...]) -> None:
    code, _, err = call(*words)
    assert code == 3
    assert "missing: a Modal token" in err
    assert "fix: modal token new, or set MODAL_TOKEN_ID and MODAL_TOKEN_SECRET" in err
    assert not os.path.exists("runs/one/samples.jsonl")


def test_a_stored_token_is_found(call: Call, tmp_path: Path) -> None:
    assert ModalConfig().requires().absent
    (tmp_path / "modal.toml").write_text('[me]\ntoken_id = "ak-1"\ntoken_secret = "as-1"\n')
    assert not ModalConfig().requires().absent


def test_an_unknown_gpu_type_ends_with_3_and_the_nearest_name(call: Call) -> None:
    code, _, err = call("modal", "deploy", "gpu=H10")
    assert code == 3
    assert "missing: GPU type 'H10' on Modal; did you mean 'H100'?" in err


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ("max_container=3", "unknown key 'max_container'; did you mean 'max_containers'?"),
        ("max_containers=0", "expected an integer of at least 1, got 0"),
        ("scaledown_window_s=1", "scaledown_window_s must be from 2 to 3600"),
        ("min_containers=33", r"min_containers (33) is above max_containers (32)"),
        ("app=-x", "app must be at most 41 letters"),
        ("kevin_modal", "is not KEY=VALUE; a recipe is given with --recipe"),
    ],
)
def test_wrong_options_end_with_2(call: Call, option: str, message: str) -> None:
    code, _, err = call("modal", "deploy", option)
    assert code == 2
    assert message in err


def test_a_recipe_with_another_evaluator_is_refused(call: Call) -> None:
    code, _, err = call("modal", "deploy", "--recipe", str(RECIPE))
    assert code == 2
    assert "has evaluator local" in err


def test_a_dry_run_lists_the_missing_token_and_contacts_no_server(call: Call) -> None:
    code, out, _ = call("run", str(RECIPE), "--dry-run", "evaluator.use=modal")
    assert code == 0
    assert "missing: a Modal token; fix: modal token new" in out
    assert call("validate", str(RECIPE), "evaluator.use=modal")[0] == 0


def test_an_ephemeral_app_ends_with_the_evaluator(monkeypatch: pytest.MonkeyPatch) -> None:
    events: list[str] = []

    class App:
        @asynccontextmanager
        async def run(self) -> Any:
            events.append("started")
            yield self
            events.append("ended")

    @contextmanager
    def make_app(config: ModalConfig) -> Iterator[Any]:
        function = Function(1, served)
        yield App(), (function, function)
        events.append("wheels removed")

    async def work() -> None:
        evaluator = evaluator_on(None, mode="ephemeral")
        await evaluator.start()
        await evaluator.start()
        assert events == ["started"]
        await evaluator.aclose()

    monkeypatch.setattr("kernelrl_plugin_modal.app.make_app", make_app)
    run_virtually(work())
    assert events == ["started", "ended", "wheels removed"]
