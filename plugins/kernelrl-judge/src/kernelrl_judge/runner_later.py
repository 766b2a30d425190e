"""One of a candidate's last calls, as its runner makes it; the judge's side is `later_calls`."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import attrs

from kernelrl_judge import process_settings

__all__ = ["LaterCall", "later_call"]

_SEEDS = 1 << 31


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

    changed = process_settings.changed(loaded, read(), without=process_settings.OF_LOADING)
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
        changed += process_settings.changed(before, read())
    if threads:
        torch.set_num_threads(numbers)
    return LaterCall(value, error, [*dict.fromkeys(changed)])
