"""Where the outputs of the calls of a window lay, and whether their memory is still somebody's, without keeping any."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import attrs

from kernelrl_judge.mappings import also_elsewhere

__all__ = ["ReturnedMemory"]


@attrs.frozen
class _Kept:
    """The memory of an output that was there when its window had ended."""

    reference: int
    """A weak one, to torch's storage."""
    call: int


class ReturnedMemory:
    """The memory of outputs, from window to window.

    An output that nobody kept may lie where an earlier one lay. Whose memory somebody kept is there when the window has
    ended; and when a later one lies in it, both are one.
    """

    def __init__(self) -> None:
        self._noted: list[tuple[int, int]] = []
        self._kept: dict[int, _Kept] = {}
        self._calls = 0
        self.overwrites: set[int] = set()
        """Which outputs lie in memory that an earlier call returned and that was never given back: numbers among the
        tensors of an output."""

    def note(self, output: Any) -> None:
        """Take note of the next tensor of an output."""
        self._noted.append((output.data_ptr(), output.untyped_storage()._weak_ref()))

    def forget(self) -> None:
        """Leave out what has been noted since a window was looked at."""
        import torch

        for _, reference in self._noted:
            torch.UntypedStorage._free_weak_ref(reference)
        self._noted = []

    def look(
        self, width: int, given: Sequence[Sequence[Any]], held: Iterable[Any], *, on_host: bool = False
    ) -> list[list[int]]:
        """Look at the outputs of a window, after it.

        Args:
            width: tensors of an output.
            given: tensors of the inputs of each call.
            held: parameters and buffers.
            on_host: look as well for memory of the host that has two addresses, in which any two may be one.

        Returns:
            `[i, -1 - j]` where an output i began in input j of its call, `[i, OF_MODULE]` where it did in one of those
            that are held.
        """
        import torch

        from kernelrl_judge.sharing import OF_MODULE, extent

        found: set[tuple[int, int]] = set()
        inputs = [[extent(tensor) for tensor in tensors] for tensors in given]
        state = [extent(tensor) for tensor in held]
        noted, self._noted = self._noted, []
        twice = also_elsewhere({begin for begin, _ in noted}) if on_host else set()
        for place, (begin, reference) in enumerate(noted):
            call, number = divmod(place, width)
            spans = inputs[call] if call < len(inputs) else []
            within = [-1 - other for other, (first, end) in enumerate(spans) if first <= begin < end]
            within += [OF_MODULE for first, end in state if first <= begin < end]
            found.update((number, other) for other in within)
            if begin in twice:
                self.overwrites.add(number)
            gone = not begin or within or torch.UntypedStorage._expired(reference)
            known = None if gone else self._kept.get(begin)
            if known is not None and not torch.UntypedStorage._expired(known.reference):
                if known.call != self._calls + call:
                    self.overwrites.add(number)
                gone = True
            if gone:
                torch.UntypedStorage._free_weak_ref(reference)
            else:
                if known is not None:
                    torch.UntypedStorage._free_weak_ref(known.reference)
                self._kept[begin] = _Kept(reference, self._calls + call)
        self._calls += len(noted) // max(1, width) + 1
        return sorted(map(list, found))
