"""What calls of a candidate do beside returning outputs, as a runner sees it; the judge's side is `effects`."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from kernelrl_judge.runner_memory import tensors
from kernelrl_judge.runner_state import State

__all__ = ["Effects", "watched"]

_MOST_SHARES = 256


class Effects:
    """Memory that outputs share with each other, with inputs, with the state, and with outputs of earlier calls."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._made: list[list[Any]] = []
        self._given: Any = None
        self._given_before: Any = None

    def forget(self) -> None:
        """Keep nothing of earlier calls any more."""
        self._made = []
        self._given = self._given_before = None

    def shares(self, outputs: Any, given: list[Any]) -> list[list[int]]:
        """Pairs of tensors with memory in common, among outputs, inputs, and the state that the judge gave."""
        from kernelrl_judge.sharing import shared_memory

        return shared_memory([*tensors(outputs)], given, self._state.given())[:_MOST_SHARES]

    def held_bytes(self, outputs: Any, given: list[Any]) -> int:
        """Bytes that outputs keep from being given back, beside inputs and the state that the judge gave."""
        from kernelrl_judge.sharing import held_bytes

        return held_bytes([*tensors(outputs)], [given, self._state.given()])

    def overwrites(self, outputs: Any, given: list[Any], keep: int, before: Sequence[Any] = ()) -> list[int]:
        """Which outputs lie where those of earlier calls lie, or what was there before the call: numbers among the
        tensors.

        Args:
            keep: of how many calls outputs are kept here, this one among them.
            before: from `State.kept`, before the call.
        """
        from kernelrl_judge.sharing import shared_memory

        made = [*tensors(outputs)]
        kept = [*before, *(tensor for call in self._made for tensor in call if tensor is not None)]
        found = {pair[0] for pair in shared_memory(made, kept) if pair[1] < 0}
        # The judge writes to inputs again.
        within = {pair[0] for pair in shared_memory(made, given) if pair[1] < 0}
        own = [None if index in within else tensor.detach() for index, tensor in enumerate(made)]
        self._made = [*self._made, own][-keep:] if keep else []
        return sorted(found - within)[:_MOST_SHARES]

    def hold(self, given: Any, *, elsewhere: bool) -> None:
        """Keep the inputs of a call, and those of the last one whose inputs lay elsewhere.

        Args:
            elsewhere: whether they lie elsewhere than those of the call before.
        """
        if elsewhere:
            self._given_before = self._given
        self._given = given

    def kept(self, back: list[int]) -> list[Any]:
        """What is kept, as it is now: outputs of calls, of which 0 is the last, and inputs that lay elsewhere."""
        return [[self._made[-1 - number] for number in back], self._given_before]


def watched(
    asked: Any,
    staged: list[Any],
    shares: Callable[[Any, list[Any]], list[list[int]]],
    order: Callable[[Callable[[int, Any], None]], None],
) -> dict[str, Any]:
    """A window that nobody pays for, like others for the candidate until now, and timed like them.

    Args:
        asked: which calls to look at, and whether to list operators.
        staged: arguments of each call.
        shares: `Effects.shares`.
        order: waits for the order of the window and makes it; calls what it is given with the number of each call and
            its output.

    Returns:
        What was seen.
    """
    from kernelrl_judge.listing import Listing
    from kernelrl_judge.operators import called
    from kernelrl_judge.provenance import Watch

    given = {index: [*tensors(staged[index])] for index in asked["calls"]}
    made: dict[int, Any] = {}
    listing = Watch()
    overwrites: set[int] = set()
    looking_s = 0.0

    def look(index: int, value: Any) -> None:
        nonlocal looking_s
        began = time.perf_counter()
        later = [*tensors(value)]
        overwrites.update(place for earlier in made.values() for place in _in_one_place(later, [*tensors(earlier)]))
        if index in given:
            made[index] = value
        looking_s += time.perf_counter() - began

    def listed() -> None:
        # To sum up memory would take too long here.
        Listing.begin(listing)
        listing.spent_s = 0.0
        order(look)

    found: list[Any] = []
    if asked["operators"]:
        _, found = called(listed, listing)
    else:
        order(look)
    pairs = [pair for index, value in made.items() for pair in shares(value, given[index])]
    seen: dict[str, Any] = {"operators": found, "shares": pairs}
    of_inputs = {pair[0] for pair in pairs if pair[1] < 0}
    seen |= {"overwrites": sorted(overwrites - of_inputs)[:_MOST_SHARES]}
    return seen | {"looking_s": looking_s + listing.spent_s, "listed": [*listing.seen]}


def _in_one_place(later: list[Any], earlier: list[Any]) -> list[int]:
    """Which tensors lie where one of the earlier ones lies. Without torch, of which operators are written down."""
    extents = [
        [(tensor.data_ptr(), tensor.data_ptr() + tensor.numel() * tensor.element_size()) for tensor in given]
        if all(tensor.is_contiguous() for tensor in given)
        else []
        for given in (later, earlier)
    ]
    return [
        index
        for index, (begin, end) in enumerate(extents[0])
        if any(begin < last and first < end for first, last in extents[1])
    ]
