"""Audits a task: executes its reference and finds shortcuts that would pass without doing its computation."""

from __future__ import annotations

import ast
import functools
import hashlib
import re
import time
from collections.abc import Callable
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from kernelrl_core.api.evaluators import EvaluationSettings, from_json, to_json
from kernelrl_judge.protocol.failures import lacks_memory
from kernelrl_judge.protocol.trees import leaves, mapped, tensors, total_bytes
from kernelrl_judge.task.comparing import Tolerance, compare_values, tolerance
from kernelrl_judge.task.input_structure import Broadcasts, structure
from kernelrl_judge.task.overlays import OVERLAYS
from kernelrl_judge.task.reference import OperationCounter, Reference
from kernelrl_judge.task.source import TaskError, load_reference

__all__ = ["audit"]

_SEED = "audit"
_TRIALS = 2
_DRAWS = 64
"""Inputs among which two are equal, nine times out of ten, if there are fewer than a thousand different ones."""
_DRAWS_ALIKE = 16
_DRAWING_S = 1.0
_LAUNCH_US = 5.0
_BYTES_PER_US = 2e6
_FLOPS_PER_US = 50e6
"""Of a data-centre GPU, roughly: 2 TB/s and 50 TFLOP/s. What takes less than a launch there is tiny."""
_STRUCTURES = {
    "zeros": (
        "has zeros in the same places in every call",
        re.compile(r"(?i)tri[ul]|triang|diag|spars|mask|causal|band"),
    ),
    "symmetric": ("is symmetric", re.compile(r"(?i)symm|hermit|gram|covarian|correlat|distance|adjacen")),
    "sorted": ("is sorted", re.compile(r"(?i)sort|order|monoton|search|bucket|quantile|cumul")),
}
"""What is said of an input with such a structure, and the words that promise it."""
_SPREAD = 0.1
"""Least standard deviation of what parameters are changed by."""


def audit(source: str, task_id: str, settings: EvaluationSettings, device: str) -> dict[str, Any]:
    """Flags with what was measured, and the overlay that mends the inputs, or why there is no audit.

    Args:
        device: `cpu` or `cuda`; inputs are made there.
    """
    try:
        module = load_reference(source, task_id)
        reference = Reference(module, task_id, settings, device).under(_SEED)
        subject = _Subject(reference, tolerance(settings))
        shortcuts = subject.shortcuts()
        flags = shortcuts | subject.faults(source)
    except (TaskError, MemoryError, RuntimeError) as error:
        said = f"{error!r} {error.__cause__!r}"
        if "MemoryError" in said or lacks_memory(said):
            return {"unaudited": "not enough memory here"}
        if isinstance(error, TaskError):
            return {"flags": {"reference_fails": str(error)}}
        raise
    mended_by = None
    if shortcuts:
        mended_by = next((kind for kind in OVERLAYS if _mends(kind, module, task_id, settings, device)), None)
    return {"flags": flags, "mended_by": mended_by}


def _mends(kind: str, module: Any, task_id: str, settings: EvaluationSettings, device: str) -> bool:
    """Whether no shortcut passes under an overlay, and the reference stays finite."""
    other = from_json(EvaluationSettings, {**to_json(settings), "input_overlay": kind})
    try:
        subject = _Subject(Reference(module, task_id, other, device).under(_SEED), tolerance(settings))
        return subject.non_finite() == 0 and not subject.shortcuts()
    except (TaskError, MemoryError, RuntimeError):
        return False


class _Subject:
    """A reference with inputs and expected outputs of some trials."""

    def __init__(self, reference: Reference, limit: Tolerance) -> None:
        self._reference, self._limit = reference, limit
        self._trials = [reference.trial(index) for index in range(_TRIALS)]

    def shortcuts(self) -> dict[str, str]:
        """Flags of what would pass without the work being done."""
        found = {
            "zeros_pass": self._zeros(),
            "constant_pass": self._constant(),
            "identity_pass": self._identity(),
            "input_blind": self._input_blind(),
            "weight_blind": self._weight_blind(),
            "fixed_input": self._fixed(),
        }
        return {flag: evidence for flag, evidence in found.items() if evidence is not None}

    def faults(self, source: str) -> dict[str, str]:
        """Flags of what is wrong with the task itself."""
        share = self.non_finite()
        found = {
            "non_finite": f"{share:.3g} of the elements of the output" if share else None,
            "nondeterministic": self._nondeterministic(),
            "accidental_broadcast": self._broadcast(),
            "fixed_number": self._fixed_number(),
            "few_inputs": self._few(),
            "structured_input": self._structured(_promising(source)),
            "tiny": self._tiny(),
        }
        return {flag: evidence for flag, evidence in found.items() if evidence is not None}

    def non_finite(self) -> float:
        """Largest share of elements that are infinite or NaN among the output tensors of the trials."""
        outputs = [tensor for trial in self._trials for tensor in tensors(trial.expected)]
        return max((1 - int(torch.isfinite(t).sum()) / t.numel() for t in outputs if t.numel()), default=0.0)

    def _passes(self, *answers: Any) -> bool:
        pairs = zip(self._trials, answers, strict=True)
        return all(compare_values(trial.expected, answer, self._limit) is None for trial, answer in pairs)

    def _zeros(self) -> str | None:
        zeros = [mapped(trial.expected, torch.zeros_like) for trial in self._trials]
        return f"largest output {self._largest():.3g}" if self._passes(*zeros) else None

    def _constant(self) -> str | None:
        for name, choose in (("mean", _mean), ("middle of the range", _middle)):
            answer = mapped(self._trials[0].expected, functools.partial(_filled, choose=choose))
            if self._passes(*[answer] * _TRIALS):
                values = ", ".join(f"{choose(tensor):.4g}" for tensor in tensors(self._trials[0].expected)[:3])
                return f"{name} of the first output ({values})"
        return None

    def _identity(self) -> str | None:
        for place in range(len(tensors(self._trials[0].inputs))):
            answers = [_passed_on(trial.expected, tensors(trial.inputs)[place]) for trial in self._trials]
            if all(answer is not None for answer in answers) and self._passes(*answers):
                return f"input tensor {place} passes as the output, {self._difference(answers):.3g} off at most"
        return None

    def _input_blind(self) -> str | None:
        kept = [self._trials[0].expected] * _TRIALS
        if not all(_alike(trial.expected, kept[0]) for trial in self._trials) or not self._passes(*kept):
            return None
        return f"outputs for {_TRIALS} different inputs differ by {self._difference(kept):.3g} at most"

    def _weight_blind(self) -> str | None:
        model = self._reference.model
        parameters = [p for p in model.parameters() if p.is_floating_point() and p.numel()]
        if not parameters:
            return None
        answers = []
        for index, trial in enumerate(self._trials):
            torch.manual_seed(index)
            with torch.no_grad():
                for parameter in parameters:
                    spread = max(_SPREAD, float(parameter.float().std(correction=0)))
                    parameter.add_(torch.randn_like(parameter), alpha=spread)
            # A forward that was called puts the parameters back.
            answers.append(self._reference.expected(trial.inputs, index))
        if not all(map(_alike, answers, (trial.expected for trial in self._trials))) or not self._passes(*answers):
            return None
        count = sum(parameter.numel() for parameter in parameters)
        return f"with all {count} parameters changed the output differs by {self._difference(answers):.3g} at most"

    def _nondeterministic(self) -> str | None:
        trial = self._trials[0]
        # The seed of index 0 is that of the trial; another must not matter either, since no kernel can know it.
        for what, index in (("the same seed", 0), ("another seed", 1)):
            again = self._reference.expected(trial.inputs, index)
            if not _alike(trial.expected, again):
                return f"called again with {what}, the output has another shape"
            mismatch = compare_values(trial.expected, again, self._limit)
            if mismatch is not None:
                return f"called again with {what}, {mismatch.wrong_share or 0:.3g} of the elements are off"
        return None

    @functools.cached_property
    def _same(self) -> list[tuple[str, Any]]:
        """Tensors, numbers and texts among the inputs that are the same in every call, with their paths."""
        found = dict(leaves(self._trials[0].inputs))
        started = time.monotonic()
        # Few integers may be the same in a few calls by chance.
        for index in range(1, _DRAWS_ALIKE):
            if not found or (index >= _TRIALS and time.monotonic() - started > _DRAWING_S):
                break
            drawn = dict(leaves(self._trials[index].inputs if index < _TRIALS else self._reference.inputs(index)))
            found = {path: leaf for path, leaf in found.items() if _equal(leaf, drawn.get(path))}
        return list(found.items())

    def _fixed(self) -> str | None:
        for path, leaf in self._same:
            if isinstance(leaf, torch.Tensor) and leaf.numel():
                return f"input{path} holds the same values in every call"
            if isinstance(leaf, float | complex):
                return f"input{path} is {leaf} in every call"
        return None

    def _fixed_number(self) -> str | None:
        found = [f"input{path} is {leaf!r}" for path, leaf in self._same if isinstance(leaf, int)]
        return f"{found[0]} in every call" if found else None

    def _few(self) -> str | None:
        if self._fixed() is not None:
            return None
        seen: list[bytes] = []
        started = time.monotonic()
        while len(seen) < _DRAWS and (len(seen) < _TRIALS or time.monotonic() - started < _DRAWING_S):
            seen.append(_digest(self._reference.inputs(_TRIALS + len(seen))))
        different = len(set(seen))
        return f"{different} different inputs in {len(seen)} calls" if different < len(seen) else None

    def _structured(self, said: str) -> str | None:
        for place, pair in enumerate(zip(*(tensors(trial.inputs) for trial in self._trials), strict=False)):
            shown, words = _STRUCTURES.get(structure(*pair), ("", None))
            if words is not None and not words.search(said):
                return f"input tensor {place} {shown}, of which the model says nothing"
        return None

    def _broadcast(self) -> str | None:
        watch = Broadcasts(tensors(self._trials[0].inputs))
        self._called_under(watch)
        return watch.found

    def _tiny(self) -> str | None:
        counter = OperationCounter()
        self._called_under(counter)
        trial, flops = self._trials[0], counter.flops
        size = total_bytes([trial.inputs, trial.expected, self._reference.state])
        time_us = max(size / _BYTES_PER_US, flops / _FLOPS_PER_US)
        if time_us >= _LAUNCH_US:
            return None
        return f"{size} bytes and {flops} floating-point operations: {time_us:.3g} us at 2 TB/s and 50 TFLOP/s"

    def _called_under(self, mode: TorchFunctionMode | OperationCounter) -> None:
        # The reference clones its inputs outside of `forward`, so the mode wraps the model alone.
        with torch.no_grad(), mode:
            self._reference.model(*mapped(self._trials[0].inputs, lambda tensor: tensor))
        self._reference.restore()

    def _largest(self) -> float:
        outputs = [tensor for trial in self._trials for tensor in tensors(trial.expected)]
        return max((_size(tensor) for tensor in outputs), default=0.0)

    def _difference(self, answers: list[Any]) -> float:
        """Largest difference between answers and expected outputs."""
        pairs = zip(tensors([trial.expected for trial in self._trials]), tensors(answers), strict=True)
        return max((_size(_finite(left) - _finite(right)) for left, right in pairs), default=0.0)


def _equal(first: Any, second: Any) -> bool:
    if isinstance(first, torch.Tensor):
        return isinstance(second, torch.Tensor) and first.shape == second.shape and torch.equal(first, second)
    return bool(first == second)


def _promising(source: str) -> str:
    """What a task says about its inputs beside making them."""
    tree = ast.parse(source)
    tree.body = [node for node in tree.body if getattr(node, "name", "") not in ("get_inputs", "get_init_inputs")]
    return ast.unparse(tree)


def _digest(inputs: Any) -> bytes:
    """The same for equal inputs."""
    found = hashlib.blake2b()
    for _, leaf in leaves(inputs):
        if isinstance(leaf, torch.Tensor):
            found.update(leaf.detach().contiguous().reshape(-1).view(torch.uint8).cpu().numpy().data)
        else:
            found.update(repr(leaf).encode())
    return found.digest()


def _size(tensor: torch.Tensor) -> float:
    """Largest absolute value."""
    return max(abs(float(end)) for end in _finite(tensor).aminmax()) if tensor.numel() else 0.0


def _mean(tensor: torch.Tensor) -> float:
    return float(_finite(tensor).mean(dtype=torch.float64)) if tensor.numel() else 0.0


def _middle(tensor: torch.Tensor) -> float:
    return sum(map(float, _finite(tensor).aminmax())) / 2 if tensor.numel() else 0.0


def _finite(tensor: torch.Tensor) -> torch.Tensor:
    """Values as floating-point numbers, with zeros in the place of those that are not finite.

    Outputs may fill much of the device's memory, so nothing is copied to a wider type.
    """
    values = tensor if tensor.is_floating_point() else tensor.float()
    return torch.nan_to_num(values, nan=0.0, posinf=0.0, neginf=0.0)


def _filled(tensor: torch.Tensor, choose: Callable[[torch.Tensor], float]) -> torch.Tensor:
    value = choose(tensor)
    return torch.full_like(tensor, value if tensor.is_floating_point() else round(value))


def _passed_on(expected: Any, given: torch.Tensor) -> Any | None:
    """An input as the answer, where the output is one tensor of its size."""
    outputs = tensors(expected)
    if len(outputs) != 1 or outputs[0].shape != given.shape or outputs[0].dtype != given.dtype:
        return None
    return mapped(expected, lambda _: given)


def _alike(left: Any, right: Any) -> bool:
    """Whether outputs have the same shapes, so that their values can be compared."""
    return [tensor.shape for tensor in tensors(left)] == [tensor.shape for tensor in tensors(right)]
