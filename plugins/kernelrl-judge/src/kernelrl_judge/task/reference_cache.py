"""The references that a judge keeps from one evaluation to the next."""

from __future__ import annotations

import types
from collections import OrderedDict

import torch

from kernelrl_core.api.evaluators import EvaluationRequest
from kernelrl_judge.device.facts import memory_bytes
from kernelrl_judge.task.reference import Reference
from kernelrl_judge.task.source import load_reference

__all__ = ["ReferenceCache"]

_MAX_MODULES = 256
_MAX_REFERENCES = 2
_INPUTS_SHARE = 32
"""With `fit_memory`, the inputs of a call may take one such part of the memory."""


class ReferenceCache:
    """Loaded task modules, and the references that were used last."""

    def __init__(self) -> None:
        self._modules: OrderedDict[str, types.ModuleType] = OrderedDict()
        self._references: OrderedDict[tuple[str, ...], Reference] = OrderedDict()

    def get(self, request: EvaluationRequest, device: str) -> Reference:
        """The reference of a request with the inputs of its seed.

        Raises:
            TaskError: the task cannot be used.
        """
        settings = request.settings
        key = (
            request.task_sha256,
            settings.precision,
            settings.profile,
            settings.input_overlay,
            device,
            str(settings.fit_memory),
        )
        reference = self._references.pop(key, None)
        if reference is None:
            while len(self._references) >= _MAX_REFERENCES:
                self._references.popitem(last=False)
            if device == "cuda":
                torch.cuda.empty_cache()
            reference = Reference(self._module(request, device), request.task_id, settings, device)
        self._references[key] = reference
        return reference.with_seed(request.seed, settings)

    def clear(self) -> None:
        """Drop all references; modules stay."""
        self._references.clear()

    def _module(self, request: EvaluationRequest, device: str) -> types.ModuleType:
        fits_memory = request.settings.fit_memory
        # Sizes that are fitted to the memory differ from device to device.
        key = f"{request.task_sha256} {device}" if fits_memory else request.task_sha256
        module = self._modules.pop(key, None)
        if module is None:
            budget_bytes = memory_bytes(device) // _INPUTS_SHARE if fits_memory else None
            module = load_reference(request.task_source, request.task_id, budget_bytes)
        self._modules[key] = module
        while len(self._modules) > _MAX_MODULES:
            self._modules.popitem(last=False)
        return module
