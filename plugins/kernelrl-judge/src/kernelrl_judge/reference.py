"""The reference of a task, as the judge runs it: module, state, inputs of each trial, expected outputs."""

from __future__ import annotations

import copy
import hashlib
import sys
import types
from typing import Any

import attrs
import torch

from kernelrl_core.values import EvaluationSettings

__all__ = ["Reference", "TaskError", "Trial", "load_reference"]

_DTYPES = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}
_NAMES = ("Model", "get_inputs", "get_init_inputs")


class TaskError(Exception):
    """The task itself cannot be used; the message says why."""


@attrs.frozen
class Trial:
    """Inputs of one call and what the reference makes of them."""

    inputs: list[Any]
    expected: Any


class Reference:
    """A task's reference under one input seed.

    The seed of the constructor is public and unrelated to that of the inputs: a candidate that draws its parameters
    in the same order arrives at the same ones.
    """

    def __init__(self, module: types.ModuleType, task_id: str, settings: EvaluationSettings, seed: str, device: str):
        self._module = module
        self._task_id = task_id
        self._seed = seed
        self._device = device
        self.dtype = _DTYPES[settings.precision]
        self.init_seed = int(hashlib.sha256(b"kernelrl init " + task_id.encode()).hexdigest()[:8], 16)
        torch.manual_seed(self.init_seed)
        with _told(task_id, "get_init_inputs()"):
            given = module.get_init_inputs()
        self.arguments, self.keywords = _split(given)
        torch.manual_seed(self.init_seed)
        with _told(task_id, "Model(...)"), torch.no_grad():
            model = module.Model(*copy.deepcopy(self.arguments), **copy.deepcopy(self.keywords))
            if not isinstance(model, torch.nn.Module):
                raise TypeError("Model is not a torch.nn.Module")
            self.model = model.to(device)
            for tensor in (*self.model.parameters(), *self.model.buffers()):
                if tensor.is_floating_point():
                    tensor.data = tensor.data.to(self.dtype)
        self.state = {name: tensor.detach().clone() for name, tensor in self.model.state_dict().items()}

    def trial(self, index: int) -> Trial:
        """Fresh inputs of a trial, and the expected outputs. Equal for equal seed and index."""
        digest = hashlib.sha256(f"{self._seed} {index}".encode()).digest()
        torch.manual_seed(int.from_bytes(digest[:8], "little"))
        with _told(self._task_id, "get_inputs()"):
            inputs = [_cast(value, self.dtype) for value in self._module.get_inputs()]
        torch.manual_seed(int.from_bytes(digest[8:16], "little"))
        with _told(self._task_id, "Model.forward(...)"), torch.no_grad():
            expected = self.model(*(_place(value, self._device) for value in copy.deepcopy(inputs)))
        with torch.no_grad():
            # What forward keeps between calls would make the expected output depend on the number of calls.
            for name, tensor in self.model.state_dict().items():
                tensor.copy_(self.state[name])
        return Trial(inputs, _detached(expected))


def load_reference(source: str, task_id: str) -> types.ModuleType:
    """Execute a task's source as a module.

    Raises:
        TaskError: it does not run, or lacks one of the three names.
    """
    name = "kernelrl_task_" + hashlib.sha256(source.encode("utf-8", "surrogatepass")).hexdigest()[:16]
    module = types.ModuleType(name)
    module.__file__ = f"<task {task_id}>"
    # Classes of the task look their module up when they are copied.
    sys.modules[name] = module
    with _told(task_id, "import"):
        exec(compile(source, module.__file__, "exec"), module.__dict__)
    missing = [wanted for wanted in _NAMES if not hasattr(module, wanted)]
    if missing:
        raise TaskError(f"task {task_id}: {', '.join(missing)} not defined")
    return module


class _told:
    """Turn whatever the task's code raises into a `TaskError` that names the task and the place."""

    def __init__(self, task_id: str, place: str) -> None:
        self._task_id, self._place = task_id, place

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if isinstance(error, Exception) and not isinstance(error, TaskError):
            text = " ".join(str(error).split())[:500]
            raise TaskError(f"task {self._task_id}: {self._place} failed: {type(error).__name__}: {text}") from error


def _split(given: Any) -> tuple[list[Any], dict[str, Any]]:
    if isinstance(given, dict):
        return [], given
    if (
        isinstance(given, list | tuple)
        and len(given) == 2
        and isinstance(given[0], list)
        and isinstance(given[1], dict)
    ):
        return list(given[0]), given[1]
    return list(given), {}


def _cast(value: Any, dtype: torch.dtype) -> Any:
    if isinstance(value, torch.Tensor):
        return value.to(dtype) if value.is_floating_point() else value
    if isinstance(value, list | tuple):
        return type(value)(_cast(item, dtype) for item in value)
    if isinstance(value, dict):
        return {key: _cast(item, dtype) for key, item in value.items()}
    return value


def _place(value: Any, device: str) -> Any:
    if isinstance(value, torch.Tensor):
        return value.to(device)
    if isinstance(value, list | tuple):
        return type(value)(_place(item, device) for item in value)
    if isinstance(value, dict):
        return {key: _place(item, device) for key, item in value.items()}
    return value


def _detached(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.detach().to("cpu").clone()
    if isinstance(value, list | tuple):
        return type(value)(_detached(item) for item in value)
    if isinstance(value, dict):
        return {key: _detached(item) for key, item in value.items()}
    return value
