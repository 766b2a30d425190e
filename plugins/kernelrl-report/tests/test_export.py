"""`kernelrl export` with the plugin of fakes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from kernelrl_command_server import CommandServer

from kernelrl_core.api.errors import MissingPrerequisite
from kernelrl_report.export_command import command

FAKES = Path(__file__).parents[3] / "tests/fakes"
RECIPE = """
tasks:     {use: fake}
backend:   {use: fake}
policy:    {use: fake, exports: true}
evaluator: {use: fake}
feedback:  {use: fake}
forbid:    []
rewards:   {correct: {use: fake}}
train:     {tasks_per_step: 4, group_size: 3, steps: 3, learning_rate: 0.1, keep_checkpoints: 2}
eval:      {samples: 2, at_end: true}
"""

Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def kernelrl(tmp_path: Path, command_server: CommandServer) -> Run:
    (tmp_path / "small.yaml").write_text(RECIPE)
    environment = {**os.environ, "PYTHONPATH": str(FAKES), "KERNELRL_CACHE_DIR": str(tmp_path / "cache")}

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        return command_server.start(*arguments, cwd=tmp_path, env=environment).result()

    return run


@pytest.fixture
def trained(kernelrl: Run) -> Run:
    """A finished run `a` exists."""
    assert kernelrl("run", "small.yaml", "--name", "a").returncode == 0
    return kernelrl


def test_exported_kernels_are_correct_again(trained: Run, tmp_path: Path) -> None:
    shown = json.loads(trained("export", "a", "--output", "best", "--json").stdout)
    assert shown["kernels"] == len(list((tmp_path / "best").rglob("*.py"))) > 0
    again = json.loads(trained("eval", "small.yaml", "--kernels", "best", "--json").stdout)
    assert (again["num_samples"], again["correct_rate"]) == (shown["kernels"], 1.0)


def test_a_held_out_evaluation_becomes_files_of_kernelbench_that_eval_reads(kernelrl: Run, tmp_path: Path) -> None:
    for place in ("level1/1_A", "level1/2_B", "level2/1_C"):
        path = tmp_path / "tasks" / f"{place}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(
            f"class Model: pass\ndef get_inputs(): return []\ndef get_init_inputs(): return []\n# {place}\n"
        )
    (tmp_path / "numbered.yaml").write_text(
        "extends: small.yaml\ntasks: {use: directory, path: ./tasks, holdout: {names: ['level1/*']}}\n"
    )
    assert kernelrl("eval", "numbered.yaml", "--output", "result.json").returncode == 0
    done = kernelrl("export", "result.json", "--as", "kernelbench", "--output", "theirs")
    assert done.stdout == "theirs: level 1, tasks 2, samples 4\n"
    files = {path.name for path in (tmp_path / "theirs").iterdir()}
    assert {"eval_results.json", "pass_at_k_results.json", "baseline.json"} < files
    again = kernelrl("eval", "numbered.yaml", "--kernels", "theirs", "--split", "held_out", "--json")
    first = json.loads((tmp_path / "result.json").read_text())
    assert json.loads(again.stdout)["num_correct"] == first["num_correct"]


def test_without_the_plugin_of_kernelbench_the_error_names_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "result.json").write_text('{"rows": []}')
    monkeypatch.setitem(sys.modules, "kernelrl_plugin_kernelbench", None)
    arguments = [str(tmp_path / "result.json"), "--as", "kernelbench", "--output", str(tmp_path / "out")]
    with pytest.raises(MissingPrerequisite, match="needs kernelrl-plugin-kernelbench") as raised:
        command.main(arguments, standalone_mode=False)
    assert raised.value.fix == "pip install kernelrl-plugin-kernelbench"
    assert not (tmp_path / "out").exists()


def test_weights_are_those_of_the_checkpoint(trained: Run, tmp_path: Path) -> None:
    for checkpoint, name in (("2", "000002"), ("last", "000003")):
        done = trained("export", "a", "--as", "weights", "--checkpoint", checkpoint, "--output", name)
        assert done.stdout == f"{name}: checkpoint {name}, policy fake\n"
        saved = tmp_path / "runs/a/checkpoints" / name / "weight.json"
        assert (tmp_path / name / "exported.json").read_text() == saved.read_text()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("nowhere",), "no run 'nowhere'"),
        (("a", "--level", "1"), "--level has no effect with --as kernels"),
        (("a", "--as", "weights", "--checkpoint", "1"), "000002, 000003"),
        (("small.yaml", "--as", "weights"), "small.yaml has no weights"),
        (("small.yaml",), "small.yaml: not a JSON document"),
    ],
)
def test_bad_input_is_refused_with_one_message_and_leaves_nothing(
    trained: Run, tmp_path: Path, arguments: tuple[str, ...], message: str
) -> None:
    refused = trained("export", *arguments, "--output", "out")
    assert refused.returncode == 2
    assert message in refused.stderr
    assert not [path for path in tmp_path.iterdir() if "out" in path.name]


def test_an_existing_output_is_not_replaced(trained: Run, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    refused = trained("export", "a", "--output", "out")
    assert (refused.returncode, "already exists" in refused.stderr) == (2, True)


def test_a_policy_that_cannot_export_is_named(kernelrl: Run) -> None:
    assert kernelrl("run", "small.yaml", "--name", "a", "policy.exports=false").returncode == 0
    refused = kernelrl("export", "a", "--as", "weights", "--output", "out")
    assert refused.returncode == 2
    assert "policy 'fake' cannot export weights" in refused.stderr


def test_a_full_disk_is_named_and_nothing_is_left(kernelrl: Run, tmp_path: Path) -> None:
    assert kernelrl("run", "small.yaml", "--name", "a", "policy.exports=true", "policy.fail=export").returncode == 0
    failed = kernelrl("export", "a", "--as", "weights", "--output", "out")
    assert failed.returncode == 1
    assert failed.stderr.splitlines()[1:] == [
        f"kernelrl: {tmp_path}: No space left on device",
        "kernelrl: fix: free disk space or permit access, then repeat this",
        "kernelrl: more: kernelrl explain storage",
    ]
    assert not [path for path in tmp_path.iterdir() if "out" in path.name]


def test_a_recipe_becomes_an_environment_package_of_verifiers(kernelrl: Run, tmp_path: Path) -> None:
    done = kernelrl("export", "small.yaml", "train.steps=1", "--as", "verifiers", "--output", "My kernels", "--json")
    assert json.loads(done.stdout)["package"] == "my_kernels"
    files = {path.relative_to(tmp_path / "My kernels").as_posix() for path in (tmp_path / "My kernels").rglob("*.*")}
    package = {f"my_kernels/{name}" for name in ("__init__.py", "taskset.py", "recipe.yaml")}
    assert files == {"pyproject.toml", "README.md", *package}
    assert kernelrl("validate", "My kernels/my_kernels/recipe.yaml").stdout.startswith("recipe: ok")


def test_tasks_of_a_recipe_become_harbor_folders(kernelrl: Run, tmp_path: Path) -> None:
    shown = json.loads(kernelrl("export", "small.yaml", "--as", "harbor", "--output", "folders", "--json").stdout)
    assert shown["tasks"] == len(list((tmp_path / "folders").iterdir())) > 0
