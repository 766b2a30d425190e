"""Registers, spills and shared memory of kernels, from the compiler's output."""

from __future__ import annotations

import re
from typing import Any

__all__ = ["read_resources"]

_ENTRY = re.compile(r"(?:Compiling entry function|Function properties for) '?([\w$.]+)'?")
_FRAME = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
_USED = re.compile(r"Used (\d+) registers")
_SHARED = re.compile(r"(\d+) bytes smem")


def read_resources(log: str) -> list[dict[str, Any]]:
    """Registers, spills, stack and static shared memory of each kernel, from the report of ptxas.

    Names are shortened to what the source calls them.
    """
    found: dict[str, dict[str, Any]] = {}
    current: dict[str, Any] | None = None
    for line in log.splitlines():
        entry = _ENTRY.search(line)
        if entry:
            if "Compiling" in line:
                current = found.setdefault(entry.group(1), {"name": _short(entry.group(1))})
            else:
                current = found.get(entry.group(1))
        if current is None:
            continue
        if frame := _FRAME.search(line):
            stack, stores, loads = map(int, frame.groups())
            current |= {"stack_bytes": stack, "spill_stores_bytes": stores, "spill_loads_bytes": loads}
        if used := _USED.search(line):
            current["registers"] = int(used.group(1))
            shared = _SHARED.search(line)
            current["shared_bytes"] = int(shared.group(1)) if shared else 0
    return [kernel for kernel in found.values() if "registers" in kernel]


def _short(symbol: str) -> str:
    """The name that a mangled symbol carries: `_Z9addKernelPKf` is `addKernel`."""
    match = re.match(r"_ZN?(.*)", symbol)
    rest, parts = (match.group(1) if match else ""), []
    while digits := re.match(r"(\d+)", rest):
        length = int(digits.group(1))
        parts.append(rest[digits.end() : digits.end() + length])
        rest = rest[digits.end() + length :]
        if not symbol.startswith("_ZN"):
            break
    return parts[-1] if parts else symbol
