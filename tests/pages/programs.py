"""Checks of command lines that call other programs than `kernelrl`, without starting them."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from page_blocks import ROOT

NEEDS = {
    "docker": "Docker",
    "hf": "Hugging Face",
    "inspect": "Inspect",
    "modal": "Modal",
    "mutmut": "mutmut",
    "ray": "Ray",
    "sbatch": "SLURM",
    "trackio": "Trackio",
    "twine": "pip install twine",
    "vf-eval": "verifiers",
    "vllm": "vLLM",
}
"""Program that is not part of this repository -> the word by which a page states that it is needed."""
_SHELL = {
    "apt-get",
    "cat",
    "cd",
    "curl",
    "echo",
    "export",
    "git",
    "just",
    "make",
    "mkdir",
    "pip",
    "printf",
    "pytest",
    "python",
    "source",
    "tee",
    "uv",
}

_PROJECT = re.compile(r"(\.|(?:plugins/|\./plugins/)?kernelrl[\w-]*)(?:\[([\w,]+)\])?")
"""A distribution of this repository, or its folder, with extras."""


def fault(words: Sequence[str], page: str, here: Path = ROOT) -> str:
    """The first fault of a command line on a page with this text, in the directory `here`. Empty: none."""
    program, *rest = words
    if program in NEEDS:
        return "" if NEEDS[program] in page else f"the page does not mention {NEEDS[program]}, which {program} needs"
    if program == "make":
        targets = [word for word in rest if "=" not in word]
        return "".join(f"no target {target!r} in Makefile" for target in targets if target not in _targets("Makefile"))
    if program == "just":
        return "" if not rest or rest[0] in _targets("justfile") else f"no command {rest[0]!r} in justfile"
    if program == "pip" or list(words[:3]) == ["python", "-m", "pip"]:
        return next(filter(None, (*(_requirement(word, here) for word in rest), _not_installed(rest, here))), "")
    if program == "python" and rest and rest[0].endswith(".py") and "/" in rest[0]:
        return "" if (ROOT / rest[0]).is_file() else f"no file {rest[0]}"
    return "" if program in _SHELL else f"unknown program {program!r}: add it to {__name__}.NEEDS with what it needs"


@cache
def _targets(name: str) -> frozenset[str]:
    text = (ROOT / name).read_text(encoding="utf-8")
    return frozenset(re.findall(r"^([a-z][\w-]*)(?: [^:\n]*)?:(?!=)", text, re.MULTILINE))


def _requirement(word: str, here: Path) -> str:
    """The fault of an argument of pip: a distribution or folder of this repository, perhaps with extras."""
    found = _PROJECT.fullmatch(word)
    if found is None:
        return ""
    folder = _folder(found[1], here)
    if not (folder / "pyproject.toml").is_file():
        return f"no distribution {folder.name!r}"
    of_extras = _project(folder).get("optional-dependencies", {})
    return "".join(f"{word}: no extra {one!r}" for one in _extras(found) if one not in of_extras)


def _not_installed(words: Sequence[str], here: Path) -> str:
    """The distribution of this repository that a line needs and does not install from its folder. Empty: none.

    No package index has them, so pip installs a clone only if the line names all.
    """
    named = [found for word in words if (found := _PROJECT.fullmatch(word))]
    installed = {_folder(found[1], here) for found in named}
    if "-e" not in words or not {ROOT} < installed:  # `-e .` alone may be in the folder of a plugin
        return ""
    for found in named:
        project = _project(_folder(found[1], here))
        needed = list(project.get("dependencies", []))
        for extra in _extras(found):
            needed += project.get("optional-dependencies", {}).get(extra, [])
        for requirement in needed:
            name = Requirement(requirement).name
            folder = _folder(name, here)
            if folder not in installed and (folder / "pyproject.toml").is_file():
                return f"{found[0]} needs -e plugins/{name}"
    return ""


def _folder(name: str, here: Path) -> Path:
    """The folder of a distribution that a line names, or of its folder."""
    last = name.rpartition("/")[2]
    return {".": here, "kernelrl": ROOT}.get(last, ROOT / "plugins" / last)


def _extras(found: re.Match[str]) -> list[str]:
    return found[2].split(",") if found[2] else []


@cache
def _project(folder: Path) -> dict[str, Any]:
    project: dict[str, Any] = tomllib.loads((folder / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return project
