"""A third-party plugin: built as a wheel, installed into another environment, used from the command line."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
import textwrap
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

FILES = {
    "pyproject.toml": """
        [build-system]
        requires = ["hatchling"]
        build-backend = "hatchling.build"

        [project]
        name = "stranger-brevity"
        version = "0.3.0"
        dependencies = ["kernelrl>=0.1,<0.2"]

        [project.entry-points.kernelrl]
        brevity = "stranger_brevity"
    """,
    "stranger_brevity/__init__.py": """
        from kernelrl_core.api import Component, hookimpl

        @hookimpl
        def kernelrl_rewards():
            config = "stranger_brevity.parts:BrevityConfig"
            return [Component("brevity", "stranger_brevity.parts:Brevity", config, "Prefers short kernels")]

        @hookimpl
        def kernelrl_checkers():
            return [Component("no_sine", "stranger_brevity.parts:NoSine", summary="Finds sines")]
    """,
    "stranger_brevity/parts.py": '''
        import attrs

        from kernelrl_core.api.checkers import Checker, Finding, Rule, Severity
        from kernelrl_core.api.rewards import Reward, RewardBounds, RewardConfig


        @attrs.frozen
        class BrevityConfig(RewardConfig):
            characters: int = 2000
            """Source length from which the score is 0."""

            def bounds(self):
                return RewardBounds(0.0, 1.0, -1.0)


        class Brevity(Reward):
            def __init__(self, config):
                self.config = config

            def score(self, turn):
                if turn.candidate is None:
                    return 0.0
                return max(0.0, 1.0 - len(turn.candidate.source) / self.config.characters)


        class NoSine(Checker):
            rules = (Rule("sine", Severity.NOTE, "Do not use sines."),)

            def check(self, candidate, task, evaluation):
                return [Finding("sine", Severity.NOTE, "a sine")] if "sin(" in candidate.source else []
    ''',
}
BROKEN = {
    "pyproject.toml": FILES["pyproject.toml"].replace("brevity", "ruin"),
    "stranger_ruin/__init__.py": "import a_module_that_does_not_exist\n",
}
RECIPE = """
extends: smoke
rewards:
  brief: {use: brevity, weight: 0.1, characters: 1500}
checkers:
  sines: {use: no_sine}
"""


def write(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text))
    return folder


def pip(*arguments: str) -> None:
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A virtual environment with the core, this environment's other packages, and the two third-party plugins."""
    pytest.importorskip("hatchling", reason="building a wheel offline needs hatchling in this environment")
    folder = tmp_path_factory.mktemp("second")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder / "env")], check=True)
    wheels = folder / "wheels"
    for project in (ROOT, write(folder / "brevity", FILES), write(folder / "ruin", BROKEN)):
        pip("wheel", "--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir", str(wheels), str(project))
    python = folder / "env/bin/python"
    pip("--python", str(python), "install", "--quiet", "--no-deps", "--no-index", *map(str, wheels.glob("*.whl")))
    # Dependencies of the core and the bundled plugins come from the environment of the tests; nothing is downloaded.
    here = sysconfig.get_path("purelib")
    packages = next(folder.glob("env/lib/python*/site-packages"))
    (packages / "rest.pth").write_text(f"import site; site.addsitedir({here!r})\n")
    assert Path(here).is_dir()
    return folder / "env/bin"


def kernelrl(environment: Path, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    variables = {
        "PATH": f"{environment}:/usr/bin:/bin",
        "HOME": str(folder),
        "KERNELRL_CACHE_DIR": str(folder / "cache"),
    }
    return subprocess.run(
        [str(environment / "kernelrl"), *arguments],
        cwd=folder,
        env={**{k: v for k, v in os.environ.items() if k.startswith("LD_")}, **variables},
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_plugin_is_listed_next_to_a_broken_one(environment: Path, tmp_path: Path) -> None:
    done = kernelrl(environment, tmp_path, "plugins", "list", "--json")
    assert done.returncode == 0, done.stderr
    plugins = {plugin["name"]: plugin for plugin in json.loads(done.stdout)["plugins"]}
    assert plugins["brevity"]["dist"].startswith("stranger-brevity")
    assert {item["name"] for item in plugins["brevity"]["components"]} == {"brevity", "no_sine"}
    assert plugins["ruin"]["state"] == "broken"
    assert "a_module_that_does_not_exist" in plugins["ruin"]["error"]


def test_a_recipe_uses_reward_component_and_checker_of_the_plugin(environment: Path, tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text(RECIPE)
    overrides = ("train.steps=1", "train.tasks_per_step=2", "train.group_size=2", "policy.warm_start.steps=3")
    overrides += ("eval.at_start=false", "eval.at_end=false", "tasks.practice=0", "sampling.max_tokens=40")
    done = kernelrl(environment, tmp_path, "run", "mine.yaml", "--name", "mine", *overrides)
    assert done.returncode == 0, done.stderr
    rows = [json.loads(line) for line in (tmp_path / "runs/mine/samples.jsonl").read_text().splitlines()]
    assert len(rows) == 4
    assert all("brief" in row["score"]["parts"] for row in rows)


def test_the_error_about_a_misspelt_option_has_line_and_nearest_name(environment: Path, tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text(RECIPE.replace("characters", "charcters"))
    done = kernelrl(environment, tmp_path, "validate", "mine.yaml")
    assert done.returncode == 2
    assert "mine.yaml:4: rewards.brief" in done.stderr
    assert "characters" in done.stderr


def test_a_plugin_whose_components_load_passes_its_check(environment: Path, tmp_path: Path) -> None:
    checked = kernelrl(environment, tmp_path, "plugins", "check", "brevity")
    assert (checked.returncode, checked.stderr) == (0, "")
    assert checked.stdout == "rewards: brevity: passes\ncheckers: no_sine: passes\n"


def test_a_broken_plugin_fails_its_check(environment: Path, tmp_path: Path) -> None:
    checked = kernelrl(environment, tmp_path, "plugins", "check", "ruin")
    assert checked.returncode == 1
    assert "plugin ruin: FAILS: broken: ModuleNotFoundError" in checked.stdout
