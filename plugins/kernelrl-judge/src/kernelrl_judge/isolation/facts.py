"""Layers of isolation in force on this machine, as `kernelrl doctor` shows them."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator

from kernelrl_core.api.config import MachineFact

__all__ = ["isolation_facts"]


def isolation_facts() -> Iterator[MachineFact]:
    """The level in force, and each missing layer with its fix."""
    # The measurement isolates a process for real, which must not be this one.
    done = subprocess.run(
        [sys.executable, "-P", "-m", "kernelrl_judge.isolation.layers"], capture_output=True, text=True, check=False
    )
    try:
        found = json.loads(done.stdout)
    except ValueError:
        last = done.stderr.strip().splitlines()[-1:] or ["no output"]
        yield MachineFact("isolation", last[0], "broken", "python -m kernelrl_judge.isolation.layers")
        return
    layers = ", ".join(layer.replace("_", " ") for layer in found["in_force"])
    yield MachineFact("isolation", f"level {found['level']} of 4: {layers or 'nothing'}")
    for layer, fix in found["missing"].items():
        yield MachineFact(f"isolation {layer}", "candidates are not kept apart by it", "weak", fix)
