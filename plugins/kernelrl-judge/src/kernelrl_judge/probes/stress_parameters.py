"""Parameters and buffers of a larger spread, for the calls of the probe `stress`."""

from __future__ import annotations

import contextlib

import torch

from kernelrl_judge.probes.stress_beyond import beyond, distances_beyond
from kernelrl_judge.protocol.trees import real, tensors
from kernelrl_judge.task.input_indices import LEARNED, SPREAD
from kernelrl_judge.task.reference import Reference
from kernelrl_judge.task.source import TaskError

__all__ = ["SPREADS", "spreadable", "with_spread"]

SPREADS = ("any_sign", "sign_kept")
"""How parameters are changed: as it comes, and beyond bounds that the reference sets them, or so that those stay
positive that were, for references that need that."""
_LEAST_IN_ROW = 4
_OTHERS = 1 / 4
"""Share of the truth values of a mask that are changed."""
_CALLS = 3
"""After which buffers that calls change are as they are given."""
_MOST_STACKED = 8
"""Rows of a buffer that may be statistics of several kinds."""


def spreadable(reference: Reference) -> set[str]:
    """Names in the state of what may be changed: parameters; buffers that hold nothing but ones or zeros, as running
    statistics do until somebody trains, or a few rows of either; masks in which all are true or none is, where the
    reference bears others; and those that calls change, as counts of steps, extremes or flags. Other buffers may be
    tables, on which a kernel may rely."""
    if "spreadable" not in reference.facts:
        found = _spreadable(reference)
        reference.facts["spreadable"] = found | _masks(reference)
    known: set[str] = reference.facts["spreadable"]
    return known


def _spreadable(reference: Reference) -> set[str]:
    named = [*reference.model.named_parameters()]
    names = {name for name, tensor in named if tensor.is_floating_point() or tensor.is_complex()}
    for name in _buffers(reference):
        buffer = reference.state[name]
        if _are_statistics(buffer) or name in reference.facts.get("mutates_state", ()):
            names.add(name)
    return names & reference.state.keys()


def _buffers(reference: Reference) -> list[str]:
    """Names of the buffers of the state that are not empty."""
    names = (name for name, _ in reference.model.named_buffers())
    return [name for name in names if name in reference.state and reference.state[name].numel()]


def _masks(reference: Reference) -> set[str]:
    """Names of masks of one truth value, if the reference gives as many numbers with others."""
    state = reference.state
    masks = [name for name in _buffers(reference) if state[name].dtype is torch.bool]
    masks = [name for name in masks if state[name].numel() >= _LEAST_IN_ROW and _is_uniform(state[name])]
    if not masks:
        return set()
    inputs = reference.inputs(LEARNED)
    with contextlib.suppress(TaskError, torch.OutOfMemoryError):
        used = reference.with_state({**state, **{name: _sprinkled(state[name]) for name in masks}})
        before, after = (tensors(one.expected(inputs, LEARNED)) for one in (reference, used))
        borne = zip(before, after, strict=True)
        if all(old.shape == new.shape and not bool((old.isfinite() & ~new.isfinite()).any()) for old, new in borne):
            return set(masks)
    return set()


def _sprinkled(mask: torch.Tensor) -> torch.Tensor:
    """A mask of which a few truth values are the other."""
    return mask ^ (torch.rand(mask.shape, device=mask.device) < _OTHERS)


def _are_statistics(buffer: torch.Tensor) -> bool:
    return buffer.is_floating_point() and all(map(_is_statistic, _stacked(buffer)))


def _is_statistic(tensor: torch.Tensor) -> bool:
    return float(tensor.reshape(-1)[0]) in (0.0, 1.0) and _is_uniform(tensor)


def _is_uniform(tensor: torch.Tensor) -> bool:
    return bool((tensor == tensor.reshape(-1)[0]).all())


def _stacked(tensor: torch.Tensor) -> list[torch.Tensor]:
    """The rows of a tensor that has few and long ones; otherwise the tensor."""
    rows = list(tensor) if tensor.dim() > 1 and len(tensor) <= _MOST_STACKED else []
    return rows if rows and rows[0].numel() >= _LEAST_IN_ROW else [tensor]


def with_spread(reference: Reference, kind: str, *, alike: bool = False) -> Reference:
    """Parameters that differ from those of the constructor: constants are no longer constant, and small ones count.

    Args:
        kind: one of `SPREADS`.
        alike: what was equal stays equal, since nobody knows which is which.
    """
    buffers = {name for name, _ in reference.model.named_buffers()}
    left = _left_by_calls(reference)
    if "beyond" not in reference.facts:
        reference.facts["beyond"] = _beyond(reference)
    further: dict[str, list[float]] = reference.facts["beyond"]
    reference.seed(SPREAD)
    state = dict(reference.state)
    done: list[str] = []
    for name in sorted(spreadable(reference)):
        before = reference.state[name]
        twin = next((other for other in done if alike and _equal(reference.state[other], before)), None)
        if twin is not None:
            state[name] = state[twin].reshape(before.shape)
        elif name in left:
            state[name] = left[name]
        elif before.dtype is torch.bool:
            state[name] = _sprinkled(before)
        elif name in buffers:
            rows = [_spread(row, positive=True) for row in _stacked(before)]
            state[name] = torch.stack(rows).view(before.shape)
        else:
            state[name] = _spread_parts(before)
            if kind == SPREADS[0] and name in further:
                state[name] = beyond(before, further[name])
            if kind == "sign_kept" and not before.is_complex() and bool((before >= 0).all()):
                state[name].abs_()
        done.append(name)
    return reference.with_state(state)


def _beyond(reference: Reference) -> dict[str, list[float]]:
    if not reference.facts.get("bound"):
        return {}
    names = {name for name, tensor in reference.model.named_parameters() if tensor.is_floating_point()}
    return distances_beyond(reference, names & spreadable(reference))


def _left_by_calls(reference: Reference) -> dict[str, torch.Tensor]:
    """What calls leave in those buffers that they change and that are no statistics."""
    changed = reference.facts.get("mutates_state", ())
    names = [name for name in _buffers(reference) if name in changed and not _are_statistics(reference.state[name])]
    if names and "left_by_calls" not in reference.facts:
        after = reference.state_after(_CALLS)
        kept = [name for name in names if name in after and after[name].shape == reference.state[name].shape]
        reference.facts["left_by_calls"] = {name: after[name] for name in kept}
    found: dict[str, torch.Tensor] = reference.facts.get("left_by_calls", {})
    return found


def _equal(first: torch.Tensor, second: torch.Tensor) -> bool:
    alike = first.dtype is second.dtype and first.numel() == second.numel()
    return alike and torch.equal(first.reshape(-1), second.reshape(-1))


def _spread_parts(before: torch.Tensor) -> torch.Tensor:
    found = _spread(real(before), positive=False)
    return torch.view_as_complex(found) if before.is_complex() else found


def _spread(before: torch.Tensor, *, positive: bool) -> torch.Tensor:
    """Other values, of a wider spread; a variance, say, remains `positive` if it is."""
    tensor = before.float()
    if positive and bool((tensor > 0).all()):
        return (tensor * torch.randn_like(tensor).exp2()).to(before.dtype)
    fan_in = tensor[0].numel() if tensor.dim() > 1 else 1
    spread = max(float(tensor.std(correction=0)) if tensor.numel() else 0.0, 0.1 if fan_in == 1 else fan_in**-0.5)
    return torch.add(tensor, torch.randn_like(tensor), alpha=spread).to(before.dtype)
