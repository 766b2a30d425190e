"""The tensors of a candidate's module by name, and how those that the judge gives take their places."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import Any

from kernelrl_judge.runner.attributes import kept_tensors, variables

__all__ = ["State", "impose", "matched", "named_tensors"]


class State:
    """The tensors of the candidate's model that the judge has names for."""

    def __init__(self) -> None:
        self._model: Any = None
        self._named: dict[str, str] = {}

    def give(self, model: Any, state: dict[str, Any]) -> dict[str, Any]:
        """Give a model that was constructed what the judge's has; returns how far that went."""
        self._model = model
        known, own = self._named, named_tensors(model, saved=True)
        self._named = matched(own, state, known)
        if len(self._named) < len(state):
            self._named |= _matched_outside(model, state, self._named, known)
        return impose(model, state, self._named)

    def impose(self, state: dict[str, Any]) -> None:
        """Give it a part of that anew."""
        impose(self._model, state, self._names(state))

    def given(self) -> list[Any]:
        """What it was given."""
        own = _tensors(self._model, self._named.values())
        return [own[name] for name in self._named.values() if name in own]

    def held(self, like: dict[str, Any], device: str) -> dict[str, Any]:
        """What the model holds now.

        Args:
            like: names, and type and shape of each.
        """
        import torch

        names = self._names(like)
        own = _tensors(self._model, names.values()) if like else {}
        found = {name: own[other] for name, other in names.items() if other in own}
        return {
            name: tensor.to(device=device, dtype=getattr(torch, like[name][0])).reshape(like[name][1])
            for name, tensor in found.items()
            if tensor.numel() == math.prod(like[name][1])
        }

    def tensors(self, names: Iterable[str]) -> dict[str, Any]:
        """The model's tensors for the judge's names, of those that it has."""
        known = self._names(names)
        own = _tensors(self._model, known.values())
        return {name: own[other] for name, other in known.items() if other in own}

    def _names(self, names: Iterable[str]) -> dict[str, str]:
        """The model's names for the judge's; what construction has not matched has the same one."""
        return {name: self._named.get(name, name) for name in names}


def named_tensors(model: Any, *, saved: bool = False) -> dict[str, Any]:
    """The tensors of a model by name, parameters first.

    Args:
        saved: without buffers that are not part of its state.
    """
    import torch

    if not isinstance(model, torch.nn.Module):
        return {}
    found = [*_registered(model)]
    kept = [(name, tensor) for name, tensor, kind in found if kind != "unsaved" or not saved]
    parameters = {name for name, _, kind in found if kind == "parameter"}
    return dict(sorted(kept, key=lambda pair: pair[0] not in parameters))


def _tensors(model: Any, names: Iterable[str]) -> dict[str, Any]:
    """The tensors of a model by name, with those outside of its state where one of these names is theirs."""
    own = named_tensors(model)
    return own if all(name in own for name in names) else {**kept_tensors(model), **own}


def _registered(module: Any, prefix: str = "", above: tuple[int, ...] = ()) -> Iterator[tuple[str, Any, str]]:
    """Names, tensors and kinds: `parameter`, `buffer`, or `unsaved` for a buffer that is not part of the state.

    No method of a module is called: one of the candidate's could bring up to date what it has put off.
    """
    unsaved = variables(module).get("_non_persistent_buffers_set", ())
    for name, tensor in _entries(module, "_parameters"):
        yield prefix + name, _plain(tensor), "parameter"
    for name, tensor in _entries(module, "_buffers"):
        yield prefix + name, _plain(tensor), "unsaved" if name in unsaved else "buffer"
    for name, child in _entries(module, "_modules"):
        if id(child) not in above:
            yield from _registered(child, f"{prefix}{name}.", (*above, id(module)))


def _entries(module: Any, kind: str) -> list[tuple[str, Any]]:
    """What is registered in a module, whatever class of dictionary that is."""
    held = variables(module).get(kind)
    return [(name, value) for name, value in dict.items(held) if value is not None] if isinstance(held, dict) else []


def _plain(tensor: Any) -> Any:
    import torch

    # A class of tensors may have its own methods.
    with torch._C.DisableTorchFunctionSubclass():
        return torch.Tensor.detach(tensor)


def matched(own: dict[str, Any], state: dict[str, Any], known: dict[str, str]) -> dict[str, str]:
    """A model's names for those of a state.

    Args:
        own: what the model has, as it was constructed.
        state: what the judge's has, of which the values may be other ones than construction gives.
        known: what was found where they were the same.

    Returns:
        Name and shape agree; or the model calls it otherwise and has given it the same values.
    """
    import torch

    named = {name: name for name in state if name in own and own[name].shape == state[name].shape}
    free = [name for name in own if name not in named]
    for name in [name for name in state if name not in named]:
        found = [other for other in free if known.get(name, other) == other and _resemble(own[other], state[name])]
        if name not in known:
            same = state[name].flatten()
            found = [other for other in found if torch.equal(own[other].flatten().to(same.device), same)]
        if found:
            named[name] = found[0]
            free.remove(found[0])
    return named


def _matched_outside(model: Any, state: dict[str, Any], named: dict[str, str], known: dict[str, str]) -> dict[str, str]:
    """Names of tensors that a model keeps outside of parameters and buffers for those of a state that it has no other
    for, by their values.

    None where it has a tensor beside them: that may be made of one of them, and would be left as it was.
    """
    import torch

    kept = kept_tensors(model)
    found: dict[str, str] = {}
    for name in [name for name in state if name not in named]:
        for other, tensor in kept.items():
            free = other not in found.values() and known.get(name, other) == other and _resemble(tensor, state[name])
            if free and (name in known or torch.equal(tensor.flatten(), state[name].flatten().to(tensor.device))):
                found[name] = other
                break
    used = {*named.values(), *found.values()}
    others = [name for name, tensor in {**kept, **named_tensors(model)}.items() if tensor.numel() > 1]
    return found if used.issuperset(others) else {}


def impose(model: Any, state: dict[str, Any], names: dict[str, str]) -> dict[str, Any]:
    """Give the model the judge's state where it has a tensor for it; returns how far that went."""
    import torch

    own = _tensors(model, names.values())
    named = {
        name: own[other] for name, other in names.items() if other in own and own[other].numel() == state[name].numel()
    }
    with torch.no_grad():
        for name, tensor in named.items():
            tensor.copy_(state[name].view(tensor.shape))
    return {
        "matched": len(named),
        "renamed": sum(name != names[name] for name in named),
        "expected": len(state),
        "names": sorted(named),
        "own": len(own),
    }


def _resemble(own: Any, other: Any) -> bool:
    """Whether tensors have one shape but for dimensions of size one, and one type."""
    shapes = [[size for size in tensor.shape if size != 1] for tensor in (own, other)]
    return shapes[0] == shapes[1] and own.dtype == other.dtype
