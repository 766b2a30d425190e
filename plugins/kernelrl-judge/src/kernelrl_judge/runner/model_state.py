"""The tensors of a candidate's model by name, and their match with the parameters and buffers of the reference."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import torch

from kernelrl_judge.protocol.trees import decoded
from kernelrl_judge.runner.kept_tensors import kept_tensors, variables

__all__ = ["ModelState", "named_tensors"]

_LAZY = (torch.nn.parameter.UninitializedParameter, torch.nn.parameter.UninitializedBuffer)


class ModelState:
    """The tensors of a candidate's model that match the state of the reference, by the names of the reference."""

    def __init__(self) -> None:
        self._model: Any = None
        self._matched: dict[str, str] = {}
        """Name in the reference -> name in the candidate's model."""

    def give(self, model: Any, state: dict[str, Any]) -> dict[str, Any]:
        """Match a model that was constructed, and copy the state of the reference into it.

        Returns:
            Counts and names of the tensors that matched, for the judge.
        """
        self._model = model
        _materialise(model, state)
        matched_before = self._matched
        saved_tensors = named_tensors(model, saved=True)
        self._matched = _matched(saved_tensors, state, matched_before)
        if len(self._matched) < len(state):
            self._matched |= _matched_outside(model, state, self._matched, matched_before)
        return _impose(model, state, self._matched)

    def impose(self, state: dict[str, Any]) -> None:
        """Copy a part of the state of the reference into the model again."""
        _impose(self._model, state, self._names(state))

    def given_tensors(self) -> list[Any]:
        """The model's tensors that the state of the reference was copied into."""
        own = _tensors(self._model, self._matched.values())
        return [own[name] for name in self._matched.values() if name in own]

    def values(self, like: Mapping[str, Sequence[Any]], device: str) -> dict[str, Any]:
        """The current values of tensors of the model, by the names of the reference.

        Args:
            like: dtype and shape in which each of them is returned.
        """
        names = self._names(like)
        own = _tensors(self._model, names.values()) if like else {}
        found = {}
        for name, own_name in names.items():
            dtype, shape = like[name]
            tensor = own.get(own_name)
            if tensor is not None and tensor.numel() == math.prod(shape):
                found[name] = tensor.to(device=device, dtype=getattr(torch, dtype)).reshape(shape)
        return found

    def tensors(self, names: Iterable[str]) -> dict[str, Any]:
        """Tensors of the model, by the names of the reference; without those that the model lacks."""
        own_names = self._names(names)
        own = _tensors(self._model, own_names.values())
        return {name: own[own_name] for name, own_name in own_names.items() if own_name in own}

    def _names(self, names: Iterable[str]) -> dict[str, str]:
        """The model's name for each name of the reference. Names that did not match are equal in both."""
        return {name: self._matched.get(name, name) for name in names}


def named_tensors(model: Any, *, saved: bool = False) -> dict[str, Any]:
    """The parameters and buffers of a model by name, parameters first.

    Args:
        saved: exclude buffers that are not part of the model's state.
    """
    if not isinstance(model, torch.nn.Module):
        return {}
    registered = [(name, _plain(tensor), kind) for name, tensor, kind in _registered(model)]
    found = [(name, tensor) for name, tensor, kind in registered if kind != "unsaved" or not saved]
    parameters = {name for name, _, kind in registered if kind == "parameter"}
    return dict(sorted(found, key=lambda pair: pair[0] not in parameters))


def _materialise(model: Any, state: dict[str, Any]) -> None:
    """Give lazy parameters and buffers, such as those of `torch.nn.LazyLinear`, the shapes that the state has."""
    if not isinstance(model, torch.nn.Module):
        return
    for name, tensor, _ in _registered(model):
        if name in state and type(tensor) in _LAZY:
            tensor.materialize(state[name].shape, state[name].device, state[name].dtype)


def _tensors(model: Any, names: Iterable[str]) -> dict[str, Any]:
    """Parameters and buffers of a model by name, and the other tensors that it keeps if one of the names needs them."""
    own = named_tensors(model)
    if all(name in own for name in names):
        return own
    return {**kept_tensors(model), **own}


def _registered(module: Any, prefix: str = "", above: tuple[int, ...] = ()) -> Iterator[tuple[str, Any, str]]:
    """Name, tensor and kind: `parameter`, `buffer`, or `unsaved` for a buffer that is not part of the state.

    No method of the module is called: the candidate could have postponed work until such a call.
    """
    unsaved = variables(module).get("_non_persistent_buffers_set", ())
    for name, tensor in _entries(module, "_parameters"):
        yield prefix + name, tensor, "parameter"
    for name, tensor in _entries(module, "_buffers"):
        yield prefix + name, tensor, "unsaved" if name in unsaved else "buffer"
    for name, child in _entries(module, "_modules"):
        if id(child) not in above:
            yield from _registered(child, f"{prefix}{name}.", (*above, id(module)))


def _entries(module: Any, kind: str) -> list[tuple[str, Any]]:
    """The entries of a dictionary of a module, even if the class of the dictionary replaces its methods."""
    entries = variables(module).get(kind)
    if not isinstance(entries, dict):
        return []
    return [(name, value) for name, value in dict.items(entries) if value is not None]


def _plain(tensor: Any) -> torch.Tensor:
    # A subclass of tensors may have its own methods.
    with torch._C.DisableTorchFunctionSubclass():
        return torch.Tensor.detach(tensor)


def _matched(own: dict[str, Any], state: dict[str, Any], matched_before: dict[str, str]) -> dict[str, str]:
    """Name in the reference -> name in the model.

    Tensors match that have one name and one shape. Others match if the constructor gave them the same values.

    Args:
        own: tensors of the model after its construction.
        state: tensors of the reference. Their values may differ from those after construction.
        matched_before: the matches of an earlier model, at whose construction the values were equal.
    """
    found = {name: name for name in state if name in own and own[name].shape == state[name].shape}
    free = [name for name in own if name not in found]
    for name in [name for name in state if name not in found]:
        wanted = state[name]
        possible = [
            other for other in free if matched_before.get(name, other) == other and _resemble(own[other], wanted)
        ]
        if name not in matched_before:
            values = wanted.flatten()
            possible = [other for other in possible if _equal(own[other].flatten().to(values.device), values)]
        if possible:
            found[name] = possible[0]
            free.remove(possible[0])
    return found


def _matched_outside(
    model: Any, state: dict[str, Any], matched: dict[str, str], matched_before: dict[str, str]
) -> dict[str, str]:
    """Name in the reference -> name of a tensor that the model keeps outside of parameters and buffers.

    Empty if the model has further tensors: one of them may be computed from a tensor that matches, and would not follow
    when that gets other values.

    Args:
        matched: the matches among parameters and buffers.
        matched_before: the matches of an earlier model, at whose construction the values were equal.
    """
    kept = kept_tensors(model)
    found: dict[str, str] = {}
    for name in [name for name in state if name not in matched]:
        wanted = state[name]
        for other, tensor in kept.items():
            is_free = other not in found.values() and matched_before.get(name, other) == other
            if not is_free or not _resemble(tensor, wanted):
                continue
            if name in matched_before or _equal(tensor.flatten(), wanted.flatten().to(tensor.device)):
                found[name] = other
                break
    used = {*matched.values(), *found.values()}
    all_tensors = {**kept, **named_tensors(model)}
    larger = [name for name, tensor in all_tensors.items() if tensor.numel() > 1]
    return found if used.issuperset(larger) else {}


def _impose(model: Any, state: dict[str, Any], names: dict[str, str]) -> dict[str, Any]:
    """Copy a state into the tensors of a model.

    Args:
        names: name in the state -> name in the model.

    Returns:
        Counts and names of the tensors that were written, for the judge.
    """
    own = _tensors(model, names.values())
    targets = {
        name: own[own_name]
        for name, own_name in names.items()
        if own_name in own and own[own_name].numel() == state[name].numel()
    }
    with torch.no_grad():
        for name, target in targets.items():
            target.copy_(state[name].view(target.shape))
    return {
        "matched": len(targets),
        "renamed": sum(name != names[name] for name in targets),
        "expected": len(state),
        "names": sorted(targets),
        "own": len(own),
    }


def _equal(first: torch.Tensor, second: torch.Tensor) -> bool:
    """Whether vectors of one dtype and length are equal. torch does not compare float8 kinds."""
    return torch.equal(decoded(first), decoded(second))


def _resemble(own: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether tensors have one dtype, and one shape except for dimensions of size 1."""
    own_shape = [size for size in own.shape if size != 1]
    other_shape = [size for size in other.shape if size != 1]
    return own_shape == other_shape and own.dtype == other.dtype
