"""Whether this machine can confine judges, and what they see. Imports no torch."""

from __future__ import annotations

import asyncio
import functools
import json
import os
import sys
from collections.abc import Sequence

from kernelrl_core.api.components import registry
from kernelrl_core.api.errors import MissingPrerequisite
from kernelrl_sandbox.layers import FIXES

__all__ = ["cannot_confine", "require_layers", "visible_packages"]

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


@functools.cache
def visible_packages() -> tuple[str, ...]:
    """Packages that a confined judge may have to import: those of the backends, and those of this project."""
    found = {component.target.partition(":")[0].partition(".")[0] for component in registry().components("backends")}
    for directory in filter(os.path.isdir, sys.path):
        with os.scandir(directory) as entries:
            found |= {
                entry.name
                for entry in entries
                if entry.name.startswith(_OWN) and entry.name.isidentifier() and entry.is_dir()
            }
    return tuple(sorted(found))
