"""Cancellation of an evaluation: the main process sends a message while the judge works."""

from __future__ import annotations

import select

__all__ = ["CancelWatch", "Cancelled"]


class Cancelled(Exception):
    """No caller waits for this evaluation any more."""


class CancelWatch:
    """Notices that the main process cancels the evaluation.

    Args:
        descriptor: becomes readable when that may be so, and stays readable if it is.
    """

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor

    def is_cancelled(self) -> bool:
        """Whether the evaluation is cancelled. Does not block."""
        readable, _, _ = select.select([self.descriptor], [], [], 0)
        return bool(readable)

    def check(self) -> None:
        """
        Raises:
            Cancelled: the evaluation is cancelled.
        """
        if self.is_cancelled():
            raise Cancelled
