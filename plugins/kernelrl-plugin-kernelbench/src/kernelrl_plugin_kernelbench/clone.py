"""Finds a clone of KernelBench and the commit that is checked out in it."""

from __future__ import annotations

import os
import re
from pathlib import Path

from kernelrl_core.api.errors import MissingPrerequisite

__all__ = ["commit_of", "find_clone"]

_FIX = "git clone https://github.com/ScalingIntelligence/KernelBench"


def find_clone(root: Path | None) -> Path:
    """Directory that holds `level1`, …: of the given clone, of `KERNELBENCH_ROOT`, or of a clone beside or in the
    working directory.

    Raises:
        MissingPrerequisite: none is there; where one was named, no other is looked for.
    """
    named = root
    told = "option root"
    if named is None and os.environ.get("KERNELBENCH_ROOT"):
        named, told = Path(os.environ["KERNELBENCH_ROOT"]).expanduser().absolute(), "KERNELBENCH_ROOT"
    candidates = [named] if named is not None else [Path("KernelBench").absolute(), Path("../KernelBench").absolute()]
    for candidate in candidates:
        # The repository holds its problems in a folder of its own name; that folder may be named as well.
        for folder in (candidate / "KernelBench", candidate):
            if any(child.is_dir() and re.fullmatch(r"level\d+", child.name) for child in _children(folder)):
                return folder
    if named is not None:
        raise MissingPrerequisite(f"kernelbench: no clone of KernelBench at {named} ({told})", fix=f"{_FIX} {named}")
    looked = ", ".join(os.path.normpath(candidate) for candidate in candidates)
    raise MissingPrerequisite(
        f"kernelbench: no clone of KernelBench; looked at the option root, KERNELBENCH_ROOT, {looked}", fix=_FIX
    )


def commit_of(folder: Path) -> str | None:
    """Commit that is checked out around `folder`, read from git's own files; None where there is none."""
    for parent in (folder, folder.parent):
        try:
            return _commit(parent / ".git")
        except (OSError, UnicodeDecodeError):
            continue
    return None


def _commit(git: Path) -> str | None:
    if git.is_file():
        # A worktree or submodule: the file says where the directory is.
        git = (git.parent / git.read_text().partition("gitdir:")[2].strip()).resolve()
    head = (git / "HEAD").read_text().strip()
    if not head.startswith("ref:"):
        return head or None
    ref = head.removeprefix("ref:").strip()
    shared = git / "commondir"
    for directory in (git, (git / shared.read_text().strip()).resolve() if shared.is_file() else git):
        if (directory / ref).is_file():
            return (directory / ref).read_text().strip()
        if (directory / "packed-refs").is_file():
            for line in (directory / "packed-refs").read_text().splitlines():
                if line.endswith(f" {ref}"):
                    return line.partition(" ")[0]
    return None


def _children(folder: Path) -> list[Path]:
    try:
        return list(folder.iterdir())
    except OSError:
        return []
