"""Random values of parameters, in place of those that the constructor sets.

Constructors set affine weights to one, biases, adapters and running means to zero, and running variances to one. A
kernel that ignores such parameters is correct for them, and one that keeps values computed from them is correct until
they change. Therefore parameters are drawn anew for every call, and for every window of timed calls.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Collection

import attrs
import torch

from kernelrl_judge.limits import LIMITS
from kernelrl_judge.protocol.call import seed
from kernelrl_judge.protocol.trees import decoded, leaves_bytes, real, tensors
from kernelrl_judge.task.comparison import compare_values, tolerance
from kernelrl_judge.task.input_indices import LEARNED
from kernelrl_judge.task.open_elements import neighbours
from kernelrl_judge.task.parameter_match import ParameterMatch, ParameterSpread
from kernelrl_judge.task.reference import KnownDraws, Reference
from kernelrl_judge.task.source import TaskError

__all__ = ["ParameterDraws", "drawn_parameters"]

_MIN_VECTOR_SPREAD, _MIN_HALF_VECTOR_SPREAD = 0.1, 0.5
"""Least standard deviation of drawn vectors, and that in half precision, where a tolerance may hide a bias of 0.1. The
least one of matrices is that of a common initialisation."""
_MAX_TRIED = 32
"""Largest number of lacking parameters whose effect is measured."""
_LARGE_SHARE, _LARGE = 1 / 32, 8.0
"""Share and factor of larger values, which make a bound on parameters have an effect."""
_MAX_BYTES_OF_WINDOW = {"cuda": 256 << 20, "cpu": 4 << 20}
"""Bytes of parameters that may be drawn for every window: more would take longer than the window."""


_SENSITIVE = 4.0
"""Multiple of the tolerance; normalisations and products of half precision stay within it."""
_SPREADS = (ParameterSpread(1.0, has_large_values=True), ParameterSpread(0.125, has_large_values=False))
"""A later one is tried where the reference is not well conditioned under the earlier ones, or only they make it
sensitive."""


@attrs.define(eq=False)
class ParameterDraws:
    """Draws the parameters of a reference, which has a model of its own."""

    reference: Reference
    """The reference with the parameters of the next call."""
    _initial: Reference
    """The reference with the parameters that the constructor set."""
    _match: ParameterMatch
    _names: tuple[str, ...] = ()
    """Parameters that are drawn."""
    _spread: ParameterSpread = _SPREADS[0]
    _n_draws: int = 0

    @property
    def lacking_names(self) -> tuple[str, ...]:
        """Parameters for which the candidate has no tensor."""
        return tuple(sorted(self._match.lacking))

    def draw(self) -> None:
        """Give the reference other parameters."""
        if not self._names:
            return
        self._n_draws += 1
        text = f"{self.reference.seed} parameters {self._n_draws}"
        number = int.from_bytes(hashlib.sha256(text.encode()).digest()[:7], "little")
        seed(number, self.reference.device)
        for name, values in _drawn_values(self._initial, self._names, self._match, self._spread).items():
            self.reference.state[name].copy_(values)
        self.reference.restore()

    def draw_for_window(self) -> None:
        """As `draw`, unless the parameters are too large to be drawn for every window."""
        drawn = [self.reference.state[name] for name in self._names]
        if leaves_bytes(drawn) <= _MAX_BYTES_OF_WINDOW[self.reference.device]:
            self.draw()


def drawn_parameters(reference: Reference, match: ParameterMatch) -> ParameterDraws:
    """Draws of the parameters for one candidate, under which the reference is well conditioned.

    Its reference has the constructor's values of another seed where no draw is well conditioned. A candidate without a
    tensor for a parameter may draw the parameter itself, as the constructor does from its seed. Such a parameter is
    drawn here only if its value makes no difference: the candidate then ignores it.
    """
    initial = reference.with_other_parameters()
    known = reference.facts.draws
    # Only the last draws are kept, because they hold a copy of the model.
    if known is None or known.match != match:
        known = _new_draws(reference, initial, match)
        reference.facts.draws = known
    used = known.reference.with_seed(reference.seed, reference.settings)
    return ParameterDraws(used, initial, match, known.names, known.spread)


def _new_draws(reference: Reference, initial: Reference, match: ParameterMatch) -> KnownDraws:
    # A parameter with several names has one value: the candidate needs a tensor for one of them.
    lacking = {name for name in match.lacking if initial.shared_names.get(name, name) in match.lacking}
    excluded = lacking - _without_effect(reference, initial, lacking)
    names = tuple(name for name in _drawable(initial) if name not in excluded)
    if names:
        state = {name: value.clone() if name in names else value for name, value in initial.state.items()}
        used = initial.with_state(state)
        used.drawn_names = names
        for spread in _SPREADS:
            draws = ParameterDraws(used, initial, match, names, spread)
            draws.draw()
            if not _is_well_conditioned(used):
                continue
            if _is_sensitive(used) and not _is_sensitive(initial):
                continue
            return KnownDraws(match, names, spread, used)
    return KnownDraws(match, (), _SPREADS[0], initial)


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
    parameters = {name for name, _ in reference.model.named_parameters(remove_duplicate=False)}

    def is_drawable(name: str, tensor: torch.Tensor) -> bool:
        if not tensor.numel() or not (tensor.is_floating_point() or tensor.is_complex()):
            return False
        if tensor.element_size() == 1:
            return False
        first = tensor.reshape(-1)[0]
        return name in parameters or (complex(first) in (0, 1) and bool((tensor == first).all()))

    return [name for name, tensor in reference.state.items() if is_drawable(name, tensor)]


def _drawn_values(
    initial: Reference, names: Collection[str], match: ParameterMatch, spread: ParameterSpread
) -> dict[str, torch.Tensor]:
    """Drawn values of the named parameters.

    Parameters that were equal remain equal if the match is by value.
    """
    found: dict[str, torch.Tensor] = {}
    for name in names:
        before = initial.state[name]
        equal = initial.shared_names.get(name)
        if equal not in found and match.is_by_value:
            equal = next((other for other in found if _equal(initial.state[other], before)), None)
        if equal is not None and equal in found:
            found[name] = found[equal].reshape(before.shape)
        else:
            values = _values(real(before), spread)
            found[name] = torch.view_as_complex(values) if before.is_complex() else values
    return found


def _values(before: torch.Tensor, spread: ParameterSpread) -> torch.Tensor:
    """Values of the scale of the initial ones; positive values, such as variances, remain positive."""
    numbers = before.float()
    noise = torch.randn_like(numbers)
    if bool((numbers > 0).all()):
        return (numbers * (spread.share * noise).exp2()).to(before.dtype)
    if spread.has_large_values:
        is_large = torch.rand_like(numbers) < _LARGE_SHARE
        noise = torch.where(is_large, _LARGE * noise, noise)
    if numbers.dim() < 2:
        min_deviation = _MIN_HALF_VECTOR_SPREAD if before.element_size() == 2 else _MIN_VECTOR_SPREAD
    else:
        min_deviation = max(1, numbers[0].numel()) ** -0.5
    deviation = max(float(numbers.std(correction=0)), min_deviation)
    return (numbers + spread.share * deviation * noise).to(before.dtype)


def _equal(first: torch.Tensor, second: torch.Tensor) -> bool:
    is_comparable = first.dtype is second.dtype and first.numel() == second.numel()
    return is_comparable and torch.equal(decoded(first).reshape(-1), decoded(second).reshape(-1))


def _is_well_conditioned(reference: Reference) -> bool:
    """Whether the output is finite, and within the tolerance of that in double precision."""
    with contextlib.suppress(TaskError, torch.OutOfMemoryError):
        inputs = reference.inputs(LEARNED)
        own = reference.expected(inputs, LEARNED)
        if not all(bool(torch.isfinite(tensor).all()) for tensor in tensors(own)):
            return False
        exact = reference.exact(inputs, LEARNED)
        return exact is None or compare_values(exact, own, tolerance(reference.settings)) is None
    return False


def _is_sensitive(reference: Reference) -> bool:
    """Whether the last bits of inputs in half precision decide many elements, as of a softmax of large scores."""
    if reference.dtype.itemsize >= torch.float32.itemsize:
        return False
    with contextlib.suppress(TaskError, torch.OutOfMemoryError):
        inputs = reference.inputs(LEARNED)
        expected = reference.expected(inputs, LEARNED)
        moved = reference.expected(neighbours(inputs, LEARNED, reference.device), LEARNED)
        limit = tolerance(reference.settings)
        wrong = compare_values(expected, moved, attrs.evolve(limit, factor=_SENSITIVE))
        return wrong is not None and (wrong.wrong_share or 0.0) > LIMITS.open_share
    return False
