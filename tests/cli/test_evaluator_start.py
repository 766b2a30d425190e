"""An evaluator that cannot start ends every command before a policy starts and before anything is sampled."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from kernelrl_core.cli import main as main_module
from kernelrl_core.errors import MissingPrerequisite
from kernelrl_plugin_local.evaluator import LocalEvaluator
from kernelrl_plugin_scripted.policy import ScriptedPolicy

Call = Callable[..., tuple[int, str, str]]


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Call:
    """Runs the command line in an empty directory: exit code, stdout, stderr."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as stop:
            main_module.main(list(arguments))
        out, err = capsys.readouterr()
        assert isinstance(stop.value.code, int)
        return stop.value.code, out, err

    return run


@pytest.fixture
def refused(monkeypatch: pytest.MonkeyPatch) -> None:
    async def start(self: object) -> None:
        raise MissingPrerequisite("the cluster at box:6379 does not respond", fix="ray start --head on box")

    async def no_policy(self: object, context: object) -> None:
        raise AssertionError("the policy was started")

    monkeypatch.setattr(LocalEvaluator, "start", start)
    monkeypatch.setattr(ScriptedPolicy, "start", no_policy)


@pytest.mark.usefixtures("refused")
@pytest.mark.parametrize(
    "words",
    [
        ("run", "smoke", "--name", "one"),
        ("eval", "smoke", "--samples", "1"),
        ("eval", "smoke", "--kernels", "kernels"),
        ("check", "task.py", "kernel.py"),
    ],
    ids=lambda words: " ".join(words[:1] + words[2:3]),
)
def test_a_command_ends_with_3_and_the_fix(call: Call, words: tuple[str, ...]) -> None:
    Path("task.py").write_text(
        "import torch\nclass Model(torch.nn.Module):\n    def forward(self, x):\n        return x\n"
        "def get_inputs():\n    return [torch.ones(1)]\ndef get_init_inputs():\n    return []\n"
    )
    Path("kernel.py").write_text("class ModelNew: pass\n")
    Path("kernels").mkdir()
    Path("kernels/add_relu.py").write_text("class ModelNew: pass\n")
    code, _, err = call(*words)
    assert (code, "the cluster at box:6379 does not respond" in err, "fix: ray start --head on box" in err) == (
        3,
        True,
        True,
    ), err


@pytest.mark.usefixtures("refused")
def test_doctor_for_a_recipe_starts_its_evaluator(call: Call) -> None:
    code, out, _ = call("doctor", "--recipe", "smoke")
    assert code == 3
    assert "the cluster at box:6379 does not respond; fix: ray start --head on box" in out


@pytest.mark.usefixtures("refused")
def test_a_dry_run_starts_no_evaluator(call: Call) -> None:
    assert call("run", "smoke", "--dry-run")[0] == 0
    assert call("validate", "smoke")[0] == 0
