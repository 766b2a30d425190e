"""The line of a candidate that added a node to a graph, or that made its capture invalid."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

__all__ = ["FollowedCall"]


class FollowedCall:
    """A call of a function that notes after each line of a file how many nodes were captured.

    Args:
        path: of the file.
        captured: returns the number of nodes, or None once the capture is invalid.
    """

    def __init__(self, function: Callable[..., Any], path: str, captured: Callable[[], int | None]) -> None:
        self._function = function
        self._path = path
        self._captured = captured
        self._line = 0
        """The line that is being executed; 0 outside of the file."""
        self._notes: list[tuple[int, int | None]] = []
        """Each executed line with the number of nodes after it."""

    def __call__(self, *arguments: Any) -> Any:
        trace_before = sys.gettrace()
        sys.settrace(self._follow)
        try:
            return self._function(*arguments)
        finally:
            sys.settrace(trace_before)
            self._note(0)

    def line_of_node(self, node: int) -> int:
        """The line that added a node; 0 if no line did."""
        return next((line for line, count in self._notes if count is not None and count > node), 0)

    def line_of_error(self) -> int:
        """The line that made the capture invalid; 0 if no line did."""
        return next((line for line, count in self._notes if count is None), 0)

    def _follow(self, frame: FrameType, event: str, _: Any) -> Any:
        if frame.f_code.co_filename != self._path:
            return None
        caller = frame.f_back
        if event == "return" and caller is not None and caller.f_code.co_filename == self._path:
            # The rest of the caller's line is executed next.
            frame = caller
        self._note(frame.f_lineno)
        return self._follow

    def _note(self, next_line: int) -> None:
        if self._line:
            self._notes.append((self._line, self._captured()))
        self._line = next_line
