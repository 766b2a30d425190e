"""A candidate's last calls, as its runner makes them; the judge's side is `later_calls`."""

from __future__ import annotations

import functools
import random
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import attrs

from kernelrl_judge import process_settings
from kernelrl_judge.failures import Stage
from kernelrl_judge.protocol import Frame, FrameKind
from kernelrl_judge.runner_candidate import Candidate
from kernelrl_judge.value_trees import decode_tree

__all__ = ["Later", "LaterCall", "at_once", "later_call"]

_SEEDS = 1 << 31
_LONG_S = 0.1
_LEAST_ROUNDS = 2


@attrs.frozen
class LaterCall:
    """What a call gave."""

    value: Any
    error: BaseException | None
    """What was raised in the place of a value."""
    changed: list[str]
    """Settings of the process that are not what they were before the candidate was loaded, or before the call."""


def later_call(
    call: Callable[[], Any],
    read: Callable[[], process_settings.Settings],
    loaded: process_settings.Settings,
    *,
    threads: int,
    gradients: bool,
) -> LaterCall:
    """Make a call where settings are not those that it would choose.

    Args:
        read: from `process_settings.reading`.
        loaded: what it gave before the candidate was loaded.
        threads: how many there are; 0 leaves their number as it is.
        gradients: whether they are enabled.
    """
    import torch

    changed = process_settings.changed(loaded, read(), without=process_settings.DRAWN | process_settings.OF_ORDERS)
    numbers = torch.get_num_threads()
    with torch.set_grad_enabled(gradients):
        if threads:
            torch.set_num_threads(threads)
        torch.default_generator.manual_seed(random.SystemRandom().randrange(_SEEDS))
        before = read()
        value, error = None, None
        try:
            value = call()
        except BaseException as raised:
            error = raised
        changed += process_settings.changed(before, read(), without=process_settings.DRAWN)
    if threads:
        torch.set_num_threads(numbers)
    return LaterCall(value, error, [*dict.fromkeys(changed)])


def at_once(calls: Sequence[Callable[[], Any]], rounds: int) -> list[list[Any]]:
    """Make calls at the same time, each in a thread of its own, again and again.

    Args:
        rounds: how often at most; fewer where they take long.

    Returns:
        For each round that all threads have made, what the calls gave.
    """
    import torch

    begin = threading.Barrier(len(calls))
    found: list[list[Any]] = [[] for _ in calls]
    raised: list[BaseException] = []

    def make(call: Callable[[], Any], into: list[Any]) -> None:
        try:
            begin.wait(_LONG_S * 10)
            until = time.monotonic() + _LONG_S
            with torch.no_grad():
                while len(into) < rounds and (len(into) < _LEAST_ROUNDS or time.monotonic() < until):
                    into.append(call())
        except BaseException as error:
            raised.append(error)

    threads = [threading.Thread(target=make, args=pair) for pair in zip(calls, found, strict=True)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if raised:
        raise raised[0]
    return [[*made] for made in zip(*found, strict=False)]


class Later:
    """The last calls of a candidate."""

    def __init__(self, candidate: Candidate) -> None:
        self._candidate = candidate

    def call(self, frame: Frame) -> None:
        """Make one and export what it returned."""
        order = decode_tree(frame.body)
        candidate, attempt = self._candidate, self._candidate.dialogue.attempt
        candidate.inputs.refresh()
        # Over the judge's own file, of which this process cannot write to its view.
        place = "shared" if order["read_only"] else candidate.device
        arguments = candidate.inputs.values(order["arguments"], place)
        candidate.impose(order["state"])
        candidate.outputs.may_overlap = True
        if order["training"] is not None:
            attempt(Stage.FORWARD, lambda: candidate.model.train(order["training"]))
        gradients = not any(tensor.requires_grad for tensor in candidate.state.given())
        several = [functools.partial(candidate.model, *each) for each in arguments] if order["at_once"] else []
        found = later_call(
            lambda: at_once(several, order["at_once"]) if several else candidate.model(*arguments),
            candidate.read_settings,
            candidate.settings,
            threads=order["threads"],
            gradients=gradients,
        )
        if order["training"] is not None:
            attempt(Stage.FORWARD, lambda: candidate.model.train(not order["training"]))
        if found.error is not None and not order["refused"]:
            attempt(Stage.FORWARD, lambda: _raise(found.error))
        candidate.dialogue.look()
        raised = "" if found.error is None else type(found.error).__name__
        tree = attempt(Stage.EXPORT, lambda: candidate.exported(found.value))
        changed = [*dict.fromkeys([*candidate.changed, *found.changed])]
        candidate.dialogue.answer(FrameKind.RESULT, [tree, changed, raised])


def _raise(error: BaseException) -> NoReturn:
    raise error
