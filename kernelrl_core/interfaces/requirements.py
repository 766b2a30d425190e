"""Prerequisites of a component, and their check, which does not import the component."""

from __future__ import annotations

import importlib.util
import os
import shutil
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

import attrs

from kernelrl_devices.gpus import gpu_vendors

__all__ = ["Missing", "Requires", "missing_requirements"]

_URL_TIMEOUT_S = 2.0


@attrs.frozen
class Requires:
    """Prerequisites of a component. The core checks them without calling the component's code."""

    modules: tuple[str, ...] = ()
    """Python modules, such as `triton`. The check does not import them."""
    executables: tuple[str, ...] = ()
    """Programs on PATH, such as `nvcc`."""
    environment: tuple[str, ...] = ()
    """Environment variables that must be set and non-empty, such as `TINKER_API_KEY`."""
    gpu: Literal["", "any", "nvidia", "amd"] = ""
    """A GPU of this vendor."""
    files: tuple[str, ...] = ()
    """Paths of files or directories that must exist."""
    url: str = ""
    """URL of a server that must accept connections."""
    absent: tuple[str, ...] = ()
    """Prerequisites that the options found absent by themselves, such as `a Modal token`."""
    fix: str = ""
    """Command or change that provides the missing item; empty: the default for each item. `BACKEND` in it is
    replaced by the name of the recipe's backend."""

    def __attrs_post_init__(self) -> None:
        # Text is a sequence, too: of letters.
        for name in ("modules", "executables", "environment", "files", "absent"):
            value = getattr(self, name)
            if isinstance(value, str) or not all(isinstance(item, str) for item in value):
                raise TypeError(f"Requires.{name} must be a tuple of text, got {value!r}; write ({value!r},)")


@attrs.frozen
class Missing:
    """A prerequisite that this machine lacks."""

    what: str
    """Type and name, such as `program nvcc`. Never the value of a variable."""
    fix: str
    """Command or change that provides it."""


def missing_requirements(requires: Requires) -> tuple[Missing, ...]:
    """The prerequisites in `requires` that this machine lacks, in the order of the fields."""
    return tuple(Missing(what, requires.fix or fix) for what, fix in _absent(requires))


def _absent(requires: Requires) -> Iterator[tuple[str, str]]:
    for module in requires.modules:
        if not _importable(module):
            # A module need not have the name of its package, and the package of its name may be anybody's.
            yield f"Python module {module}", f"install the package that provides {module.partition('.')[0]}"
    for program in requires.executables:
        if shutil.which(program) is None:
            yield f"program {program}", f"install {program} and put it on PATH"
    for variable in requires.environment:
        if not os.environ.get(variable):
            yield f"environment variable {variable}", f"export {variable}=…, or write it into .env"
    if requires.gpu:
        vendors = gpu_vendors()
        if not (vendors if requires.gpu == "any" else requires.gpu in vendors):
            named = {"any": "a GPU", "nvidia": "an NVIDIA GPU", "amd": "an AMD GPU"}[requires.gpu]
            yield named, f"run on a machine with {named} and its driver"
    for path in requires.files:
        if not Path(path).exists():
            yield f"file {path}", f"create {path}"
    for what in requires.absent:
        yield what, f"provide {what}"
    if requires.url and not _answers(requires.url):
        yield f"server at {requires.url}", "start the server, or correct the address"


def _importable(module: str) -> bool:
    # Only the top package: find_spec of a submodule would import its parents.
    try:
        return importlib.util.find_spec(module.partition(".")[0]) is not None
    except (ImportError, ValueError):
        return False


def _answers(url: str) -> bool:
    parts = urlsplit(url if "//" in url else f"//{url}")
    try:
        port = parts.port or (443 if parts.scheme == "https" else 80)
        with socket.create_connection((parts.hostname or "", port), timeout=_URL_TIMEOUT_S):
            return True
    except (OSError, ValueError):
        return False
