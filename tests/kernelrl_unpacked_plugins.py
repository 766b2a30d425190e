"""Plugins for tests, in the layout that pip installs, without pip."""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path


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
