"""Checks of command lines that call other programs than `kernelrl`, without starting them."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from page_blocks import ROOT

NEEDS = {
    "docker": "Docker",
    "hf": "Hugging Face",
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
    "echo",
    "export",
    "git",
    "just",
    "make",
    "mkdir",
    "pip",
    "pytest",
    "python",
    "source",
    "tee",
    "uv",
}


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
        return next(filter(None, (_requirement(word, here) for word in rest)), "")
    if program == "python" and rest and rest[0].endswith(".py") and "/" in rest[0]:
        return "" if (ROOT / rest[0]).is_file() else f"no file {rest[0]}"
    return "" if program in _SHELL else f"unknown program {program!r}: add it to {__name__}.NEEDS with what it needs"


@cache
def _targets(name: str) -> frozenset[str]:
    text = (ROOT / name).read_text(encoding="utf-8")
    return frozenset(re.findall(r"^([a-z][\w-]*)(?: [^:\n]*)?:(?!=)", text, re.MULTILINE))


def _requirement(word: str, here: Path) -> str:
    """The fault of an argument of pip: a distribution or folder of this repository, perhaps with extras."""
    found = re.fullmatch(r"(\.|(?:plugins/|\./plugins/)?kernelrl[\w-]*)(?:\[([\w,]+)\])?", word)
    if found is None:
        return ""
    name = found[1].rpartition("/")[2]
    folder = {".": here, "kernelrl": ROOT}.get(name, ROOT / "plugins" / name)
    if not (folder / "pyproject.toml").is_file():
        return f"no distribution {name!r}"
    project = tomllib.loads((folder / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = found[2].split(",") if found[2] else []
    return "".join(f"{word}: no extra {one!r}" for one in extras if one not in project.get("optional-dependencies", {}))
