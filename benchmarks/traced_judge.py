"""The judge process of `evaluation_trace.py`: the judge as it is, with a profile function while it serves a request.

    python -P benchmarks/traced_judge.py FILE

Appends one line of JSON to FILE for each request: module -> module that it was entered from -> entries.
`evaluation_trace.py` defines an entry. Only the thread that serves requests is traced. Processes that are forked from
the judge are not traced.
"""

from __future__ import annotations

import json
import os
import sys
from collections import Counter
from pathlib import Path
from types import FrameType
from typing import Any

PACKAGES = ("kernelrl_judge", "kernelrl_build", "kernelrl_sandbox")
_PREFIXES = tuple(f"{package}." for package in PACKAGES)


class Entries:
    """Counts the entries into modules of `PACKAGES` between `start` and `stop`."""

    def __init__(self) -> None:
        self._counts: dict[str, Counter[str]] = {}

    def start(self, reader: FrameType | None) -> None:
        """Begin with an entry into the module that has read the request.

        Args:
            reader: frame that reads the request.
        """
        self._counts = {nearest_module(reader): Counter({"request": 1})}
        sys.setprofile(self._count)

    def stop(self) -> dict[str, dict[str, int]]:
        """Stop counting, and return the entries by module and by module that they came from."""
        sys.setprofile(None)
        return {module: dict(callers.most_common()) for module, callers in self._counts.items()}

    def _count(self, frame: FrameType, event: str, argument: Any) -> None:
        if event != "call":
            return
        module = module_of(frame)
        # The body of a module is executed by an import, which is no entry.
        if not module or frame.f_code.co_name == "<module>":
            return
        caller = nearest_module(frame.f_back)
        if caller != module:
            self._counts.setdefault(module, Counter())[caller] += 1


def module_of(frame: FrameType) -> str:
    """Name of the module of a frame; empty if it belongs to none of `PACKAGES`."""
    name = str(frame.f_globals.get("__name__", ""))
    return name if name in PACKAGES or name.startswith(_PREFIXES) else ""


def nearest_module(frame: FrameType | None) -> str:
    """Module of the nearest frame that belongs to one of `PACKAGES`, from a frame outwards; empty if there is none."""
    while frame is not None:
        module = module_of(frame)
        if module:
            return module
        frame = frame.f_back
    return ""


def main() -> None:
    from kernelrl_judge.judge import main as judge
    from kernelrl_judge.protocol import wire

    output = Path(sys.argv[1])
    entries = Entries()
    read, pack = wire.read, wire.pack
    serving = False

    def traced_read(stream: Any) -> Any:
        nonlocal serving
        message = read(stream)
        if message is not None and "request" in message:
            serving = True
            entries.start(sys._getframe(1))
        return message

    def traced_pack(message: Any) -> bytes:
        nonlocal serving
        # `slow` precedes the reply.
        if serving and "slow" not in message:
            serving = False
            counts = entries.stop()
            with output.open("a") as file:
                file.write(json.dumps(counts) + "\n")
        return pack(message)

    os.register_at_fork(after_in_child=lambda: sys.setprofile(None))
    wire.read, wire.pack = traced_read, traced_pack
    try:
        judge.main(sys.argv[2:])
    finally:
        sys.setprofile(None)


if __name__ == "__main__":
    main()
