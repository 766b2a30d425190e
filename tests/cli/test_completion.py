"""Completion in the real shells: commands, options, runs, recipes, plugins and their kinds."""

from __future__ import annotations

import os
import pty
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from kernelrl_command_server import CommandServer

LINES = {
    "kernelrl wat": "kernelrl watch",
    "kernelrl watch fir": "kernelrl watch first",
    "kernelrl stop first sec": "kernelrl stop first second",
    "kernelrl run quickstart_m": "kernelrl run quickstart_multi_turn",
    "kernelrl resume --acc": "kernelrl resume --accept-changes",
    "kernelrl eval quickstart_m": "kernelrl eval quickstart_multi_turn",
    "kernelrl runs show sec": "kernelrl runs show second",
    "kernelrl plugins show cor": "kernelrl plugins show core",
    "kernelrl plugins new rew": "kernelrl plugins new rewards",
    "kernelrl doctor --recipe smok": "kernelrl doctor --recipe smoke",
    "kernelrl check starter/2/softm": "kernelrl check starter/2/softmax",
    "kernelrl check -b cp": "kernelrl check -b cpp",
    "kernelrl check starter/2/softmax own_rec": "kernelrl check starter/2/softmax own_recipe.yaml",
    "kernelrl validate own_rec": "kernelrl validate own_recipe.yaml",
}
"""Typed text -> the text after the tabulator key."""


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A directory with two runs and a recipe file, and a program `kernelrl`."""
    for name in ("first", "second"):
        (tmp_path / "runs" / name).mkdir(parents=True)
        (tmp_path / "runs" / name / "recipe.yaml").write_text("{}")
    (tmp_path / "own_recipe.yaml").write_text("extends: smoke\n")
    program = tmp_path / "bin/kernelrl"
    program.parent.mkdir()
    program.write_text(f"#!{sys.executable}\nfrom kernelrl_core.cli.main import main\nmain()\n")
    program.chmod(0o755)
    return tmp_path


@pytest.fixture
def environment(place: Path) -> dict[str, str]:
    return {
        **{name: value for name, value in os.environ.items() if not name.startswith(("FISH", "ZDOTDIR"))},
        "PATH": f"{place / 'bin'}:{os.environ['PATH']}",
        "HOME": str(place),
        "TERM": "dumb",
    }


Type = Callable[[str], str]


class Terminal:
    """An interactive shell on a pseudo-terminal."""

    def __init__(self, command: list[str], setup: str, place: Path, environment: dict[str, str]) -> None:
        self._terminal, inner = pty.openpty()
        self.process = subprocess.Popen(
            command, cwd=place, env=environment, stdin=inner, stdout=inner, stderr=inner, start_new_session=True
        )
        os.close(inner)
        self.send(setup + "; echo rea''dy\n")
        self.read("ready\r\n")

    def send(self, text: str) -> None:
        os.write(self._terminal, text.encode())

    def read(self, words: str) -> str:
        seen, deadline = b"", time.monotonic() + 60
        while words.encode() not in seen:
            assert time.monotonic() < deadline, seen
            if select.select([self._terminal], [], [], 1)[0]:
                seen += os.read(self._terminal, 65536)
        return seen.decode(errors="replace")

    def complete(self, text: str) -> str:
        """Type the text and the tabulator key, and return the arguments of the completed command."""
        # The function prints its arguments in place of the command.
        self.send(f"{text}\t\n")
        return self.read("<end>\r\n").rpartition("<begin>")[2].partition("<end>")[0]

    def close(self) -> None:
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        os.close(self._terminal)


SHELLS = {
    "bash": (
        ["bash", "--norc", "--noprofile", "-i"],
        "source <(kernelrl completion bash); bind 'set enable-bracketed-paste off'",
    ),
    "zsh": (["zsh", "-f", "-i"], "autoload -U compinit; compinit -u; source <(kernelrl completion zsh)"),
}
PRINT = "kernelrl() { printf '<begin>kernelrl %s<end>\\n' \"$*\"; }"
"""A function that prints its arguments, in place of the program. The completion calls the program."""


@pytest.mark.parametrize("shell", sorted(SHELLS))
def test_a_line_is_completed_in_the_shell(shell: str, place: Path, environment: dict[str, str]) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    command, setup = SHELLS[shell]
    terminal = Terminal(command, f"{setup}; {PRINT}", place, environment)
    try:
        assert {line: terminal.complete(line).strip() for line in LINES} == LINES
    finally:
        terminal.close()


def test_a_line_is_completed_in_fish(place: Path, environment: dict[str, str]) -> None:
    if shutil.which("fish") is None:
        pytest.skip("fish is not installed")
    script = ["kernelrl completion fish | source", *(f"echo (complete -C '{line}')" for line in LINES)]
    done = subprocess.run(
        ["fish", "--no-config", "-c", "; ".join(script)],
        cwd=place, env=environment, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    completed = [line.split("\t")[0] for line in done.stdout.splitlines() if line]
    assert completed == [line.rpartition(" ")[2] for line in LINES.values()]


@pytest.fixture
def complete(place: Path, command_server: CommandServer) -> Callable[..., list[str]]:
    def names(*words: str) -> list[str]:
        environment = {
            **os.environ,
            "_KERNELRL_COMPLETE": "bash_complete",
            "COMP_WORDS": " ".join(["kernelrl", *words]),
        }
        done = command_server.run(cwd=place, env=environment | {"COMP_CWORD": str(len(words))})
        assert done.stderr == ""
        return [line.partition(",")[2] for line in done.stdout.splitlines() if line]

    return names


def test_an_unknown_command_completes_nothing_and_prints_no_error(complete: Callable[..., list[str]]) -> None:
    assert complete("nosuch", "x") == []


def test_commands_of_plugins_are_completed(complete: Callable[..., list[str]]) -> None:
    pytest.importorskip("kernelrl_lab")
    assert complete("la") == ["lab"]


def test_a_path_is_left_to_the_shell(complete: Callable[..., list[str]]) -> None:
    assert complete("watch", "runs/f") == ["runs/f"]


def test_an_unknown_shell_is_refused(command_server: CommandServer, place: Path) -> None:
    refused = command_server.run("completion", "csh", cwd=place, env=dict(os.environ))
    assert refused.returncode == 2
    assert "'csh' is not one of 'bash', 'zsh', 'fish'" in refused.stderr
