"""Architectures of AMD GPUs: detection, and facts for prompts."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

__all__ = ["arch_facts", "chosen_archs", "installed_archs"]

_NODES = Path("/sys/class/kfd/kfd/topology/nodes")
_WITHOUT_GPU = "gfx90a"
_LDS_KIB = {"gfx90a": 64, "gfx942": 64, "gfx950": 160}


def chosen_archs(option: str | Sequence[str]) -> tuple[str, ...]:
    """Architectures that the option `arch` selects on this machine."""
    if option == "auto":
        return installed_archs() or (_WITHOUT_GPU,)
    return (option,) if isinstance(option, str) else tuple(option)


def installed_archs(nodes: Path = _NODES) -> tuple[str, ...]:
    """Architectures of the AMD GPUs of this machine, as listed by the kernel driver; loads no library."""
    found = []
    for path in sorted(nodes.glob("*/properties")):
        try:
            version = re.search(r"^gfx_target_version (\d+)$", path.read_text(), re.MULTILINE)
        except OSError:
            continue
        # CPUs are nodes, too, with version 0.
        if version and (number := int(version.group(1))):
            major, minor, stepping = number // 10_000, number // 100 % 100, number % 100
            found.append(f"gfx{major}{minor:x}{stepping:x}")
    return tuple(dict.fromkeys(found))


def arch_facts(archs: Sequence[str]) -> str:
    """A sentence on the architectures, for prompts, with facts that hold for all of them."""
    plain = [arch.partition(":")[0] for arch in archs]
    facts = []
    if all(arch.startswith("gfx9") for arch in plain):
        facts.append("a wavefront has 64 lanes")
    local_kib = [_LDS_KIB.get(arch) for arch in plain]
    if None not in local_kib:
        facts.append(f"a block has up to {min(filter(None, local_kib))} KiB of shared memory")
    known = f": {', '.join(facts)}" if facts else ""
    return f"The code is compiled for {', '.join(plain)}{known}."
