"""The justfile, with the real `just`: the published names and the commands that they call."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import click
import pytest

from kernelrl_core.cli.main import cli

ROOT = Path(__file__).parents[1]
JUST = shutil.which("just", path=str(Path(sys.executable).parent)) or shutil.which("just")
RAG = "index build --corpora {} --embedder BAAI/bge-code-v1 {}--output {}"

pytestmark = pytest.mark.skipif(JUST is None, reason="needs just: pip install rust-just")


@pytest.fixture
def just(tmp_path: Path) -> Path:
    """A program in place of `kernelrl` that prints its arguments, each on a line."""
    program = tmp_path / "kernelrl"
    program.write_text('#!/bin/sh\nfor argument; do echo "$argument"; done\n')
    program.chmod(0o755)
    return program


def called(kernelrl: Path, *arguments: str) -> list[str]:
    """The arguments of `kernelrl` that a command of the justfile gives."""
    command = [str(JUST), "--justfile", str(ROOT / "justfile"), "--set", "kernelrl", str(kernelrl), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, cwd=kernelrl.parent)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("train {run}", "run kevin_triton_raicl --name demo"),
        ("train-kevin {run}", "run kevin --name demo"),
        ("train-raicl {run}", "run raicl --name demo"),
        ("train-config smoke.yaml {run}", "run smoke.yaml --name demo"),
        ("train-config config=smoke.yaml {run}", "run smoke.yaml --name demo"),
        ("resume {run}", "resume demo"),
        ("stop {run}", "stop demo"),
        ("status {run}", "status demo"),
        ("logs {run}", "logs demo --follow"),
        ("watch-metrics {run}", "watch demo"),
        ("tensorboard {run}", "tensorboard demo"),
    ],
)
def test_a_run_is_named_in_both_spellings(just: Path, command: str, expected: str) -> None:
    for spelling in ("demo", "run=demo"):
        assert called(just, *command.format(run=spelling).split()) == expected.split()


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("list", "runs list"),
        ("status", "status"),
        ("tensorboard", "tensorboard --all"),
        ("build-rag-index", RAG.format("kernelbook,ai_cuda_engineer", "", "kernel_rag_index")),
        ("build-rag-index-triton", RAG.format("kernelbook", "--backend triton ", "kernel_rag_index")),
        ("build-rag-index-cuda output=mine", RAG.format("ai_cuda_engineer", "--backend cuda ", "mine")),
    ],
)
def test_a_command_without_a_run(just: Path, command: str, expected: str) -> None:
    assert called(just, *command.split()) == expected.split()


def test_training_without_a_name_gives_one(just: Path) -> None:
    *command, name = called(just, "train-kevin")
    assert command == ["run", "kevin", "--name"]
    assert re.fullmatch(r"train-\d{8}-\d{6}", name)


def test_a_name_is_one_argument_and_no_code(just: Path) -> None:
    assert called(just, "stop", "a b; echo c") == ["stop", "a b; echo c"]


def test_every_option_and_command_of_the_justfile_exists() -> None:
    text = (ROOT / "justfile").read_text(encoding="utf-8")
    lines = [line for line in text.splitlines() if line.startswith("    {{ kernelrl }} ")]
    assert len(lines) > 8
    for line in lines:
        words = re.sub(r"\{\{.*?\}\}", "", line).split()
        options = {word for word in re.findall(r"--[a-z-]+", text) if word in line}
        command: click.Command | None = cli
        while isinstance(command, click.Group):
            command = command.get_command(click.Context(command), words.pop(0))
        assert command is not None, line
        known = {flag for parameter in command.params for flag in parameter.opts}
        assert options <= known, line
