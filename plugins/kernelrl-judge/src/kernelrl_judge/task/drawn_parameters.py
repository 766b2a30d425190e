"""Random values of parameters, in place of those that the constructor sets.

Constructors set affine weights to one, biases, adapters and running means to zero, and running variances to one. A
kernel that ignores such parameters is correct for them. Therefore the first trial has drawn values, which the candidate
gets before its first call.
"""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Collection

import torch

from kernelrl_judge.protocol.call import seed
from kernelrl_judge.protocol.trees import decoded, real, tensors
from kernelrl_judge.task.comparison import compare_values, tolerance
from kernelrl_judge.task.parameter_match import ParameterMatch
from kernelrl_judge.task.reference import LEARNED, Reference
from kernelrl_judge.task.source import TaskError

__all__ = ["drawn_parameters"]

_MIN_VECTOR_SPREAD = 0.1
"""Least standard deviation of drawn vectors. The least one of matrices is that of a common initialisation."""
_MAX_TRIED = 32
"""Largest number of lacking parameters whose effect is measured."""
_LARGE_SHARE, _LARGE = 1 / 32, 8.0
"""Share and factor of larger values, which make a bound on parameters have an effect."""


def drawn_parameters(reference: Reference, match: ParameterMatch) -> Reference:
    """A reference with other initial values, or with drawn values if it is well conditioned under them.

    A candidate without a tensor for a parameter may draw the parameter itself, as the constructor does from its seed.
    Such a parameter is drawn here only if its value makes no difference: the candidate then ignores it.
    """
    other = reference.with_other_parameters()
    # Only the last result is kept, because each holds a copy of the model.
    known = reference.facts.drawn_parameters
    if known is not None and known[0] == match:
        used = known[1]
    else:
        excluded = match.lacking - _without_effect(reference, other, match.lacking)
        names = [name for name in _drawable(other) if name not in excluded]
        used = _well_conditioned(other, _drawn_state(other, names, match)) if names else None
        reference.facts.drawn_parameters = match, used
    return other if used is None else used.with_seed(reference.seed)


def _without_effect(reference: Reference, other: Reference, names: Collection[str]) -> set[str]:
    """Names of parameters for which two seeds of the constructor give the same outputs within the tolerance."""
    found = {name for name in names if _equal(other.state[name], reference.state[name])}
    different = sorted(set(names) - found)[:_MAX_TRIED]
    if not different:
        return found
    with contextlib.suppress(TaskError, torch.OutOfMemoryError):
        inputs = other.inputs(LEARNED)
        expected = other.expected(inputs, LEARNED)
        for name in different:
            changed = other.with_state({**other.state, name: reference.state[name]}).expected(inputs, LEARNED)
            if compare_values(expected, changed, tolerance(other.settings)) is None:
                found.add(name)
    return found


def _drawable(reference: Reference) -> list[str]:
    """Names of the parameters, and of the floating-point buffers that are all zero or all one.

    Running statistics are such buffers until training. Other buffers may be tables.
    """
    parameters = {name for name, _ in reference.model.named_parameters()}

    def is_drawable(name: str, tensor: torch.Tensor) -> bool:
        if not tensor.numel() or not (tensor.is_floating_point() or tensor.is_complex()):
            return False
        if tensor.element_size() == 1:
            return False
        first = tensor.reshape(-1)[0]
        return name in parameters or (complex(first) in (0, 1) and bool((tensor == first).all()))

    return sorted(name for name, tensor in reference.state.items() if is_drawable(name, tensor))


def _drawn_state(reference: Reference, names: list[str], match: ParameterMatch) -> dict[str, torch.Tensor]:
    """The state with drawn values of the named parameters.

    Parameters that were equal remain equal if the match is by value.
    """
    seed(secrets.randbits(63), reference.device)
    state = dict(reference.state)
    drawn: list[str] = []
    for name in names:
        before = reference.state[name]
        equal = None
        if match.is_by_value:
            equal = next((other for other in drawn if _equal(reference.state[other], before)), None)
        if equal is not None:
            state[name] = state[equal].reshape(before.shape)
        else:
            values = _values(real(before))
            state[name] = torch.view_as_complex(values) if before.is_complex() else values
        drawn.append(name)
    return state


def _values(before: torch.Tensor) -> torch.Tensor:
    """Values of the scale of the initial ones; positive values, such as variances, remain positive."""
    numbers = before.float()
    noise = torch.randn_like(numbers)
    if bool((numbers > 0).all()):
        return (numbers * noise.exp2()).to(before.dtype)
    is_large = torch.rand_like(numbers) < _LARGE_SHARE
    noise = torch.where(is_large, _LARGE * noise, noise)
    min_spread = _MIN_VECTOR_SPREAD if numbers.dim() < 2 else max(1, numbers[0].numel()) ** -0.5
    spread = max(float(numbers.std(correction=0)), min_spread)
    return (numbers + spread * noise).to(before.dtype)


def _equal(first: torch.Tensor, second: torch.Tensor) -> bool:
    is_comparable = first.dtype is second.dtype and first.numel() == second.numel()
    return is_comparable and torch.equal(decoded(first).reshape(-1), decoded(second).reshape(-1))


def _well_conditioned(reference: Reference, state: dict[str, torch.Tensor]) -> Reference | None:
    """The reference with a state; None if its output is not finite, or not within the tolerance of double precision."""
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
