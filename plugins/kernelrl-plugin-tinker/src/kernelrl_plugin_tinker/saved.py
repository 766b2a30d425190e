"""What a run has saved at the server, and what of it may go."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

import attrs

__all__ = ["STATE_FILE", "SavedPaths", "SavedState", "seconds_to_live"]

STATE_FILE = "tinker.json"
_KEPT_SAMPLERS = 3
"""Newest sampler weights that stay although no checkpoint refers to them: replies may still be drawn from them."""
_LEAST_TTL_S = 3600


@attrs.frozen
class SavedState:
    """`tinker://` paths of one moment of training."""

    state: str | None = None
    """Weights and optimizer; None before the first checkpoint."""
    sampler: str | None = None
    """Weights to sample from; None: the base model."""
    first_sampler: str | None = None
    """Weights at the start of a run that began with saved state: the reference of a KL penalty."""

    def trained(self, sampler: str) -> SavedState:
        """After a step; the state is still that of the last checkpoint."""
        return attrs.evolve(self, sampler=sampler)

    def paths(self) -> Iterator[tuple[str, str]]:
        """Name and path of each that there is."""
        for name, path in attrs.asdict(self).items():
            if path is not None:
                yield name, path

    def to_json(self) -> dict[str, Any]:
        return attrs.asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> SavedState:
        return cls(data["state"], data["sampler"], data.get("first_sampler"))


class SavedPaths:
    """Everything that is known to lie at the server."""

    def __init__(self) -> None:
        self._by_checkpoint: dict[str, SavedState] = {}
        self._samplers: list[str] = []
        """Of steps, oldest first; before them what no checkpoint needs."""
        self._newest = ""

    def add(self, state: SavedState, checkpoint: str) -> None:
        replaced = self._by_checkpoint.get(checkpoint, state)
        self._samplers[:0] = (path for _, path in replaced.paths() if replaced != state)
        self._by_checkpoint[checkpoint] = state
        self._newest = checkpoint

    def training_runs(self) -> list[str]:
        """Those at the server that checkpoints were saved by."""
        paths = (path for state in self._by_checkpoint.values() for _, path in state.paths())
        return list(dict.fromkeys(path.removeprefix("tinker://").split("/")[0] for path in paths))

    def add_sampler(self, path: str) -> None:
        self._samplers.append(path)

    def add_found(self, path: str, steps: int) -> None:
        """What an earlier process left: samplers of its steps, and checkpoints from before the one after so many steps.

        Checkpoints after it may belong to a copy of the run that went on.
        """
        kind, _, number = path.rpartition("/")[2].rpartition("-")
        if kind == "step":
            self._samplers.append(path)
        elif kind == "checkpoint" and number.isdecimal() and int(number) < steps:
            self._samplers.insert(0, path)

    def superfluous(self, kept: Collection[str]) -> list[str]:
        """Paths that may be deleted, which are forgotten here.

        Args:
            kept: names of the checkpoints that the run still has, beside the newest.
        """
        gone = {name: s for name, s in self._by_checkpoint.items() if name not in kept and name != self._newest}
        for name in gone:
            del self._by_checkpoint[name]
        needed = {path for state in self._by_checkpoint.values() for _, path in state.paths()}
        needed.update(self._samplers[-_KEPT_SAMPLERS:])
        old = [path for state in gone.values() for _, path in state.paths()] + self._samplers[:-_KEPT_SAMPLERS]
        self._samplers = self._samplers[-_KEPT_SAMPLERS:]
        return list(dict.fromkeys(path for path in old if path not in needed))


def seconds_to_live(days: float | None) -> int | None:
    """Time to live as the server wants it: an hour at least; None is for ever."""
    return None if days is None else max(_LEAST_TTL_S, int(days * 86400))
