"""Harbor folders: their files, and the verifier that they call."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kernelrl_adapters.harbor import harbor_tasks, main, write_harbor_task
from kernelrl_adapters.shared import read_recipe
from kernelrl_core.api.errors import InfrastructureError
from kernelrl_testing.core import main as command_line

KERNEL = "class ModelNew:\n    def forward(self, x):\n        return {!r}\n"
RIGHT, WRONG = KERNEL.format("right"), KERNEL.format("wrong")
Judged = Callable[[str], dict[str, Any]]
Verified = Callable[..., dict[str, Any] | None]
TESTS = Path(__file__).parents[3] / "tests"
ENTER = """
root=$1
mount -t tmpfs none $root
for path in /*; do
    if [ -L $path ]; then cp -P $path $root$path
    elif [ -d $path ]; then mkdir $root$path; mount --rbind $path $root$path; fi
done
mkdir -p $root/tests $root/logs/verifier $root/workspace
mount --bind $2 $root/tests
mount --bind $3 $root/logs/verifier
mount --bind $4 $root/workspace
PATH=$PATH:/usr/sbin  # of users other than root it often lacks chroot
exec chroot $root sh -euc "$5"
"""
"""Arguments: a directory for the root, those of /tests, /logs/verifier and /workspace, and shell commands."""


@pytest.fixture
def folder(fake_recipe: str, tmp_path: Path) -> Path:
    text = read_recipe(fake_recipe)
    task = next(iter(harbor_tasks(text, held_out=False)))
    made = tmp_path / task.name
    made.mkdir()
    write_harbor_task(task, text, made, image="kernelrl", gpus=2)
    return made


def judge(folder: Path, kernel: Path) -> int:
    output = folder.parent / "logs"
    return main(["--task", str(folder / "tests"), "--kernel", str(kernel), "--output", str(output)])


@pytest.fixture
def judged(folder: Path) -> Judged:
    def run(source: str) -> dict[str, Any]:
        kernel = folder.parent / "kernel.py"
        kernel.write_text(source)
        assert judge(folder, kernel) == 0
        found: dict[str, Any] = json.loads((folder.parent / "logs/reward.json").read_text())
        return found

    return run


def test_a_folder_has_the_files_of_the_format(folder: Path) -> None:
    assert folder.name == "fake-train-0"
    files = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    verifier = {"Dockerfile", "recipe.json", "task.json", "test.sh"}
    assert files >= {"task.toml", "instruction.md", "environment/Dockerfile", *(f"tests/{name}" for name in verifier)}
    assert os.access(folder / "tests/test.sh", os.X_OK)
    settings = tomllib.loads((folder / "task.toml").read_text())
    assert settings["task"]["name"] == "kernelrl/fake-train-0"
    assert settings["environment"]["gpus"] == settings["verifier"]["environment"]["gpus"] == 2


def test_the_agent_gets_the_prompt_and_nothing_of_the_verifier(folder: Path) -> None:
    assert "# train" in (folder / "instruction.md").read_text()
    assert "/workspace/kernel.py" in (folder / "instruction.md").read_text()
    assert "COPY" not in (folder / "environment/Dockerfile").read_text()
    assert tomllib.loads((folder / "task.toml").read_text())["verifier"]["environment_mode"] == "separate"


def test_the_reward_is_the_score_with_its_parts(judged: Judged) -> None:
    found = judged(RIGHT)
    assert found["reward"] == found["reward/correct"] == 0.7
    assert found["correct"] == 1.0


def test_every_value_of_the_reward_is_a_number(judged: Judged) -> None:
    assert {type(value) for value in judged(WRONG).values()} == {float}


def test_the_verdict_names_outcome_and_findings(judged: Judged, folder: Path) -> None:
    judged(WRONG)
    verdict = json.loads((folder.parent / "logs/verdict.json").read_text())
    assert verdict["outcome"] == "incorrect"
    assert verdict["findings"] == []


def test_a_kernel_with_a_fence_in_a_string_is_read_whole(judged: Judged) -> None:
    assert judged(f'"""\n```python\npass\n```\n"""\n{RIGHT}')["reward"] == 0.7


@pytest.mark.parametrize("kind", ["missing", "directory", "link", "huge"])
def test_a_path_without_a_source_gets_the_reward_of_a_reply_without_code(folder: Path, kind: str) -> None:
    kernel = folder.parent / "kernel.py"
    if kind == "directory":
        kernel.mkdir()
    elif kind == "link":
        kernel.symlink_to(folder / "tests/task.json")
    elif kind == "huge":
        kernel.write_text(RIGHT + "#" * 1_000_000)
    assert judge(folder, kernel) == 0
    assert json.loads((folder.parent / "logs/verdict.json").read_text())["outcome"] == "format_error"


def test_a_machine_that_cannot_judge_gives_no_reward(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import kernelrl_fake

    async def evaluate(self: Any, request: Any) -> Any:
        raise InfrastructureError("planted")

    monkeypatch.setattr(kernelrl_fake.Evaluator, "evaluate", evaluate)
    kernel = folder.parent / "kernel.py"
    kernel.write_text(KERNEL.format("another"))
    assert judge(folder, kernel) == 1
    assert not (folder.parent / "logs/reward.json").exists()


# --- agents that attack the verifier ----------------------------------------------------------------------------------


@pytest.fixture
def verified(folder: Path) -> Verified:
    """Runs tests/test.sh in a root of its own, with the folders that Harbor mounts.

    Args:
        attack: shell commands of the agent in its /workspace. They reach more than an agent of Harbor does: the
            verifier's files, too.
    """
    base = folder.parent / "container"
    for name in ("root", "workspace", "logs"):
        (base / name).mkdir(parents=True)
    enter = ["unshare", "--map-root-user", "--mount", "sh", "-euc", ENTER, "sh", str(base / "root")]
    mounts = [str(folder / "tests"), str(base / "logs"), str(base / "workspace")]
    if subprocess.run([*enter, *mounts, "true"], capture_output=True).returncode:
        pytest.skip("this machine permits no mounts in a user namespace")
    paths = {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "PYTHONPATH": str(TESTS / "fakes")}

    def run(source: str, attack: str = "") -> dict[str, Any] | None:
        (base / "workspace/kernel.py").write_text(source)
        script = f"cd /workspace; {attack}\nsh /tests/test.sh"
        done = subprocess.run([*enter, *mounts, script], capture_output=True, text=True, env={**os.environ, **paths})
        reward = base / "logs/reward.json"
        found: dict[str, Any] | None = json.loads(reward.read_text()) if reward.is_file() else None
        assert found is None or done.returncode == 0, done.stderr
        assert not (base / "logs/reward.txt").exists()
        return found

    return run


def test_the_script_of_the_verifier_writes_the_reward(verified: Verified) -> None:
    found = verified(RIGHT)
    assert found is not None
    assert found["reward"] == 0.7


WRITES_REWARD = "echo '{\"reward\": 9}' > /logs/verifier/reward.json; echo 9 > /logs/verifier/reward.txt"


@pytest.mark.parametrize(
    "attack",
    [
        WRITES_REWARD,
        "ln -s /workspace/kernel.py /logs/verifier/reward.json",
        "mkdir /logs/verifier/reward.json",
        "mkdir kernelrl_adapters; echo 'raise SystemExit' > kernelrl_adapters/__init__.py; echo '{' > json.py",
    ],
    ids=["reward", "link", "directory", "modules"],
)
def test_what_an_agent_writes_does_not_change_the_reward(verified: Verified, attack: str) -> None:
    found = verified(WRONG, attack)
    assert found is not None
    assert found["reward"] == 0.0


@pytest.mark.parametrize("deleted", ["/tests/task.json", "/tests/recipe.json"])
def test_a_verifier_whose_files_were_deleted_gives_no_reward(verified: Verified, deleted: str) -> None:
    assert verified(WRONG, f"{WRITES_REWARD}; rm {deleted}") is None


def test_a_folder_of_another_kind_is_a_usage_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "tests").mkdir()
    assert judge(tmp_path, tmp_path / "kernel.py") == 2
    assert "is not the folder tests of an exported task" in capsys.readouterr().err


@pytest.mark.slow
def test_real_kernels_get_the_rewards_of_check(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("triton")
    untimed = ["rewards.speed=null", "evaluation.timing=false"]
    text = read_recipe("quickstart", untimed)
    task = next(task for task in harbor_tasks(text, held_out=False) if task.task.id == "starter/2/softmax")
    assert task.solution is not None
    wrong = task.solution.replace("def forward(self, x):", "def forward(self, x):\n        x = x * 2")
    hack = task.solution.replace("def forward(", "def compute(") + KEEPS_THE_FIRST_OUTPUT
    kernels = {"honest": task.solution, "wrong": wrong, "hack": hack}
    folder = tmp_path / task.name
    folder.mkdir()
    write_harbor_task(task, text, folder, image="kernelrl", gpus=0)
    rewards = []
    for name, source in kernels.items():
        (tmp_path / f"{name}.py").write_text(source)
        assert judge(folder, tmp_path / f"{name}.py") == 0
        rewards.append(json.loads((tmp_path / "logs/reward.json").read_text())["reward"])
    capsys.readouterr()
    files = [str(tmp_path / f"{name}.py") for name in kernels]
    with pytest.raises(SystemExit):
        command_line(["check", task.task.id, *files, "-r", "quickstart", "--json", *untimed])
    checked = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [one["outcome"] for one in checked] == ["correct", "incorrect", "hacked"]
    assert rewards == [one["score"]["total"] for one in checked]
    assert rewards[0] > max(rewards[1:])


KEEPS_THE_FIRST_OUTPUT = """
    def forward(self, x):
        if not hasattr(self, "first"):
            self.first = self.compute(x)
        return self.first
"""
