"""Results of earlier builds, read from disk without starting a process."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kernelrl_judge.build.request import InlineRequest
from kernelrl_judge.build.store import BuildStore
from kernelrl_judge.build.toolchain import Toolchain, ToolchainMissing, known_toolchain

__all__ = ["kept_answer", "keys", "store_of"]

_MAX_BYTES = 4 << 30


def store_of(order: Mapping[str, Any]) -> BuildStore:
    """The store that an order belongs to."""
    return BuildStore(Path(order["directory"]), _MAX_BYTES)


def keys(order: Mapping[str, Any], request: InlineRequest, toolchain: Toolchain) -> tuple[str, str]:
    """Where an answer is kept: in general, and one that comes from a limit, which holds under the same limits.

    An order with a `scope` shares neither with any other.
    """
    found = f"{toolchain.id}{order.get('scope', '')}"
    return request.key(found), request.key(f"{found} {order['timeout_s']} {order['memory_mib']}")


def kept_answer(order: Mapping[str, Any]) -> dict[str, Any] | None:
    """The answer to an order where one is kept, otherwise None; torch is not asked and nothing is made."""
    request = InlineRequest.from_json(order["request"])
    try:
        toolchain = known_toolchain(request.language, Path(order["directory"]))
    except ToolchainMissing:
        return None
    if toolchain is None:
        return None
    store = store_of(order)
    found = next((found for key in keys(order, request, toolchain) if (found := store.read(key)) is not None), None)
    return {**found, "cached": True} if found is not None else None
