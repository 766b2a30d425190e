"""Manifest of an index: written last, verified before anything else is read."""

from __future__ import annotations

import hashlib
import json
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from kernelrl_core.api.config import write_atomically
from kernelrl_core.api.errors import MissingPrerequisite, UsageError

__all__ = ["CORPORA", "FORMAT", "NAME", "VERSION", "build_command", "read_manifest", "unusable", "write_manifest"]

FORMAT = "kernelrl-index"
VERSION = 1
NAME = "manifest.json"
CORPORA = ("kernelbook", "ai_cuda_engineer")
"""Corpora of the commands that build an index, where nothing names others."""

_PICKLES = (".pkl", ".pickle", ".pt", ".joblib")


def build_command(directory: Path, corpora: Sequence[str] = CORPORA, *, dense: bool = False, backend: str = "") -> str:
    """The command that builds an index in `directory`, with an example of an embedder.

    Args:
        backend: only kernels of this backend.
    """
    output = shlex.quote(str(directory)) + (" --embedder BAAI/bge-code-v1" if dense else "")
    only = f" --backend {backend}" if backend else ""
    return f"kernelrl index build --corpora {shlex.quote(','.join(corpora))}{only} --output {output}"


def unusable(directory: Path, problem: str, *, dense: bool = False) -> UsageError:
    """The error for an index that must be built again."""
    fix = f"rm -r {shlex.quote(str(directory))}, then {build_command(directory, dense=dense)}"
    return UsageError(f"index {directory}: {problem}", fix=fix, see="index")


def write_manifest(directory: Path, content: Mapping[str, Any]) -> None:
    """Write the manifest with size and SHA-256 of every file in `directory`."""
    files = {
        str(path.relative_to(directory)): {"bytes": path.stat().st_size, "sha256": _sha256(path)}
        for path in sorted(directory.rglob("*"))
        if path.is_file()
    }
    document = {"format": FORMAT, "version": VERSION, **content, "files": files}
    write_atomically(directory / NAME, json.dumps(document, indent=1, sort_keys=True) + "\n")


def read_manifest(directory: Path, *, verify: bool = True) -> tuple[dict[str, Any], str]:
    """The manifest and its SHA-256, after comparing all files with it.

    Args:
        verify: False compares only the sizes of the files.

    Raises:
        MissingPrerequisite: the directory does not exist.
        UsageError: not an index, an index of another version, or files that differ from the manifest.
    """
    if not directory.is_dir():
        raise MissingPrerequisite(f"index {directory} does not exist", fix=build_command(directory), see="index")
    try:
        raw = (directory / NAME).read_bytes()
    except FileNotFoundError:
        raise unusable(directory, _foreign(directory)) from None
    except OSError as error:
        raise unusable(directory, f"{NAME} cannot be read: {error.strerror}") from None
    try:
        document = json.loads(raw)
        known = document["format"] == FORMAT
        version, files = document["version"], dict(document["files"])
    except (ValueError, KeyError, TypeError):
        raise unusable(directory, f"{NAME} is damaged, or belongs to another program") from None
    if not known:
        raise unusable(directory, f"{NAME} belongs to another program")
    if version != VERSION:
        raise unusable(directory, f"has version {version}; this release reads version {VERSION}")
    for name, facts in files.items():
        _compare(directory, name, facts, verify)
    return document, hashlib.sha256(raw).hexdigest()


def _compare(directory: Path, name: str, facts: Any, verify: bool) -> None:
    path = directory / name
    if not path.resolve().is_relative_to(directory.resolve()):
        raise unusable(directory, f"{NAME} names a file outside of the index: {name}")
    try:
        same = path.stat().st_size == facts["bytes"] and (not verify or _sha256(path) == facts["sha256"])
    except FileNotFoundError:
        raise unusable(directory, f"{name} is missing") from None
    except (OSError, KeyError, TypeError) as error:
        raise unusable(directory, f"{name} cannot be compared with the manifest: {error}") from None
    if not same:
        raise unusable(directory, f"{name} differs from the manifest")


def _foreign(directory: Path) -> str:
    pickles = sorted(path.name for path in directory.iterdir() if path.suffix in _PICKLES)
    if pickles:
        return f"{pickles[0]} is a pickle; loading it would execute code, so it is refused"
    return f"no {NAME}; the directory is empty, was not finished, or belongs to another program"


def _sha256(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
