"""Times of several GPU models are refused before a policy starts."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernelrl_core.cli import main as main_module
from kernelrl_plugin_local.evaluator import LocalEvaluator
from kernelrl_plugin_scripted.policy import ScriptedPolicy


class PolicyStarted(Exception):
    pass


@pytest.fixture
def run_smoke(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> object:
    async def start(self: object, context: object) -> None:
        raise PolicyStarted

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(ScriptedPolicy, "start", start)
    monkeypatch.setattr("kernelrl_core.interfaces.requirements.gpu_vendors", lambda: frozenset({"nvidia"}))
    monkeypatch.setattr(LocalEvaluator, "gpu_model", lambda self: "NVIDIA H100 80GB HBM3, NVIDIA H200")

    def run(*overrides: str) -> tuple[int, str]:
        with pytest.raises(SystemExit) as stop:
            main_module.main(["run", "smoke", "--name", "one", *overrides])
        assert isinstance(stop.value.code, int)
        return stop.value.code, capsys.readouterr().err

    return run


def test_times_of_several_gpu_models_are_refused(run_smoke: object) -> None:
    code, err = run_smoke("evaluation.timing=true")  # type: ignore[operator]
    assert code == 2
    assert "has GPUs of several models (NVIDIA H100 80GB HBM3, NVIDIA H200)" in err
    assert "fix: use one GPU model for times" in err


def test_several_gpu_models_are_accepted_without_times(run_smoke: object) -> None:
    _, err = run_smoke("evaluation.timing=false")  # type: ignore[operator]
    assert "several models" not in err


def test_members_of_a_route_with_different_gpus_are_refused_where_times_are_measured(
    run_smoke: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    models = iter(["NVIDIA H100 80GB HBM3", "NVIDIA H200"] * 9)
    monkeypatch.setattr("kernelrl_core.interfaces.requirements.gpu_vendors", lambda: frozenset({"nvidia"}))
    monkeypatch.setattr(LocalEvaluator, "gpu_model", lambda self: next(models))
    route = ("evaluator.use=route", "evaluator.members={near: {use: local}, far: {use: local}}")
    code, err = run_smoke(*route, "evaluation.timing=true")  # type: ignore[operator]
    assert code == 2
    assert "evaluator route has GPUs of several models" in err


def test_an_unknown_member_of_a_route_is_an_invalid_recipe(run_smoke: object) -> None:
    code, err = run_smoke("evaluator.use=route", "evaluator.members={near: {use: local}, far: {use: modl}}")  # type: ignore[operator]
    assert code == 2
    assert "members.far.use: no evaluator 'modl'; did you mean 'modal'?" in err
