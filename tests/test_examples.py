"""The worked example of a third-party plugin, copied out of the workspace, follows its README word for word."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
from kernelrl_command_server import CommandServer
from kernelrl_unpacked_plugins import Shell, code_blocks

from kernelrl_core.sources.yaml import parse

EXAMPLE = Path(__file__).parents[1] / "examples/kernelrl-plugin-register-pressure"
README = (EXAMPLE / "README.md").read_text(encoding="utf-8")


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    return shutil.copytree(EXAMPLE, tmp_path / "copy", ignore=shutil.ignore_patterns("__pycache__", "*.dist-info"))


def test_the_readme_works_word_for_word(copy: Path, command_server: CommandServer) -> None:
    shell = Shell(copy, command_server)
    commands = [line for block in code_blocks(README, "sh") for line in block.splitlines()]
    printed = {command: shell.call(command) for command in commands}
    assert shell.programs == ["pip", "python", "kernelrl", "kernelrl", "kernelrl"]
    assert re.search(r"^\d+ passed", printed["python -m pytest"].splitlines()[-1].strip("= "))
    assert printed["kernelrl validate registers.yaml"] == "registers: ok\n"
    plan = printed["kernelrl run registers.yaml --dry-run"]
    assert "registers 0.1" in plan
    assert "missing: " in plan


def test_the_readme_shows_the_recipe_and_every_option() -> None:
    (shown,) = code_blocks(README, "yaml")
    assert parse(shown).data == parse((EXAMPLE / "registers.yaml").read_text(encoding="utf-8")).data
    options = (EXAMPLE / "src/kernelrl_plugin_register_pressure/options.py").read_text(encoding="utf-8")
    declared = re.findall(r"^    (\w+): \w+ = \w+\((\d+)\)", options, re.MULTILINE)
    assert re.findall(r"^\| `\w+`: `(\w+)` \| (\d+) \|", README, re.MULTILINE) == declared


def test_the_example_imports_the_public_api_only() -> None:
    source = "".join(path.read_text(encoding="utf-8") for path in EXAMPLE.rglob("*.py"))
    modules = set(re.findall(r"^ *from (kernelrl_core[\w.]*) import", source, re.MULTILINE))
    assert all(module.startswith(("kernelrl_core.api", "kernelrl_testing")) for module in modules)
