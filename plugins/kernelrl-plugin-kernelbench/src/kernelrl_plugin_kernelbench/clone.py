"""Finds a clone of KernelBench and its checked-out commit."""

from __future__ import annotations

import os
import re
from pathlib import Path

from kernelrl_core.api.errors import MissingPrerequisite

__all__ = ["commit_of", "find_clone"]

_FIX = "git clone https://github.com/ScalingIntelligence/KernelBench"


def find_clone(root: Path | None) -> Path:
    """The directory with `level1`, …: of the clone at `root`, else at `KERNELBENCH_ROOT`, else at `./KernelBench` or
    `../KernelBench`.

    Raises:
        MissingPrerequisite: there is no clone. If `root` or `KERNELBENCH_ROOT` is set, only that is searched.
    """
    named = root
    source = "option root"
    if named is None and os.environ.get("KERNELBENCH_ROOT"):
        named, source = Path(os.environ["KERNELBENCH_ROOT"]).expanduser().absolute(), "KERNELBENCH_ROOT"
    candidates = [named] if named is not None else [Path("KernelBench").absolute(), Path("../KernelBench").absolute()]
    for candidate in candidates:
        # The repository has its tasks in the folder `KernelBench`; the path of that folder is accepted, too.
        for folder in (candidate / "KernelBench", candidate):
            if any(child.is_dir() and re.fullmatch(r"level\d+", child.name) for child in _children(folder)):
                return folder
    if named is not None:
        raise MissingPrerequisite(
            f"kernelbench: no clone of KernelBench at {named} ({source})", fix=f"{_FIX} {named}", see="kernelbench"
        )
    looked = ", ".join(os.path.normpath(candidate) for candidate in candidates)
    raise MissingPrerequisite(
        f"kernelbench: no clone of KernelBench; searched the option root, KERNELBENCH_ROOT, {looked}",
        fix=_FIX,
        see="kernelbench",
    )


def commit_of(folder: Path) -> str | None:
    """The checked-out commit of the repository with `folder`, from the files in `.git`; None without a repository."""
    for parent in (folder, folder.parent):
        try:
            return _commit(parent / ".git")
        except (OSError, UnicodeDecodeError):
            continue
    return None


def _commit(git: Path) -> str | None:
    if git.is_file():
        # A worktree or submodule: the file contains the path of the git directory.
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
