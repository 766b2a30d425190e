"""Whether this machine can confine judges, and what they see. Imports no torch."""

from __future__ import annotations

import asyncio
import functools
import json
import os
import sys
from collections.abc import Mapping, Sequence

from kernelrl_core.api.components import registry
from kernelrl_core.api.errors import MissingPrerequisite
from kernelrl_sandbox.layers import FIXES
from kernelrl_sandbox.seclusion import SCRATCH

__all__ = ["CONFINED_VARIABLES", "cannot_confine", "confined_arguments", "require_layers", "start_variables"]

CONFINED_VARIABLES: Mapping[str, str] = {
    **dict.fromkeys(("HOME", "TMPDIR"), SCRATCH),
    "KERNELRL_CACHE_DIR": f"{SCRATCH}/cache",
    "TORCHINDUCTOR_CACHE_DIR": f"{SCRATCH}/inductor",
}
"""Variables of a confined process, instead of the user's."""

_START_PREFIXES = ("PATH", "LC_", "LANG", "LD_", "PYTHON", "TORCH", "PYTORCH", "CUDA", "HIP", "ROC", "NVIDIA")
_MEMORY_SHARE = 0.6
"""Share of the machine's memory that a confined process may take."""
_PROBE = ("-P", "-m", "kernelrl_sandbox.layers", "judge")
_OWN = "kernelrl_"


def cannot_confine(missing: Sequence[str]) -> MissingPrerequisite:
    """The error where a judge cannot be confined.

    Args:
        missing: isolation layers that this machine lacks.
    """
    layers = ", ".join(layer.replace("_", " ") for layer in missing)
    return MissingPrerequisite(
        f"tasks of others are not evaluated here: their judge cannot be confined; isolation layers missing: {layers}",
        fix=FIXES.get(missing[0], "kernelrl doctor"),
        see="confinement",
    )


async def require_layers() -> None:
    """Check that judges can be confined on this machine, in a process that enters the sandbox of a judge.

    Raises:
        MissingPrerequisite: isolation layers are missing.
    """
    process = await asyncio.create_subprocess_exec(sys.executable, *_PROBE, stdout=asyncio.subprocess.PIPE)
    output, _ = await process.communicate()
    try:
        missing = json.loads(output)
    except ValueError:
        missing = ["mount_namespace"]
    if missing:
        raise cannot_confine(missing)


def start_variables(variables: Mapping[str, str], more: Sequence[str] = ()) -> dict[str, str]:
    """The variables that interpreter and libraries read when they are loaded. These hold no secrets: candidates may
    find them in memory, because they run in descendants of the judge.

    Args:
        variables: all of the user.
        more: names of further variables without secrets.
    """
    return {name: value for name, value in variables.items() if name.startswith(_START_PREFIXES) or name in more}


def confined_arguments() -> tuple[str, ...]:
    """Arguments with which a process that executes tasks confines itself: `confined MEMORY_BYTES PACKAGE...`."""
    memory_bytes = int(_MEMORY_SHARE * os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    return ("confined", str(memory_bytes), *_visible_packages())


@functools.cache
def _visible_packages() -> tuple[str, ...]:
    """Packages that a confined process may have to import: those of the backends, and those of this project."""
    found = {component.target.partition(":")[0].partition(".")[0] for component in registry().components("backends")}
    for directory in filter(os.path.isdir, sys.path):
        with os.scandir(directory) as entries:
            found |= {
                entry.name
                for entry in entries
                if entry.name.startswith(_OWN) and entry.name.isidentifier() and entry.is_dir()
            }
    return tuple(sorted(found))
