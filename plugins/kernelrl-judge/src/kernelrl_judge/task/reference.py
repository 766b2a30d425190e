"""The reference of a task, as the judge runs it: module, state, inputs of each trial, expected outputs."""

from __future__ import annotations

import contextlib
import copy
import hashlib
import types
from collections.abc import Mapping, Sequence
from typing import Any

import attrs
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from kernelrl_core.api.evaluators import EvaluationSettings
from kernelrl_judge.protocol.call import seed
from kernelrl_judge.protocol.trees import cloned, mapped, tensors, widened
from kernelrl_judge.task.comparing import compare_bytes
from kernelrl_judge.task.domain import Domain, domains
from kernelrl_judge.task.source import TaskError, constructor_arguments, fitted_sizes, free_sizes, of_task

__all__ = [
    "DTYPES",
    "FIRST_STRESSED",
    "FIRST_TIMED",
    "LEARNED",
    "RESIZED",
    "WARM",
    "WEIGHED",
    "OperationCounter",
    "Reference",
    "Trial",
]


class OperationCounter(TorchDispatchMode):
    """Counts floating-point operations by torch's formulas. torch's own `FlopCounterMode` imports its compiler first,
    which takes seconds in each judge."""

    def __init__(self) -> None:
        super().__init__()
        self.flops = 0

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        # To keep torch's compiler away from this class would be to import it.
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        from torch.utils.flop_counter import flop_registry

        found = func(*args, **(kwargs or {}))
        count = flop_registry.get(func._overloadpacket)
        if count is not None:
            self.flops += count(*args, **(kwargs or {}), out_val=found)
        return found


FIRST_TIMED = 1 << 20
"""From here on they belong to timing, those below to the trials and the probes."""
LEARNED = FIRST_TIMED - 2
"""By which something is found out about a task once; where two are compared, the other is the one before."""
FIRST_STRESSED = FIRST_TIMED - 2
"""Of the first family of the probe `stress`; that of each other family is the one before."""
WEIGHED = FIRST_TIMED - 3
"""By which it is found out what decides an output."""
RESIZED = FIRST_TIMED - 32
"""Of other sizes."""
WARM = FIRST_TIMED - 128
"""Of the calls before a recording, which no other call uses."""

DTYPES = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}
_LEAST_RESIZED = 4
_NEAR = 1e-3
"""Relative difference of an input from an output that it may stand for."""
_STATISTICS = ("running_mean", "running_var", "num_batches_tracked")


@attrs.frozen
class Trial:
    """Inputs of one call and what the reference makes of them."""

    inputs: list[Any]
    expected: Any
    inputs_after: list[Any] | None = None
    """The inputs after the call, where the reference changes them."""
    state_after: Mapping[str, torch.Tensor] = attrs.field(factory=dict)
    """What the call leaves in those parameters and buffers that calls of the reference have changed until then."""

    @property
    def comes_by_itself(self) -> bool:
        """Whether outputs are constant or copies of inputs, so that they may be right without any computation."""
        inputs = tensors(self.inputs)
        return all(_comes_by_itself(tensor, inputs) for tensor in tensors(self.expected))


class Reference:
    """A task's reference on a device.

    The seed of the constructor is public and unrelated to those of the inputs: a candidate that draws its parameters
    in the same order arrives at the same ones.

    Args:
        device: `cpu` or `cuda`.
        init: part of the seed of the constructor.
    """

    def __init__(
        self, module: types.ModuleType, task_id: str, settings: EvaluationSettings, device: str, init: str = "init"
    ) -> None:
        self._module = module
        self.settings = settings
        self.sizes = fitted_sizes(module)
        """Sizes that were made smaller for the memory at hand, by name."""
        self._task_id = task_id
        self.seed = ""
        self._init = init
        self._makes_on_device = device == "cuda" and settings.profile == "strict"
        self.device = device
        self.dtype = DTYPES[settings.precision]
        self.init_seed = int(hashlib.sha256(f"kernelrl {init} {task_id}".encode()).hexdigest()[:8], 16)
        seed(self.init_seed, device)
        with of_task(task_id, "get_init_inputs()"):
            given = module.get_init_inputs()
        self.arguments, self.keywords = constructor_arguments(given)
        seed(self.init_seed, device)
        with of_task(task_id, "Model(...)"), torch.no_grad():
            model = module.Model(*copy.deepcopy(self.arguments), **copy.deepcopy(self.keywords))
            if not isinstance(model, torch.nn.Module):
                raise TypeError("Model is not a torch.nn.Module")
            self.model = model.to(device)
            for tensor in (*self.model.parameters(), *self.model.buffers()):
                if tensor.is_floating_point():
                    tensor.data = tensor.data.to(self.dtype)
        parameters = {name for name, _ in self.model.named_parameters()}
        # Parameters first: whoever has other names for them is given them by their values.
        saved = sorted(self.model.state_dict().items(), key=lambda pair: pair[0] not in parameters)
        self.state = {name: tensor.detach().clone() for name, tensor in saved}
        self.unsaved = {
            name: buffer.detach().clone() for name, buffer in self.model.named_buffers() if name not in self.state
        }
        """Buffers that are not part of the state (`persistent=False`), as they were constructed."""
        self.like: Any = None
        """An expected output, once there is one, with tensors without memory: every other has its structure, shapes and
        dtypes."""
        self.facts: dict[str, Any] = {}
        """What was found out about the task, whatever the seed: shared by all references made by `under`."""

    def under(self, seed: str) -> Reference:
        """This reference with the inputs of another seed."""
        other = copy.copy(self)
        other.seed = seed
        return other

    def with_other_parameters(self) -> Reference:
        """A reference of the same task and seed whose constructor drew other parameters."""
        if "other" not in self.facts:
            self.facts["other"] = Reference(self._module, self._task_id, self.settings, self.device, "other")
        found: Reference = self.facts["other"]
        return found.under(self.seed)

    def with_state(self, state: dict[str, torch.Tensor]) -> Reference:
        """A reference of the same task and seed with other parameters."""
        other = copy.copy(self)
        other.model = self._copied()
        other.state = state
        other.restore()
        return other

    def in_double(self) -> Reference:
        """This reference in double precision; its inputs have to be, too.

        Raises:
            TaskError: the module is not made for that.
        """
        other = copy.copy(self)
        copied = self._copied()
        with of_task(self._task_id, "Model.double()"):
            other.model = copied.double()
        for tensor in (*other.model.parameters(), *other.model.buffers()):
            if tensor.is_complex():
                tensor.data = tensor.data.to(torch.complex128)
        other.state = {name: widened(tensor) for name, tensor in self.state.items()}
        other.unsaved = {
            name: buffer.detach().clone() for name, buffer in other.model.named_buffers() if name in self.unsaved
        }
        return other

    def _copied(self) -> torch.nn.Module:
        # A copy shares the functions in its attributes, and their closures refer to the parameters of the original.
        if not any(getattr(held, "__closure__", None) for part in self.model.modules() for held in vars(part).values()):
            with contextlib.suppress(Exception):  # the module's own code runs here, and may raise anything
                return copy.deepcopy(self.model)
        other = Reference(self._module, self._task_id, self.settings, self.device, self._init)
        other.model.train(self.model.training)
        other.state = self.state
        other.restore()
        return other.model

    def exact(self, inputs: list[Any], index: int = 0) -> Any:
        """The outputs in double precision; None where the module does not run in it, or no copy fits into memory."""
        if "no_double" in self.facts:
            return None
        before = torch.get_default_dtype()
        torch.set_default_dtype(torch.float64)
        try:
            found = self.in_double().expected([mapped(value, widened) for value in inputs], index)
            return mapped(found, widened)
        except torch.OutOfMemoryError:
            return None
        except TaskError as error:
            self.facts["no_double"] = str(error)
            return None
        finally:
            torch.set_default_dtype(before)

    def inputs(self, index: int) -> list[Any]:
        """Fresh inputs on the device. Equal for equal seed, index and device."""
        return self.many_inputs(index, 1)[0]

    @property
    def domains(self) -> list[Domain]:
        """Domain of each input tensor.

        Raises:
            TaskError: the task declares a domain that is malformed.
        """
        if "domains" not in self.facts:
            seed(self._number(0, 0), self.device)
            with of_task(self._task_id, "get_inputs()"), torch.device(self.device):
                self.facts["domains"] = domains(self._module, self._task_id, self._module.get_inputs)
        found: list[Domain] = self.facts["domains"]
        return found

    def resized_inputs(self, index: int) -> list[Any] | None:
        """Fresh inputs of other sizes, where sizes have names that only inputs depend on; otherwise None."""
        names = self._module.__dict__
        sizes = {name: size for name, size in free_sizes(self._module).items() if size >= _LEAST_RESIZED}
        if not sizes:
            return None
        try:
            names.update({name: size // 2 + 1 for name, size in sizes.items()})
            return self.inputs(index)
        finally:
            names.update(sizes)

    def many_inputs(self, index: int, count: int) -> list[list[Any]]:
        """Fresh inputs of several calls, drawn one after the other. Equal for equal seed, index, count and device."""
        overlays = self.domains if self.settings.input_overlay != "none" else None
        seed(self._number(index, 0), self.device)
        # Drawing large inputs on the CPU would take longer than everything else. Those of trials are on the CPU where
        # others draw the same there.
        on_device = self._makes_on_device or index >= FIRST_TIMED
        place = torch.device(self.device) if on_device else contextlib.nullcontext()
        with of_task(self._task_id, "get_inputs()"), place:
            made = [self._module.get_inputs() for _ in range(count)]
            if overlays is not None:
                from kernelrl_judge.task.overlays import overlaid

                made = [overlaid(values, self.settings.input_overlay, overlays) for values in made]
        return [[mapped(value, self._moved) for value in values] for values in made]

    def _moved(self, tensor: torch.Tensor) -> torch.Tensor:
        return tensor.to(self.device, self.dtype if tensor.is_floating_point() else None)

    def expected(self, inputs: list[Any], index: int = 0) -> Any:
        """What the reference makes of inputs; they stay as they are."""
        return self.called(inputs, index, effects=False).expected

    @property
    def changed_state(self) -> dict[str, torch.Tensor]:
        """What was constructed of parameters and buffers that calls change, as far as they have until now."""
        before = self.constructed
        return {name: before[name] for name in sorted(self.facts.get("mutates_state", ()))}

    def called(self, inputs: list[Any], index: int = 0, *, effects: bool = True) -> Trial:
        """What the reference makes of inputs, and what else it changes; they stay as they are.

        Args:
            effects: also return what else the call changes.
        """
        first = "returned_inputs" not in self.facts
        given = cloned(inputs)
        seed(self._number(index, 8), self.device)
        with of_task(self._task_id, "Model.forward(...)"), torch.no_grad():
            found = self.model(*given)
        if first:
            made = {tensor.untyped_storage().data_ptr() for tensor in tensors(found) if tensor.numel()}
            self.facts["returned_inputs"] = frozenset(
                number for number, tensor in enumerate(tensors(given)) if tensor.untyped_storage().data_ptr() in made
            )
            self.facts["mutates_inputs"], self.facts["mutates_state"] = False, frozenset()
        state = {}
        if first or effects:
            after = self.current()
            self.facts["mutates_inputs"] |= compare_bytes(inputs, given) is not None
            self.facts["mutates_state"] |= self._changed_state(after)
            state = {name: after[name].clone() for name in self.facts["mutates_state"] if name in after}
        left = given if effects and self.facts["mutates_inputs"] else None
        # They may take as much of the device's memory as the outputs that are copied now.
        del given
        # An output may be a buffer itself.
        expected = mapped(found, lambda tensor: tensor.detach().clone())
        self.restore()
        return Trial(inputs, expected, left, state)

    def reads(self, name: str) -> bool:
        """Whether outputs depend on what a buffer held before the call."""
        known: dict[str, bool] = self.facts.setdefault("reads", {})
        if name not in known:
            inputs = self.inputs(0)
            usual = self.expected(inputs)
            buffer = self.current()[name]
            # Whole numbers may be indices, and one out of range ends the context of a GPU.
            known[name] = buffer.is_floating_point() or self.device == "cpu"
            with torch.no_grad():
                if buffer.is_floating_point():
                    buffer.add_(0.25)
                elif known[name]:
                    buffer.copy_(~buffer if buffer.dtype is torch.bool else buffer + 1)
            with contextlib.suppress(TaskError):
                known[name] = compare_bytes(usual, self.expected(inputs)) is not None
            self.restore()
        return known[name]

    def trial(self, index: int) -> Trial:
        """Fresh inputs of a trial, and the expected outputs. Equal for equal seed, index and device."""
        found = self.called(self.inputs(index), index)
        self.like = mapped(found.expected, lambda made: torch.empty_like(made, device="meta") if made.numel() else made)
        return found

    @property
    def constructed(self) -> dict[str, torch.Tensor]:
        """Parameters and buffers, saved or not, as they were constructed."""
        return {**self.state, **self.unsaved}

    def current(self) -> dict[str, torch.Tensor]:
        """Parameters and buffers as they are now, of those that the constructor made."""
        found = {**self.model.state_dict(), **{name: buffer.detach() for name, buffer in self.model.named_buffers()}}
        return {name: found[name] for name in (*self.state, *self.unsaved) if name in found}

    def _changed_state(self, found: Mapping[str, torch.Tensor]) -> frozenset[str]:
        """Names of what is not as it was, without statistics of norms, and without what has another shape now."""
        before = self.constructed
        changed = [name for name in found if found[name].shape == before[name].shape]
        changed = [name for name in changed if compare_bytes(found[name], before[name]) is not None]
        # No call in training mode reads the running statistics of torch's norms; kernels for training leave them out.
        norms = [
            prefix
            for prefix, module in self.model.named_modules()
            if changed and isinstance(module, torch.nn.modules.batchnorm._NormBase)
        ]
        return frozenset(changed) - {f"{prefix}.{name}".lstrip(".") for prefix in norms for name in _STATISTICS}

    def restore(self) -> None:
        """Undo what forward keeps between calls, which would make an output depend on the number of calls."""
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

    def _number(self, index: int, place: int) -> int:
        digest = hashlib.sha256(f"{self.seed} {index}".encode()).digest()
        return int.from_bytes(digest[place : place + 8], "little")


def _comes_by_itself(expected: torch.Tensor, inputs: Sequence[torch.Tensor]) -> bool:
    """Whether memory that was cleared, or an input that is copied, may be right."""
    first = expected.flatten()[:1]
    if expected.numel() <= 1:
        # Nobody clears memory with another number.
        return bool(((first == 0) | (first == 1) | first.isinf()).all())
    if bool((expected == first).all()):
        return True
    flat = expected.flatten().double()
    return any(
        tensor.numel() == flat.numel() and torch.allclose(tensor.flatten().double(), flat, rtol=_NEAR, atol=0.0)
        for tensor in inputs
    )
