"""What is found out once about a task, for the probe `stress`: on its usual inputs, whatever the seed."""

from __future__ import annotations

import contextlib
from collections.abc import Collection

import torch

from kernelrl_judge.probes import stress_inputs
from kernelrl_judge.probes.stress_coincidences import MOST_NUMBERS, Coincidences
from kernelrl_judge.probes.stress_dependence import OtherOrder, depends_on_all, rows_apart
from kernelrl_judge.probes.stress_draws import made_of_draws
from kernelrl_judge.probes.stress_shares import shares_along
from kernelrl_judge.probes.stress_twins import has_twins
from kernelrl_judge.protocol.layouts import leaves_bytes
from kernelrl_judge.protocol.trees import reals, tensors
from kernelrl_judge.task.input_indices import LEARNED
from kernelrl_judge.task.input_structure import structure
from kernelrl_judge.task.reference import Reference
from kernelrl_judge.task.source import TaskError
from kernelrl_judge.task.stress_functions import Functions
from kernelrl_judge.task.stress_ranges import is_truth

__all__ = ["learn", "learn_structures"]

_IGNORED = -100
"""What losses ignore that are told nothing."""


def learn_structures(reference: Reference) -> None:
    """What inputs have in common from call to call, and the bytes of a call and of the state."""
    facts = reference.facts
    first, second = (reference.inputs(LEARNED - number) for number in (0, 1))
    facts["structures"] = [structure(*pair) for pair in zip(tensors(first), tensors(second), strict=False)]
    facts["stress_bytes"] = leaves_bytes(first) + leaves_bytes(reference.like), leaves_bytes(reference.state)


def learn(reference: Reference) -> None:
    """Which functions the reference calls, on what its outputs depend, and what its inputs may hold."""
    facts = reference.facts
    watch, asked = Functions(), Functions(reference.model.buffers())
    inputs = []
    with contextlib.suppress(TaskError), watch:
        inputs = reference.inputs(LEARNED)
        with asked:
            reference.expected(inputs)
    # On a processor an assertion is an exception like any other.
    hazard = watch.hazard and reference.device == "cuda"
    facts["stress_unfit"] = "the reference asserts that its inputs lie in a range" if hazard else ""
    facts["convolves"] = watch.convolves
    with contextlib.suppress(TaskError, torch.OutOfMemoryError):
        facts["rows_apart"] = rows_apart(reference)
    facts["asks_for_numbers"], facts["bound"] = watch.asks_for_numbers, asked.bound
    pairs = [*zip(tensors(inputs), facts["structures"], strict=False)]
    changes = [stress_inputs.is_changed(*pair) for pair in pairs]
    facts["whole"] = False
    with contextlib.suppress(TaskError, torch.OutOfMemoryError):
        facts["whole"] = not facts.get("rows_apart") and depends_on_all(reference, changes)
    free = [tensor for tensor, known in pairs if known is None and tensor.is_floating_point()]
    orders = asked.distinguishes or asked.extremes or asked.sorts or asked.places
    rounds = asked.rounds and not orders
    facts["coincidences"] = Coincidences.of(asked.compared, rounds=rounds) if free else Coincidences()
    facts["shares_along"] = [shares_along(tensor) if known == "normalised" else None for tensor, known in pairs]
    _learn_ranges(reference, tensors(inputs), watch, asked)
    facts["draws"] = [] if orders else _draws(reference)
    # Which of two equal rows comes first nobody promises.
    facts["alike"] = asked.alike and not orders
    facts["of_norm_one"] = [
        known == "normalised" and along is None and tensor.dim() > 1 and not tensor.is_complex()
        for (tensor, known), along in zip(pairs, facts["shares_along"], strict=True)
    ]
    of_norm_one = [tensor for (tensor, _), is_one in zip(pairs, facts["of_norm_one"], strict=True) if is_one]
    facts["twins"] = has_twins(free) or (bool(free) and facts["alike"]) or any(facts["twin_ranges"])
    facts["twins"] |= has_twins(of_norm_one) or "sorted" in facts["structures"]


def _draws(reference: Reference) -> list[int]:
    """Numbers of the inputs that are made of integers that are drawn, and are none of those themselves."""
    with contextlib.suppress(TaskError):
        ranges = dict(enumerate(reference.declared_ranges() or ()))
        return [place for place in made_of_draws(reference, LEARNED) if ranges.get(place) is None]
    return []


def _learn_ranges(reference: Reference, inputs: list[torch.Tensor], watch: Functions, asked: Functions) -> None:
    """The ranges of integers, and what the reference singles out among them."""
    facts = reference.facts
    ranges = reference.declared_ranges() or [None] * len(inputs)
    pairs = [*zip(inputs, ranges, strict=False)]
    facts["at_one_end"] = [limits if is_truth(limits) or tensor.numel() == 1 else None for tensor, limits in pairs]
    # Of truth values that are no rows there is each in any draw.
    ranges = [None if is_truth(limits) and tensor.dim() < 2 else limits for tensor, limits in pairs]
    # Where tensors are asked whether they are equal, whole rows are.
    known = asked.alike and not (watch.distinguishes or watch.sorts or watch.places)
    facts["twin_ranges"] = [limits if known and not is_truth(limits) else None for limits in ranges]
    sizes = {tensor.numel() for tensor, limits in zip(inputs, ranges, strict=False) if limits is not None}
    facts["singled_out"], facts["leaves_range"] = _singled_out(reference, asked, sizes)
    facts["ranges"] = ranges if any(ranges) else None
    ordered = (watch.sorts or watch.places) and any(ranges)
    if watch.distinguishes or watch.extremes or (ordered and _order_counts(reference)):
        # Of truth values there are equals in any draw.
        ranges = [limits if is_truth(limits) else None for limits in ranges]
        facts["ranges"] = ranges if any(ranges) else None


def _singled_out(reference: Reference, asked: Functions, sizes: Collection[int]) -> tuple[list[int], bool]:
    """Whole numbers that a reference compares its integers with, or that its losses ignore, and whether those out of
    range may be tried."""
    compared = {number for number, count in asked.singled_out if count in sizes}
    ignored = {number for number in asked.ignored if number != _IGNORED or reference.says("ignore_index")}
    found = compared | ignored
    # A GPU's context ends with a place that is out of range.
    safe = not asked.indexes_beside and (not asked.ignored or asked.ignored == found)
    return sorted(found, key=abs)[:MOST_NUMBERS], bool(found) and (safe or reference.device != "cuda")


def _order_counts(reference: Reference) -> bool:
    """Whether outputs depend on which of two equals comes first."""
    index = LEARNED - 1
    with contextlib.suppress(TaskError):
        inputs = stress_inputs.changed(reference.inputs(index), reference.facts, "ranges", (False, 0.0))
        first = reference.expected(inputs, index)
        with OtherOrder():
            second = reference.expected(inputs, index)
        pairs = zip(tensors(reals(first)), tensors(reals(second)), strict=True)
        return not all(
            torch.allclose(one, other, equal_nan=True) if one.is_floating_point() else torch.equal(one, other)
            for one, other in pairs
        )
    return True
