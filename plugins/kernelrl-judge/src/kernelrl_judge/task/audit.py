"""Audit of a task: its reference is executed to find defects, and shortcuts that pass without its computation."""

from __future__ import annotations

import ast
import functools
import hashlib
import re
import time
import types
from collections.abc import Callable, Sequence
from typing import Any

import attrs
import torch

from kernelrl_core.api.evaluators import EvaluationSettings, from_json, to_json
from kernelrl_judge.limits import LIMITS
from kernelrl_judge.protocol.failures import lacks_memory
from kernelrl_judge.protocol.plain_values import sequence_as
from kernelrl_judge.protocol.trees import decoded, leaves, mapped, real, tensors, total_bytes
from kernelrl_judge.protocol.values import ObjectLeaf
from kernelrl_judge.task.comparison import Tolerance, compare_values, tolerance
from kernelrl_judge.task.input_structure import Broadcasts, structure
from kernelrl_judge.task.open_elements import open_share
from kernelrl_judge.task.operation_counter import OperationCounter
from kernelrl_judge.task.overlays import OVERLAYS
from kernelrl_judge.task.reference import Reference
from kernelrl_judge.task.repeatability import disagreement
from kernelrl_judge.task.source import TaskError, load_reference
from kernelrl_judge.task.trial import Trial

__all__ = ["audit"]

_SEED = "audit"
_TRIALS = 2
_DRAWS = 64
"""Number of inputs drawn to find equal ones: with fewer than a thousand different inputs, two of these are equal nine
times out of ten."""
_DRAWS_FIXED = 16
"""Number of inputs drawn to find leaves that are the same in every call."""
_DRAWING_S = 1.0
"""Time limit for such draws."""
_LAUNCH_US = 5.0
"""Time of a kernel launch. A task whose work takes less is tiny."""
_BYTES_PER_US = 2e6
_FLOPS_PER_US = 50e6
"""Approximate rates of a data-centre GPU: 2 TB/s and 50 TFLOP/s."""
_STRUCTURES = {
    "zeros": (
        "has zeros in the same places in every call",
        re.compile(r"(?i)tri[ul]|triang|diag|spars|mask|causal|band"),
    ),
    "symmetric": ("is symmetric", re.compile(r"(?i)symm|hermit|gram|covarian|correlat|distance|adjacen")),
    "sorted": ("is sorted", re.compile(r"(?i)sort|order|monoton|search|bucket|quantile|cumul")),
}
"""Description of an input with a structure, and the words by which a model promises the structure."""
_MIN_SPREAD = 0.1
"""Least standard deviation of the changes of parameters."""


def audit(source: str, task_id: str, settings: EvaluationSettings, device: str) -> dict[str, Any]:
    """Audit a task.

    Args:
        device: `cpu` or `cuda`; inputs are made there.

    Returns:
        Flags with their measurements, the overlay under which no shortcut passes, and the dtypes of the task; or the
        reason why there is no audit.
    """
    try:
        module = load_reference(source, task_id)
        reference = Reference(module, task_id, settings, device).with_seed(_SEED)
        audited = _AuditedTask(reference, tolerance(settings))
        shortcuts = audited.shortcuts()
        flags = shortcuts | audited.defects(source)
    except (TaskError, MemoryError, RuntimeError) as error:
        text = f"{error!r} {error.__cause__!r}"
        if "MemoryError" in text or lacks_memory(text):
            return {"unaudited": "not enough memory here"}
        if isinstance(error, TaskError):
            return {"flags": {"reference_fails": str(error)}}
        raise
    fixing_overlay = None
    if shortcuts:
        fixing_overlay = next((kind for kind in OVERLAYS if _fixes(kind, module, task_id, settings, device)), None)
    dtypes = reference.facts.dtypes
    return {"flags": flags, "mended_by": fixing_overlay, "dtypes": None if dtypes is None else to_json(dtypes)}


def _fixes(kind: str, module: types.ModuleType, task_id: str, settings: EvaluationSettings, device: str) -> bool:
    """Whether no shortcut passes under an overlay, and the reference stays finite."""
    other = from_json(EvaluationSettings, {**to_json(settings), "input_overlay": kind})
    try:
        audited = _AuditedTask(Reference(module, task_id, other, device).with_seed(_SEED), tolerance(settings))
        return audited.non_finite() == 0 and not audited.shortcuts()
    except (TaskError, MemoryError, RuntimeError):
        return False


class _AuditedTask:
    """A reference with the inputs and expected outputs of some trials."""

    def __init__(self, reference: Reference, limit: Tolerance) -> None:
        self._reference = reference
        self._limit = limit
        self._trials = [self._trial(index) for index in range(_TRIALS)]

    def _trial(self, index: int) -> Trial:
        trial = self._reference.trial(index)
        return attrs.evolve(trial, expected=_numbers_as_tensors(trial.expected))

    def _outputs(self, inputs: list[Any], index: int) -> Any:
        """The outputs of another call of the reference."""
        return _numbers_as_tensors(self._reference.expected(inputs, index))

    def shortcuts(self) -> dict[str, str]:
        """Flags of shortcuts, which pass without the computation of the task."""
        found = {
            "zeros_pass": self._zeros(),
            "constant_pass": self._constant(),
            "identity_pass": self._identity(),
            "input_blind": self._input_blind(),
            "weight_blind": self._weight_blind(),
            "fixed_input": self._fixed_input(),
        }
        return {flag: evidence for flag, evidence in found.items() if evidence is not None}

    def defects(self, source: str) -> dict[str, str]:
        """Flags of defects of the task itself."""
        share = self.non_finite()
        found = {
            "non_finite": f"{share:.3g} of the elements of the output" if share else None,
            "nondeterministic": self._nondeterministic,
            "open_elements": self._open_elements(),
            "accidental_broadcast": self._accidental_broadcast(),
            "fixed_number": self._fixed_number(),
            "few_inputs": self._few_inputs(),
            "structured_input": self._structured_input(_source_without_inputs(source)),
            "tiny": self._tiny(),
        }
        return {flag: evidence for flag, evidence in found.items() if evidence is not None}

    def non_finite(self) -> float:
        """Largest share of elements that are infinite or NaN among the output tensors of the trials."""
        finite_shares = [
            int(torch.isfinite(decoded(tensor)).sum()) / tensor.numel()
            for tensor in self._output_tensors()
            if tensor.numel()
        ]
        return max((1 - share for share in finite_shares), default=0.0)

    def _output_tensors(self) -> list[torch.Tensor]:
        return [tensor for trial in self._trials for tensor in tensors(trial.expected)]

    def _pass(self, outputs: Sequence[Any]) -> bool:
        """Whether outputs, one of each trial, are within the tolerance."""
        pairs = zip(self._trials, outputs, strict=True)
        return all(compare_values(trial.expected, output, self._limit) is None for trial, output in pairs)

    def _zeros(self) -> str | None:
        zeros = [mapped(trial.expected, torch.zeros_like) for trial in self._trials]
        if not self._pass(zeros):
            return None
        largest = max(map(_size, self._output_tensors()), default=0.0)
        return f"largest output {largest:.3g}"

    def _constant(self) -> str | None:
        first = self._trials[0].expected
        for name, choose in (("mean", _mean), ("middle of the range", _middle)):
            constant = mapped(first, functools.partial(_filled, choose=choose))
            if self._pass([constant] * _TRIALS):
                values = ", ".join(f"{_chosen(tensor, choose):.4g}" for tensor in tensors(first)[:3])
                return f"{name} of the first output ({values})"
        return None

    def _identity(self) -> str | None:
        copied = self._copied_inputs()
        if not copied:
            return None
        outputs = [_inputs_as_outputs(trial.expected, trial.inputs, copied) for trial in self._trials]
        if not self._pass(outputs):
            return None
        difference = f"{self._difference(outputs):.3g} off at most"
        if len(copied) == 1:
            return f"input tensor {copied[0]} passes as the output, {difference}"
        return f"input tensors {', '.join(map(str, copied))} pass as the outputs, {difference}"

    def _copied_inputs(self) -> list[int]:
        """For each output tensor the number of an input tensor that passes as it; empty unless every output has one."""
        numbers: list[int] = []
        for output in range(len(tensors(self._trials[0].expected))):
            candidates = range(len(tensors(self._trials[0].inputs)))
            number = next((number for number in candidates if self._passes_as(number, output)), None)
            if number is None:
                return []
            numbers.append(number)
        return numbers

    def _passes_as(self, number: int, output: int) -> bool:
        """Whether an input tensor passes as an output tensor in every trial, both by their numbers."""
        for trial in self._trials:
            inputs, outputs = tensors(trial.inputs), tensors(trial.expected)
            if number >= len(inputs) or output >= len(outputs):
                return False
            given, expected = inputs[number], outputs[output]
            if given.shape != expected.shape or given.dtype != expected.dtype:
                return False
            if compare_values(expected, given, self._limit) is not None:
                return False
        return True

    def _input_blind(self) -> str | None:
        first = self._trials[0].expected
        outputs = [first] * _TRIALS
        if not all(_has_same_shapes(trial.expected, first) for trial in self._trials) or not self._pass(outputs):
            return None
        return f"outputs for {_TRIALS} different inputs differ by {self._difference(outputs):.3g} at most"

    def _weight_blind(self) -> str | None:
        model = self._reference.model
        parameters = [p for p in model.parameters() if (p.is_floating_point() or p.is_complex()) and p.numel()]
        if not parameters:
            return None
        outputs = []
        for index, trial in enumerate(self._trials):
            torch.manual_seed(index)
            with torch.no_grad():
                for parameter in parameters:
                    values = decoded(parameter)
                    spread = max(_MIN_SPREAD, float(real(values).float().std(correction=0)))
                    parameter.copy_(values + spread * torch.randn_like(values))
            # The call restores the parameters.
            outputs.append(self._outputs(trial.inputs, index))
        pairs = zip(outputs, self._trials, strict=True)
        if not all(_has_same_shapes(output, trial.expected) for output, trial in pairs) or not self._pass(outputs):
            return None
        count = sum(parameter.numel() for parameter in parameters)
        return f"with all {count} parameters changed the output differs by {self._difference(outputs):.3g} at most"

    @functools.cached_property
    def _nondeterministic(self) -> str | None:
        found = disagreement(self._reference, self._trials[0].inputs, self._limit)
        return None if found is None else str(found)

    def _open_elements(self) -> str | None:
        # Elements of a reference that disagrees with itself are open for another reason.
        if self._nondeterministic is not None:
            return None
        trial = self._trials[0]
        try:
            share = open_share(self._reference, trial.inputs, 0, self._limit)
        except (TaskError, MemoryError, RuntimeError) as error:
            # A failure for moved inputs, or in the additional memory of double precision, is no defect of the task.
            if isinstance(error, RuntimeError) and not lacks_memory(str(error)):
                raise
            return None
        if share <= LIMITS.open_share:
            return None
        return f"{share:.3g} of the elements of an output change if the inputs move by one unit in the last place"

    @functools.cached_property
    def _fixed_leaves(self) -> list[tuple[str, Any]]:
        """Tensors, numbers and texts among the inputs that are the same in every call, with their paths."""
        found = dict(leaves(self._trials[0].inputs))
        started = time.monotonic()
        # A few integers may be the same in a few calls by chance.
        for index in range(1, _DRAWS_FIXED):
            if not found or (index >= _TRIALS and time.monotonic() - started > _DRAWING_S):
                break
            inputs = self._trials[index].inputs if index < _TRIALS else self._reference.inputs(index)
            drawn = dict(leaves(inputs))
            found = {path: leaf for path, leaf in found.items() if _equal(leaf, drawn.get(path))}
        return list(found.items())

    def _fixed_input(self) -> str | None:
        for path, leaf in self._fixed_leaves:
            if isinstance(leaf, torch.Tensor) and leaf.numel():
                return f"input{path} holds the same values in every call"
            if isinstance(leaf, float | complex):
                return f"input{path} is {leaf} in every call"
        return None

    def _fixed_number(self) -> str | None:
        found = [f"input{path} is {leaf!r}" for path, leaf in self._fixed_leaves if isinstance(leaf, int)]
        return f"{found[0]} in every call" if found else None

    def _few_inputs(self) -> str | None:
        if self._fixed_input() is not None:
            return None
        seen: list[bytes] = []
        started = time.monotonic()
        while len(seen) < _DRAWS and (len(seen) < _TRIALS or time.monotonic() - started < _DRAWING_S):
            seen.append(_digest(self._reference.inputs(_TRIALS + len(seen))))
        different = len(set(seen))
        return f"{different} different inputs in {len(seen)} calls" if different < len(seen) else None

    def _structured_input(self, source: str) -> str | None:
        pairs = zip(tensors(self._trials[0].inputs), tensors(self._trials[1].inputs), strict=False)
        for number, (first, second) in enumerate(pairs):
            found = structure(first, second)
            if found is None:
                continue
            description, words = _STRUCTURES[found]
            if not words.search(source):
                return f"input tensor {number} {description}, of which the model says nothing"
        return None

    def _accidental_broadcast(self) -> str | None:
        broadcasts = Broadcasts(tensors(self._trials[0].inputs))
        self._call_under(broadcasts)
        return broadcasts.found

    def _tiny(self) -> str | None:
        counter = OperationCounter()
        self._call_under(counter)
        trial, flops = self._trials[0], counter.flops
        size = total_bytes([trial.inputs, trial.expected, self._reference.state])
        time_us = max(size / _BYTES_PER_US, flops / _FLOPS_PER_US)
        if time_us >= _LAUNCH_US:
            return None
        return f"{size} bytes and {flops} floating-point operations: {time_us:.3g} us at 2 TB/s and 50 TFLOP/s"

    def _call_under(self, mode: Broadcasts | OperationCounter) -> None:
        # The reference clones its inputs outside of `forward`, so the mode contains only the call of the model.
        with torch.no_grad(), mode:
            self._reference.model(*mapped(self._trials[0].inputs, lambda tensor: tensor))
        self._reference.restore()

    def _difference(self, outputs: list[Any]) -> float:
        """Largest difference between outputs and expected outputs."""
        pairs = zip(self._output_tensors(), tensors(outputs), strict=True)
        return max((_size(_finite(left) - _finite(right)) for left, right in pairs), default=0.0)


def _equal(first: Any, second: Any) -> bool:
    if isinstance(first, torch.Tensor):
        has_same_shape = isinstance(second, torch.Tensor) and first.shape == second.shape
        return has_same_shape and torch.equal(decoded(first), decoded(second))
    return bool(first == second)


def _source_without_inputs(source: str) -> str:
    """Source of a task without the functions that make its inputs and arguments."""
    tree = ast.parse(source)
    tree.body = [node for node in tree.body if getattr(node, "name", "") not in ("get_inputs", "get_init_inputs")]
    return ast.unparse(tree)


def _digest(inputs: Any) -> bytes:
    """Digest of inputs; equal for equal inputs."""
    found = hashlib.blake2b()
    for _, leaf in leaves(inputs):
        if isinstance(leaf, torch.Tensor):
            values = real(leaf.detach()).contiguous().reshape(-1)
            found.update(values.view(torch.uint8).cpu().numpy().data)
        else:
            found.update(repr(leaf).encode())
    return found.digest()


def _size(tensor: torch.Tensor) -> float:
    """Largest absolute value."""
    return max(abs(float(end)) for end in _finite(tensor).aminmax()) if tensor.numel() else 0.0


def _mean(values: torch.Tensor) -> float:
    return float(values.mean(dtype=torch.float64))


def _middle(values: torch.Tensor) -> float:
    return sum(map(float, values.aminmax())) / 2


def _finite(tensor: torch.Tensor) -> torch.Tensor:
    """Values as real floating-point numbers, with zeros in place of NaN and infinities.

    fp16, bf16 and wider values keep their dtype, because a wider copy of a large output may not fit into the device's
    memory.
    """
    values = decoded(real(tensor))
    values = values if values.is_floating_point() else values.float()
    return torch.nan_to_num(values, nan=0.0, posinf=0.0, neginf=0.0)


def _chosen(tensor: torch.Tensor, choose: Callable[[torch.Tensor], float]) -> complex | float | int:
    """A constant for all elements of a tensor, in the kind of its dtype."""
    if not tensor.numel():
        return 0
    if tensor.is_complex():
        parts = [choose(values) for values in _finite(tensor).unbind(-1)]
        return complex(*parts)
    value = choose(_finite(tensor))
    return value if tensor.is_floating_point() else round(value)


def _filled(tensor: torch.Tensor, choose: Callable[[torch.Tensor], float]) -> torch.Tensor:
    return torch.full_like(tensor, _chosen(tensor, choose))


def _numbers_as_tensors(output: Any) -> Any:
    """The output with tensors in double precision in place of its Python floats and complex numbers.

    They are compared with the tolerance of such a tensor, and shortcuts must produce them as well.
    """
    if isinstance(output, float):
        return torch.tensor(output, dtype=torch.float64)
    if isinstance(output, ObjectLeaf) and output.kind == "complex":
        return torch.view_as_complex(torch.tensor(output.parts, dtype=torch.float64))
    if isinstance(output, list | tuple):
        return sequence_as(output, map(_numbers_as_tensors, output))
    if isinstance(output, dict):
        return {key: _numbers_as_tensors(value) for key, value in output.items()}
    return output


def _inputs_as_outputs(expected: Any, inputs: Any, numbers: Sequence[int]) -> Any:
    """Input tensors in the structure of the outputs, each by its number."""
    given = tensors(inputs)
    copies = iter([given[number] for number in numbers])
    return mapped(expected, lambda _: next(copies))


def _has_same_shapes(first: Any, second: Any) -> bool:
    """Whether outputs have the same shapes, so that their values can be compared."""
    return [tensor.shape for tensor in tensors(first)] == [tensor.shape for tensor in tensors(second)]
