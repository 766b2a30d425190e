"""The reference of a task in the judge: model, state, inputs of each call, expected outputs, and facts about it."""

from __future__ import annotations

import contextlib
import copy
import hashlib
import types
from collections.abc import Mapping, Sequence
from typing import Any

import attrs
import torch
from torch.nn.parameter import is_lazy
from torch.overrides import TorchFunctionMode

from kernelrl_core.api.evaluators import EvaluationSettings, TaskDtypes
from kernelrl_judge.protocol.call import seed
from kernelrl_judge.protocol.trees import cloned, decoded, mapped, tensors, widened
from kernelrl_judge.task.comparison import DTYPES, compare_bytes
from kernelrl_judge.task.domain import Domain, domains
from kernelrl_judge.task.dtypes import task_dtypes
from kernelrl_judge.task.input_indices import FIRST_TIMED, LEARNED
from kernelrl_judge.task.overlays import overlaid
from kernelrl_judge.task.parameter_match import ParameterMatch, ParameterSpread
from kernelrl_judge.task.regions import Coverage
from kernelrl_judge.task.source import (
    TaskError,
    constructor_arguments,
    fitted_sizes,
    listed_inputs,
    of_task,
    plain_output,
    require_carried,
    require_comparable,
    resized,
)
from kernelrl_judge.task.trial import Trial

__all__ = ["KnownDraws", "Reference", "StressFacts", "TaskFacts", "Work"]

_MIN_RESIZED = 4
"""Smallest size that `resized_inputs` changes."""
_STATISTICS = ("running_mean", "running_var", "num_batches_tracked")


_DOUBLE = {torch.float32: torch.float64, torch.complex64: torch.complex128}


class _SingleAsDouble(TorchFunctionMode):
    """Calls that request single precision compute in double precision: a reference of half precision requests it where
    it wants more digits. Bits of a number that are viewed as another dtype remain those of single precision."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func is torch.Tensor.float:
            return args[0].double()
        if func is torch.Tensor.view:
            viewed = kwargs.get("dtype", args[1] if len(args) > 1 else None)
            is_of_single = isinstance(viewed, torch.dtype) and viewed.itemsize == torch.float32.itemsize
            tensor = args[0].float() if is_of_single and args[0].dtype is torch.float64 else args[0]
            return func(tensor, *args[1:], **kwargs)
        return func(*map(_in_double, args), **{name: _in_double(value) for name, value in kwargs.items()})


def _in_double(argument: Any) -> Any:
    return _DOUBLE.get(argument, argument) if isinstance(argument, torch.dtype) else argument


@attrs.frozen
class Work:
    """Least work of one call."""

    moved_bytes: int
    """Bytes of the inputs, parameters, buffers and outputs."""
    flops: int
    """Floating-point operations of the matrix products and convolutions."""


@attrs.frozen
class StressFacts:
    """Properties of a task on which the probe `stress` depends."""

    bytes: int
    """Bytes of the inputs, parameters, buffers and outputs in shared memory."""
    has_unordered_functions: bool
    """Whether the reference calls functions whose result may depend on the order of equal numbers."""
    is_hazardous: bool
    """Whether the reference calls functions that may assert on a GPU that their inputs are in a range."""


@attrs.frozen
class KnownDraws:
    """How parameters are drawn for a candidate, and a reference for them."""

    match: ParameterMatch
    names: tuple[str, ...]
    """Parameters that are drawn."""
    spread: ParameterSpread
    reference: Reference
    """With a model of its own if parameters are drawn."""


@attrs.define
class TaskFacts:
    """Facts about a task, each determined once and independent of the seed of the inputs.

    All references that `Reference.with_seed` returns share one object. A field is None until its fact is determined.
    """

    shares_memory: bool = False
    """Whether other evaluations share the memory of the device."""
    other: Reference | None = None
    """Reference whose constructor drew other parameters."""
    dtype: torch.dtype | None = None
    """Dtype of the task (`Reference.dtype`)."""
    dtypes: TaskDtypes | None = None
    """Dtypes of the inputs, parameters and outputs in the first call."""
    is_comparable: bool = False
    """Whether the output of a trial has values that can be compared."""
    draws_random_numbers: bool | None = None
    """Whether the output depends on the random state."""
    returned_inputs: frozenset[int] | None = None
    """Numbers of the input tensors whose memory an output has."""
    mutates_inputs: bool = False
    """Whether a call has changed its inputs."""
    mutates_state: frozenset[str] = frozenset()
    """Names of the parameters and buffers that calls have changed."""
    domains: list[Domain] | None = None
    """Domain of each input tensor."""
    no_double: str | None = None
    """Error of the reference in double precision; None if none is known."""
    reads: dict[str, bool] = attrs.field(factory=dict)
    """Whether outputs depend on the value of a buffer before the call, by the name of the buffer."""
    usual_scales: Mapping[str, float] | None = None
    """Root mean square of each output over several inputs, by the path of the output."""
    own_errors: Mapping[str, float] | None = None
    """Error of the reference against double precision by the path of the output, as a share of its scale."""
    has_narrow_convolutions: bool | None = None
    """Whether the reference has convolutions that PyTorch may compute with factors of ten bits."""
    rounding_unit: float | None = None
    """Unit of rounding of the coarsest half-precision dtype of the task; 0 without one."""
    call_s: float | None = None
    """Wall time of one call."""
    coverage: Coverage | None = None
    """Regions of the inputs, and how far each of them moves the output."""
    draws: KnownDraws | None = None
    """How parameters are drawn for the last candidate."""
    work: Work | None = None
    """Least work of one call."""
    bytes_that_matter: tuple[int, int] | None = None
    """Bytes of the inputs of a call, and of the parameters, that decide the output."""
    stress: StressFacts | None = None
    """Properties on which the probe `stress` depends."""
    stress_variants: dict[str, int] = attrs.field(factory=dict)
    """Number of the first variant under which the reference is well conditioned, by family of harder inputs."""


class Reference:
    """The reference of a task on a device.

    The seed of the constructor is public and unrelated to the seeds of the inputs. A candidate that draws its
    parameters in the same order therefore has the same parameters.

    Args:
        device: `cpu` or `cuda`.
        constructor_name: part of the seed of the constructor.
    """

    def __init__(
        self,
        module: types.ModuleType,
        task_id: str,
        settings: EvaluationSettings,
        device: str,
        constructor_name: str = "init",
    ) -> None:
        self._module = module
        self.settings = settings
        self.sizes = fitted_sizes(module)
        """Sizes that were reduced to fit into the memory of this machine, by name."""
        self.task_id = task_id
        self.seed = ""
        self._constructor_name = constructor_name
        self._draws_on_device = device == "cuda" and settings.profile == "strict"
        self.device = device
        self.cast = DTYPES[settings.cast] if settings.cast is not None else None
        """Dtype to which floating-point inputs and parameters are cast; None: they keep the task's dtypes."""
        digest = hashlib.sha256(f"kernelrl {constructor_name} {task_id}".encode()).hexdigest()
        self.init_seed = int(digest[:8], 16)
        seed(self.init_seed, device)
        with of_task(task_id, "get_init_inputs()"):
            self.arguments, self.keywords = constructor_arguments(module.get_init_inputs())
        for name, value in (*enumerate(self.arguments, 1), *self.keywords.items()):
            require_carried(value, task_id, f"get_init_inputs() argument {name}")
        self.facts = TaskFacts()
        seed(self.init_seed, device)
        with of_task(task_id, "Model(...)"), torch.no_grad():
            model = module.Model(*copy.deepcopy(self.arguments), **copy.deepcopy(self.keywords))
            if not isinstance(model, torch.nn.Module):
                raise TypeError("Model is not a torch.nn.Module")
            self.model = model.to(device)
            if self.cast is not None:
                cast_floats(self.model, self.cast)
        self._materialise()
        parameters = {name for name, _ in self.model.named_parameters(remove_duplicate=False)}
        # Parameters come first: those with other names in the candidate are matched by value, in this order.
        saved = sorted(self._saved_tensors(), key=lambda pair: pair[0] not in parameters)
        self.state = {name: tensor.detach().clone() for name, tensor in saved}
        self.shared_names = _shared_names(saved)
        """First name of each parameter or buffer that has further names, by the further name."""
        self.unsaved = {
            name: buffer.detach().clone() for name, buffer in self.model.named_buffers() if name not in self.state
        }
        """Buffers that are not part of the state (`persistent=False`), as they were constructed."""
        self.drawn_names: tuple[str, ...] = ()
        """Names of the parameters that are drawn anew for every call."""
        self.like: Any = None
        """Outputs of the last trial as tensors without memory; None before the first trial. All outputs have this
        structure and these shapes and dtypes."""

    def _materialise(self) -> None:
        """Give lazy parameters, such as those of `torch.nn.LazyLinear`, their shapes and values by a first call."""
        if not any(map(is_lazy, (*self.model.parameters(), *self.model.buffers()))):
            return
        inputs = self.inputs(LEARNED)
        seed(self.init_seed, self.device)
        with of_task(self.task_id, "Model.forward(...)"), torch.no_grad():
            self.model(*inputs)

    def _saved_tensors(self) -> list[tuple[str, torch.Tensor]]:
        """Names and tensors of the model's state.

        Raises:
            TaskError: no candidate can be given one of them.
        """
        with of_task(self.task_id, "Model.state_dict()"):
            saved = dict(self.model.state_dict())
        found = [(name, value) for name, value in saved.items() if isinstance(value, torch.Tensor)]
        for name, tensor in found:
            require_carried(tensor, self.task_id, f"parameter or buffer {name} ")
        return found

    def with_seed(self, seed: str, settings: EvaluationSettings | None = None) -> Reference:
        """This reference with the inputs of another seed.

        Args:
            settings: in place of its own, with the same profile, precision and overlay.
        """
        other = copy.copy(self)
        other.seed = seed
        other.settings = settings or self.settings
        return other

    def with_other_parameters(self) -> Reference:
        """A reference of the same task and seed whose constructor drew other parameters."""
        if self.facts.other is None:
            other = Reference(self._module, self.task_id, self.settings, self.device, "other")
            # Facts belong to the task, whatever its parameters are.
            other.facts = self.facts
            self.facts.other = other
        return self.facts.other.with_seed(self.seed, self.settings)

    def with_state(self, state: dict[str, torch.Tensor]) -> Reference:
        """A reference of the same task and seed with other parameters."""
        other = copy.copy(self)
        other.model = self._copied_model()
        other.state = state
        other.restore()
        return other

    def in_double(self) -> Reference:
        """This reference in double precision. Its inputs must be in double precision, too.

        Raises:
            TaskError: the model does not support double precision.
        """
        other = copy.copy(self)
        copied = self._copied_model()
        with of_task(self.task_id, "Model.double()"):
            other.model = copied.double()
        for tensor in (*other.model.parameters(), *other.model.buffers()):
            if tensor.is_complex():
                tensor.data = tensor.data.to(torch.complex128)
        other.state = {name: widened(tensor) for name, tensor in self.state.items()}
        other.unsaved = {
            name: buffer.detach().clone() for name, buffer in other.model.named_buffers() if name in self.unsaved
        }
        return other

    def _copied_model(self) -> torch.nn.Module:
        # A deep copy shares the functions in its attributes. Their closures refer to the parameters of the original.
        attributes = [attribute for part in self.model.modules() for attribute in vars(part).values()]
        if not any(getattr(attribute, "__closure__", None) for attribute in attributes):
            # The task's own code runs here and may raise anything.
            with contextlib.suppress(Exception):
                return copy.deepcopy(self.model)
        other = Reference(self._module, self.task_id, self.settings, self.device, self._constructor_name)
        other.model.train(self.model.training)
        other.state = self.state
        other.restore()
        return other.model

    def exact(self, inputs: list[Any], index: int = 0) -> Any:
        """The outputs in double precision; None if the model does not run in it, or if no copy fits into memory."""
        if self.facts.no_double is not None:
            return None
        before = torch.get_default_dtype()
        torch.set_default_dtype(torch.float64)
        try:
            with _SingleAsDouble():
                found = self.in_double().expected([mapped(value, widened) for value in inputs], index)
            return mapped(found, widened)
        except torch.OutOfMemoryError:
            return None
        except TaskError as error:
            self.facts.no_double = str(error)
            return None
        finally:
            torch.set_default_dtype(before)

    def inputs(self, index: int) -> list[Any]:
        """Fresh inputs on the device. Equal for equal seed, index and device."""
        return self.many_inputs(index, 1)[0]

    @property
    def dtype(self) -> torch.dtype:
        """Dtype of the task: the one to which it is cast, or the narrowest floating-point dtype of its inputs and
        parameters; fp32 if it has none."""
        if self.facts.dtype is None:
            values = [*tensors(self.inputs(LEARNED)), *self.state.values()]
            floating = [tensor.dtype for tensor in values if tensor.is_floating_point()]
            narrowest = min(floating, key=lambda dtype: dtype.itemsize, default=torch.float32)
            self.facts.dtype = self.cast or narrowest
        return self.facts.dtype

    @property
    def domains(self) -> list[Domain]:
        """Domain of each input tensor.

        Raises:
            TaskError: the task declares a domain that is malformed.
        """
        if self.facts.domains is None:
            seed(self._number(0, 0), self.device)
            with of_task(self.task_id, "get_inputs()"), torch.device(self.device):
                self.facts.domains = domains(self._module, self.task_id, self._drawn_inputs)
        return self.facts.domains

    def resized_inputs(self, index: int) -> list[Any] | None:
        """Fresh inputs of other sizes; None if the task has no sizes on which only its inputs depend.

        Raises:
            TaskError: `get_inputs` fails with them.
        """
        with resized(self._module, _MIN_RESIZED) as has_sizes:
            return self.inputs(index) if has_sizes else None

    def many_inputs(self, index: int, count: int) -> list[list[Any]]:
        """Fresh inputs of several calls, drawn one after the other. Equal for equal seed, index, count and device."""
        overlay = self.settings.input_overlay
        overlaid_domains = self.domains if overlay != "none" else None
        seed(self._number(index, 0), self.device)
        # Drawing large inputs on the CPU would take longer than all else. Only inputs of trials in the profile
        # `kernelbench` are drawn there, because KernelBench draws the same inputs on the CPU.
        on_device = self._draws_on_device or index >= FIRST_TIMED
        default_device = torch.device(self.device) if on_device else contextlib.nullcontext()
        with of_task(self.task_id, "get_inputs()"), default_device:
            drawn = [self._drawn_inputs() for _ in range(count)]
            if overlaid_domains is not None:
                drawn = [overlaid(values, overlay, overlaid_domains) for values in drawn]
        return [[mapped(value, self._on_device) for value in values] for values in drawn]

    def _drawn_inputs(self) -> list[Any]:
        """Inputs of one call as the task draws them."""
        drawn = listed_inputs(self._module.get_inputs())
        for number, value in enumerate(drawn, 1):
            require_carried(value, self.task_id, f"get_inputs() value {number}")
        return drawn

    def _on_device(self, tensor: torch.Tensor) -> torch.Tensor:
        # The memory of a lazily conjugated or negated tensor holds other values.
        return tensor.resolve_conj().resolve_neg().to(self.device, self.cast if tensor.is_floating_point() else None)

    def expected(self, inputs: list[Any], index: int = 0) -> Any:
        """The outputs of the reference for inputs, which it leaves unchanged."""
        return self.called(inputs, index, effects=False).expected

    @property
    def changed_state(self) -> dict[str, torch.Tensor]:
        """Constructed values of the parameters and buffers that calls so far have changed."""
        before = self.constructed
        return {name: before[name] for name in sorted(self.facts.mutates_state)}

    @property
    def imposed_state(self) -> dict[str, torch.Tensor]:
        """Parameters and buffers that a candidate gets before a call: those that are drawn, and the constructed values
        of those that calls change."""
        return {**{name: self.state[name] for name in self.drawn_names}, **self.changed_state}

    def called(self, inputs: list[Any], index: int = 0, *, effects: bool = True) -> Trial:
        """The outputs of the reference for inputs, and its other effects. The inputs themselves remain unchanged.

        Args:
            effects: also return the effects of the call on its inputs and on the state.
        """
        facts = self.facts
        is_first_call = facts.returned_inputs is None
        given = cloned(inputs)
        seed(self._number(index, 8), self.device)
        with of_task(self.task_id, "Model.forward(...)"), torch.no_grad():
            found = plain_output(self.model(*given), self.task_id)
        if is_first_call:
            facts.returned_inputs = _shared_inputs(given, found)
            facts.dtypes = task_dtypes(inputs, self.state.values(), found)
        state: dict[str, torch.Tensor] = {}
        if is_first_call or effects:
            after = self.current()
            facts.mutates_inputs |= compare_bytes(inputs, given) is not None
            facts.mutates_state |= self._changed_names(after)
            state = {name: after[name].clone() for name in facts.mutates_state if name in after}
        inputs_after = given if effects and facts.mutates_inputs else None
        # The copies of the inputs may need as much device memory as the copies of the outputs that follow.
        del given
        # An output may be a buffer of the model.
        expected = mapped(found, lambda tensor: tensor.detach().clone())
        self.restore()
        return Trial(inputs, expected, inputs_after, state)

    def reads(self, name: str) -> bool:
        """Whether outputs depend on the value that a buffer had before the call."""
        known = self.facts.reads
        if name not in known:
            inputs = self.inputs(0)
            usual = self.expected(inputs)
            buffer = self.current()[name]
            # Integers may be indices, and one out of range ends the context of a GPU.
            known[name] = buffer.is_floating_point() or self.device == "cpu"
            with torch.no_grad():
                if buffer.is_floating_point():
                    buffer.copy_(decoded(buffer) + 0.25)
                elif known[name]:
                    # torch adds no unsigned integers.
                    buffer.copy_(~buffer if buffer.dtype is torch.bool else buffer.long() + 1)
            with contextlib.suppress(TaskError):
                known[name] = compare_bytes(usual, self.expected(inputs)) is not None
            self.restore()
        return known[name]

    def trial(self, index: int, inputs: list[Any] | None = None) -> Trial:
        """Inputs of a trial, and the expected outputs.

        Args:
            inputs: in place of the drawn ones, which are equal for equal seed, index and device.

        Raises:
            TaskError: the reference fails, or its output has no value that can be compared.
        """
        found = self.called(self.inputs(index) if inputs is None else inputs, index)
        if not self.facts.is_comparable:
            require_comparable(found.expected, self.task_id)
            self.facts.is_comparable = True
        self.like = mapped(found.expected, lambda made: torch.empty_like(made, device="meta") if made.numel() else made)
        return found

    @property
    def constructed(self) -> dict[str, torch.Tensor]:
        """Parameters and buffers, saved or not, as they were constructed."""
        return {**self.state, **self.unsaved}

    def current(self) -> dict[str, torch.Tensor]:
        """Current values of the parameters and buffers that the constructor made."""
        buffers = {name: buffer.detach() for name, buffer in self.model.named_buffers()}
        found = {**self.model.state_dict(), **buffers}
        return {name: found[name] for name in (*self.state, *self.unsaved) if name in found}

    def _changed_names(self, found: Mapping[str, torch.Tensor]) -> frozenset[str]:
        """Names of the values that differ from the constructed ones and have the same shape.

        Running statistics of torch's norms do not count: no call in training mode reads them, and kernels for training
        do not update them.
        """
        before = self.constructed
        same_shape = [name for name in found if found[name].shape == before[name].shape]
        changed = frozenset(name for name in same_shape if compare_bytes(found[name], before[name]) is not None)
        if not changed:
            return changed
        norms = [
            prefix
            for prefix, module in self.model.named_modules()
            if isinstance(module, torch.nn.modules.batchnorm._NormBase)
        ]
        return changed - {f"{prefix}.{name}".lstrip(".") for prefix in norms for name in _STATISTICS}

    def restore(self) -> None:
        """Undo the changes that a call made to the state, so that no output depends on the number of calls."""
        found = self.current()
        with torch.no_grad():
            for name, value in self.constructed.items():
                if name in found and found[name].shape == value.shape:
                    found[name].copy_(value)
                    continue
                path, _, last = name.rpartition(".")
                buffers = self.model.get_submodule(path)._buffers
                if last in buffers:
                    buffers[last] = value.clone()

    def _number(self, index: int, offset: int) -> int:
        """Seed of the inputs (offset 0) or of the call (offset 8) with an index."""
        digest = hashlib.sha256(f"{self.seed} {index}".encode()).digest()
        return int.from_bytes(digest[offset : offset + 8], "little")


def _shared_names(named: Sequence[tuple[str, torch.Tensor]]) -> dict[str, str]:
    """First name of each tensor that has several names, by the further ones."""
    first: dict[tuple[int, torch.Size, tuple[int, ...]], str] = {}
    found = {}
    for name, tensor in named:
        if tensor.numel():
            known = first.setdefault((tensor.data_ptr(), tensor.shape, tensor.stride()), name)
            if known != name:
                found[name] = known
    return found


def cast_floats(model: torch.nn.Module, dtype: torch.dtype) -> None:
    """Cast all floating-point parameters and buffers of a model, in place."""
    for tensor in (*model.parameters(), *model.buffers()):
        if tensor.is_floating_point():
            tensor.data = tensor.data.to(dtype)


def _shared_inputs(inputs: list[Any], outputs: Any) -> frozenset[int]:
    """Numbers of the input tensors whose memory an output has."""
    output_memory = {tensor.untyped_storage().data_ptr() for tensor in tensors(outputs) if tensor.numel()}
    return frozenset(
        number for number, tensor in enumerate(tensors(inputs)) if tensor.untyped_storage().data_ptr() in output_memory
    )
