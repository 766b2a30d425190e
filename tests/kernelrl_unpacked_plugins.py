"""Plugins for tests, in the layout that pip installs, without pip."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path

from kernelrl_command_server import CommandServer


def install(project: Path) -> None:
    """Write the metadata of an editable installation into the folder `src` of a project."""
    facts = tomllib.loads((project / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    info = project / f"src/{facts['name'].replace('-', '_')}-{facts['version']}.dist-info"
    info.mkdir()
    metadata = f"Metadata-Version: 2.1\nName: {facts['name']}\nVersion: {facts['version']}\n"
    metadata += "".join(f"Requires-Dist: {requirement}\n" for requirement in facts["dependencies"])
    (info / "METADATA").write_text(metadata, encoding="utf-8")
    entries = "".join(f"{name} = {module}\n" for name, module in facts["entry-points"]["kernelrl"].items())
    (info / "entry_points.txt").write_text(f"[kernelrl]\n{entries}", encoding="utf-8")


def environment(projects: Iterable[Path]) -> Mapping[str, str]:
    """Environment variables of a process in which these projects are installed."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join(str(project / "src") for project in projects)}


def code_blocks(page: str, language: str) -> list[str]:
    """The fenced blocks of a language on a page."""
    return re.findall(rf"^```{language}\n(.*?)^```", page, re.MULTILINE | re.DOTALL)


class Shell:
    """Executes the commands of a page in a folder. `pip install -e` installs a project without pip.

    Args:
        server: executes `kernelrl`.
    """

    def __init__(self, folder: Path, server: CommandServer) -> None:
        self.folder, self._server = folder, server
        self.programs: list[str] = []
        self._projects: list[Path] = []

    def call(self, command: str) -> str:
        """Standard output of a command, which must succeed."""
        program, *arguments = shlex.split(command)
        self.programs.append(program)
        if program == "pip":
            first, editable, project = arguments
            assert (first, editable) == ("install", "-e")
            self._projects.append(self.folder / project.removesuffix("[test]"))
            install(self._projects[-1])
            return ""
        variables = environment(self._projects)
        if program == "kernelrl":
            done = self._server.run(*arguments, cwd=self.folder, env=variables)
        else:
            assert program == "python"
            whole = [sys.executable, *arguments, "-p", "no:cacheprovider"]
            done = subprocess.run(whole, cwd=self.folder, env=variables, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout
