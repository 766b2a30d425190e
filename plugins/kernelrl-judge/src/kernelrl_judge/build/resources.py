"""What the compiler says that a kernel needs."""

from __future__ import annotations

import re
from typing import Any

__all__ = ["read_resources"]

_FRAME = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
_USED = re.compile(r"Used (\d+) registers(?:.*?(\d+) bytes smem)?")


def read_resources(log: str) -> dict[str, dict[str, Any]]:
    """Registers, spills, stack and static shared memory of each kernel by its symbol, from the report of ptxas.

    Names are shortened to what the source calls them.
    """
    found = {}
    for report in log.split("Compiling entry function '")[1:]:
        symbol = report.partition("'")[0]
        _, _, properties = report.partition(f"Function properties for {symbol}\n")
        frame, used = _FRAME.match(properties.lstrip()), _USED.search(report)
        kernel: dict[str, Any] = {"name": _short(symbol)}
        if frame:
            names = ("stack_bytes", "spill_stores_bytes", "spill_loads_bytes")
            kernel |= dict(zip(names, map(int, frame.groups()), strict=True))
        if used:
            kernel |= {"registers": int(used[1]), "shared_bytes": int(used[2] or 0)}
        found[symbol] = kernel
    return found


def _short(symbol: str) -> str:
    """The name that a mangled symbol carries: `_Z9addKernelPKf` is `addKernel`."""
    nested = symbol.startswith("_ZN")
    rest, name = symbol.removeprefix("_ZN" if nested else "_Z"), ""
    while (digits := re.match(r"\d+", rest)) and (nested or not name):
        end = digits.end() + int(digits[0])
        name, rest = rest[digits.end() : end], rest[end:]
    return name or symbol
