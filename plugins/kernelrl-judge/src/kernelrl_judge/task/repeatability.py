"""Whether calls of a reference with the same inputs agree, so that a kernel can be right."""

from __future__ import annotations

from typing import Any

import attrs
import torch

from kernelrl_judge.limits import LIMITS
from kernelrl_judge.protocol.trees import tensors
from kernelrl_judge.task.comparison import Tolerance, compare_values
from kernelrl_judge.task.reference import Reference
from kernelrl_judge.task.source import TaskError

__all__ = ["Disagreement", "disagreement", "draws_random_numbers"]

# The first call has the random state of index 0. Another state must not matter either: no kernel can know it.
_CALLS = ((0, "the same seed"), (1, "another seed"))
"""Indices of the random states of further calls, and their names."""
_KEEPS_STATE = "it counts its calls, keeps other state, or draws from a generator of its own"
_DRAWS = "it draws random numbers"


@attrs.frozen
class Disagreement:
    """A call of a reference that disagrees with another one on the same inputs."""

    draws: bool
    """Whether only another random state changes the output, as in dropout; False: the same state does not give it
    again."""
    difference: str
    """What differs, in words."""

    def __str__(self) -> str:
        return f"{_DRAWS if self.draws else _KEEPS_STATE}: {self.difference}"


def disagreement(reference: Reference, inputs: list[Any], limit: Tolerance) -> Disagreement | None:
    """The first of two further calls whose output is not that of the first call; None if there is none.

    Args:
        limit: tolerance for floating-point elements.
    """
    expected = reference.expected(inputs, 0)
    for index, seed_name in _CALLS:
        output = reference.expected(inputs, index)
        difference = _difference(expected, output, limit)
        if difference:
            return Disagreement(index != 0, f"called again with {seed_name}, {difference}")
    return None


def draws_random_numbers(reference: Reference, limit: Tolerance) -> bool:
    """Whether the output of a reference depends on random numbers, so that no kernel can give it. Determined once.

    Args:
        limit: declared tolerance. Only differences beyond all that an evaluation allows count.

    Raises:
        TaskError: the reference gives different outputs even for equal random states.
    """
    if reference.facts.draws_random_numbers is not None:
        return reference.facts.draws_random_numbers
    loosest = attrs.evolve(limit, factor=limit.factor * LIMITS.loosest)
    found = disagreement(reference, reference.inputs(0), loosest)
    if found is not None and not found.draws:
        raise TaskError(f"task {reference.task_id}: two calls of the reference with equal inputs disagree: {found}")
    reference.facts.draws_random_numbers = found is not None
    return found is not None


def _difference(expected: Any, output: Any, limit: Tolerance) -> str:
    if _shapes(expected) != _shapes(output):
        return "the output has another shape"
    mismatch = compare_values(expected, output, limit)
    return "" if mismatch is None else f"{100 * (mismatch.wrong_share or 0):.3g} % of the elements are off"


def _shapes(output: Any) -> list[torch.Size]:
    return [tensor.shape for tensor in tensors(output)]
