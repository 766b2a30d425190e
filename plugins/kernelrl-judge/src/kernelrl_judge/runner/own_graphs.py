"""CUDA graphs that a candidate captures itself: a replay executes the operators and launches of the capture.

A call that replays such a graph cannot be recorded, and no operator is called in it.
"""

from __future__ import annotations

import contextlib
from typing import Any

import torch

from kernelrl_judge.runner import operators
from kernelrl_judge.runner.operators import Listing

__all__ = ["install", "watched"]


def install() -> None:
    """Replace torch's class of graphs in this process permanently, before the candidate is loaded."""
    found = watched(torch.cuda.CUDAGraph)
    for module in (torch.cuda, torch.cuda.graphs):
        vars(module)["CUDAGraph"] = found


def watched(graph_class: Any) -> Any:
    """A subclass of a class of graphs whose replays add what their capture executed to the list of the current call."""

    class CUDAGraph(graph_class):  # type: ignore[misc]
        def capture_begin(self, *arguments: Any, **named: Any) -> None:
            super().capture_begin(*arguments, **named)
            self._listing = Listing([])
            self._contexts = contextlib.ExitStack()
            self._contexts.enter_context(self._listing.active())

        def capture_end(self) -> None:
            self._listing.finish()
            self._contexts.close()
            super().capture_end()

        def replay(self) -> None:
            listing = getattr(self, "_listing", None)
            if listing is not None and operators.current is not None:
                operators.current.add_all(listing)
            super().replay()

    return CUDAGraph
