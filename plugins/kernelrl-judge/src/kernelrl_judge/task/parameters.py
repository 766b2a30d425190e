"""Random values of parameters, in place of those that the constructor sets.

Constructors set affine weights to one, biases, adapters and running means to zero, and running variances to one: a
kernel that ignores them is right. So the first trial has drawn values, which the candidate gets before its first call.
"""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Collection
from typing import Any

import attrs
import torch

from kernelrl_judge.protocol.call import seed
from kernelrl_judge.protocol.trees import real, tensors
from kernelrl_judge.task.comparing import compare_values, tolerance
from kernelrl_judge.task.reference import LEARNED, Reference
from kernelrl_judge.task.source import TaskError

__all__ = ["Matched", "drawn_parameters", "matched"]

_LEAST_SPREAD = 0.1
"""Standard deviation of vectors that are constant; of matrices it is that of a common initialisation."""
_MOST_TRIED = 32
"""Parameters that a candidate lacks, of which the effect is measured one by one."""
_LARGE_SHARE, _LARGE = 1 / 32, 8.0
"""A few values are larger, so that a bound on parameters has an effect."""


@attrs.frozen
class Matched:
    """How a candidate's parameters were found to be those of the reference."""

    lacking: frozenset[str] = frozenset()
    """Names of those that the candidate has no tensor for."""
    alike: bool = False
    """Some have other names, so that those of equal values cannot be distinguished."""


def matched(note: Any, reference: Reference) -> Matched:
    """Read the note of a runner on its parameters; the runner is untrusted."""
    if not isinstance(note, dict):
        return Matched(frozenset(reference.state))
    names = note.get("names")
    lacking = frozenset(reference.state).difference(map(str, names if isinstance(names, list) else ()))
    return Matched(lacking, note.get("renamed") != 0)


def drawn_parameters(reference: Reference, found: Matched) -> Reference:
    """A reference with other initial values and, where it is well conditioned under them, with drawn ones.

    A candidate without a tensor for a parameter may draw it itself, as the constructor does from its seed. So such a
    parameter is drawn only if that makes no difference: a candidate that lacks it then ignores it.
    """
    other = reference.with_other_parameters()
    # The last one alone is kept: each holds a copy of the model.
    kept, used = reference.facts.get("drawn_parameters", (None, None))
    if kept != found:
        lacking = found.lacking - _without_difference(reference, other, found.lacking)
        names = [name for name in _changeable(other) if name not in lacking]
        used = _conditioned(other, _drawn(other, names, alike=found.alike)) if names else None
        reference.facts["drawn_parameters"] = found, used
    return other if used is None else used.under(reference.seed)


def _without_difference(reference: Reference, other: Reference, names: Collection[str]) -> set[str]:
    """Names of parameters for which two seeds of the constructor give the same outputs within the tolerance."""
    found = {name for name in names if torch.equal(other.state[name], reference.state[name])}
    varied = sorted(set(names) - found)[:_MOST_TRIED]
    with contextlib.suppress(TaskError, torch.OutOfMemoryError):
        inputs = other.inputs(LEARNED)
        expected = other.expected(inputs, LEARNED) if varied else None
        for name in varied:
            changed = other.with_state({**other.state, name: reference.state[name]}).expected(inputs, LEARNED)
            if compare_values(expected, changed, tolerance(other.settings)) is None:
                found.add(name)
    return found


def _changeable(reference: Reference) -> list[str]:
    """Names of parameters, and of floating-point buffers that are all zero or all one, as running statistics are until
    training. Other buffers may be tables."""
    parameters = {name for name, _ in reference.model.named_parameters()}

    def changes(name: str, tensor: torch.Tensor) -> bool:
        if not tensor.numel() or not (tensor.is_floating_point() or tensor.is_complex()):
            return False
        first = tensor.reshape(-1)[0]
        return name in parameters or (complex(first) in (0, 1) and bool((tensor == first).all()))

    return sorted(name for name, tensor in reference.state.items() if changes(name, tensor))


def _drawn(reference: Reference, names: list[str], *, alike: bool) -> dict[str, torch.Tensor]:
    """The state with drawn values.

    Args:
        alike: parameters that were equal stay equal.
    """
    seed(secrets.randbits(63), reference.device)
    state = dict(reference.state)
    done: list[str] = []
    for name in names:
        before = reference.state[name]
        twin = next((other for other in done if alike and _equal(reference.state[other], before)), None)
        if twin is not None:
            state[name] = state[twin].reshape(before.shape)
        else:
            values = _values(real(before))
            state[name] = torch.view_as_complex(values) if before.is_complex() else values
        done.append(name)
    return state


def _values(before: torch.Tensor) -> torch.Tensor:
    """Values of the scale of the initial ones; positive values, such as variances, remain positive."""
    numbers = before.float()
    noise = torch.randn_like(numbers)
    if bool((numbers > 0).all()):
        return (numbers * noise.exp2()).to(before.dtype)
    large = torch.rand_like(numbers) < _LARGE_SHARE
    noise = torch.where(large, _LARGE * noise, noise)
    usual = _LEAST_SPREAD if numbers.dim() < 2 else max(1, numbers[0].numel()) ** -0.5
    return (numbers + max(float(numbers.std(correction=0)), usual) * noise).to(before.dtype)


def _equal(first: torch.Tensor, second: torch.Tensor) -> bool:
    alike = first.dtype is second.dtype and first.numel() == second.numel()
    return alike and torch.equal(first.reshape(-1), second.reshape(-1))


def _conditioned(reference: Reference, state: dict[str, torch.Tensor]) -> Reference | None:
    """The reference with a state; None where it is not finite, or is off by more than the tolerance."""
    with contextlib.suppress(TaskError, torch.OutOfMemoryError):
        used = reference.with_state(state)
        inputs = used.inputs(LEARNED)
        own = used.expected(inputs, LEARNED)
        if not all(bool(torch.isfinite(tensor).all()) for tensor in tensors(own)):
            return None
        exact = used.exact(inputs, LEARNED)
        if exact is None or compare_values(exact, own, tolerance(used.settings)) is None:
            return used
    return None
