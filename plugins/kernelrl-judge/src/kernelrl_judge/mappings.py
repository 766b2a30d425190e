"""Memory that a process has at more than one address."""

from __future__ import annotations

from collections.abc import Iterable

import attrs

__all__ = ["also_elsewhere"]


@attrs.frozen
class _Mapping:
    begin: int
    end: int
    file: tuple[str, str]
    """Device and number."""
    offset: int

    def of_file(self, address: int) -> int:
        return self.offset + address - self.begin

    def holds(self, place: int) -> bool:
        return self.offset <= place < self.offset + self.end - self.begin


def also_elsewhere(addresses: Iterable[int], maps: str | None = None) -> set[int]:
    """Which addresses of host memory lie in memory that is mapped at others as well.

    Args:
        maps: of the process, as `/proc/PID/maps` has it; of this one if None.
    """
    if maps is None:
        try:
            with open("/proc/self/maps", encoding="utf-8", errors="replace") as file:
                maps = file.read()
        except OSError:
            return set()
    shared = [*filter(None, map(_shared, maps.splitlines()))]
    found = set()
    for address in addresses:
        mine = next((mapping for mapping in shared if mapping.begin <= address < mapping.end), None)
        if mine is None:
            continue
        place = mine.of_file(address)
        if any(other is not mine and other.file == mine.file and other.holds(place) for other in shared):
            found.add(address)
    return found


def _shared(line: str) -> _Mapping | None:
    """The mapping of a line, if what is written there is written to its file, or to shared memory without a name."""
    parts = line.split(maxsplit=5)
    if len(parts) < 5 or parts[1][3:4] != "s":
        return None
    begin, end = (int(number, 16) for number in parts[0].split("-"))
    return _Mapping(begin, end, (parts[3], parts[4]), int(parts[2], 16))
