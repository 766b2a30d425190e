"""Backends: the languages a kernel can be written in.

A backend has two parts. `Backend` works in the main process: it words the prompt and reads a source without running it.
`BackendRunner` works in the judge's zygote and in the runner: it builds and loads a candidate.

    # my_plugin/__init__.py
    from kernelrl_core.api import Component, hookimpl

    @hookimpl
    def kernelrl_backends():
        return [Component("numba", "my_plugin.backend:NumbaBackend", summary="Kernels in Numba's CUDA dialect")]

    # my_plugin/backend.py
    from kernelrl_core.api.backends import Backend, BackendFacts, Example, KernelFact, SourceFacts

    REFERENCE = "class Model(torch.nn.Module):\\n    def forward(self, x):\\n        return x + 1\\n"
    KERNEL = "class ModelNew(torch.nn.Module):\\n    def forward(self, x):\\n        return add_one(x)\\n"

    class NumbaBackend(Backend):
        runner = "my_plugin.runner:NumbaRunner"
        facts = BackendFacts(
            title="Numba",
            fences=("numba",),
            instructions="Decorate each kernel with @cuda.jit and launch it from ModelNew.forward.",
            example=Example(reference=REFERENCE, kernel=KERNEL),
        )

        def source_facts(self, source):
            lines = source.splitlines()
            kernels = [
                KernelFact(below.split("(")[0].removeprefix("def "), number, launched=True, reached=True)
                for number, (line, below) in enumerate(zip(lines, lines[1:]), 1)
                if line.startswith("@cuda.jit") and below.startswith("def ")
            ]
            return SourceFacts(kernels=tuple(kernels))

    # my_plugin/runner.py
    import importlib.util

    from kernelrl_core.api.backends import BackendRunner

    class NumbaRunner(BackendRunner):
        def load(self, path, options):
            spec = importlib.util.spec_from_file_location("candidate", path)
            module = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(module)
            return module.ModelNew
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

import attrs

from kernelrl_core.interfaces.config import ComponentConfig
from kernelrl_core.interfaces.requirements import Requires
from kernelrl_core.types.evaluations import EvaluationSettings
from kernelrl_core.types.replies import SourceFacts
from kernelrl_core.types.tasks import Example

__all__ = ["Backend", "BackendConfig", "BackendFacts", "BackendRunner"]


@attrs.frozen
class BackendFacts:
    """What a prompt states about a backend."""

    title: str
    """Name in running text, such as `Triton`."""
    fences: tuple[str, ...]
    """Tags of code fences, beside `python`, that may hold a candidate for this backend."""
    instructions: str
    """How a candidate must be built: imports, decorator, launch, one short paragraph."""
    example: Example
    """The one-shot example."""
    few_shot: tuple[Example, ...] = ()
    """Further examples for few-shot prompts; empty: the one-shot example is used."""


@attrs.frozen
class BackendConfig(ComponentConfig):
    """Options of a backend."""

    def requires_for(self, settings: EvaluationSettings) -> Requires:
        """Prerequisites that depend on how candidates are evaluated, such as a GPU where run time is measured."""
        return Requires()


class Backend(ABC):
    """A kernel language in the main process: import-light and pure."""

    facts: BackendFacts

    runner: str
    """`module:attribute` of the `BackendRunner`. Its `build` and `load` run only in the build sandbox and in the
    runner."""

    @abstractmethod
    def source_facts(self, source: str) -> SourceFacts:
        """Device kernels and embedded sources of a candidate. `source` parses as Python; it is never executed."""


class BackendRunner(ABC):
    """A kernel language in the zygote and the runner. Nothing of it runs in the main process except `mode`.

    It is made once in the zygote, before any candidate is known, and called in forks of it.
    """

    disables_kernels: bool = False
    """`disable_kernels` is implemented."""
    checks_compilation: bool = False
    """`compile_check` is implemented."""
    mode_without_gpu: str = "compile"
    """What `mode` returns for the option `mode: auto` where there is no GPU."""

    def mode(self, options: Mapping[str, Any], has_gpu: bool) -> str:
        """`interpreter`, `cpu`, `gpu` or `compile`: which zygote serves these options. Called in main process and
        judge; imports nothing.

        By default the option `mode`; for `auto`, or without that option, `gpu` where there is a GPU.
        """
        wanted = str(options.get("mode", "auto"))
        if wanted == "auto":
            return "gpu" if has_gpu else self.mode_without_gpu
        return wanted

    @abstractmethod
    def load(self, path: str, options: Mapping[str, Any]) -> Any:
        """Load the candidate written at `path` and return its `ModelNew` class. Called in the runner.

        Raises whatever the candidate's code raises.
        """

    def environment(self, mode: str, options: Mapping[str, Any]) -> Mapping[str, str]:
        """Environment variables of the zygote, set before Python starts, and of its runners."""
        return {}

    def preload(self, mode: str) -> Sequence[str]:
        """Modules that the zygote imports beside torch, so that each fork has them."""
        return ()

    def toolchain(self, options: Mapping[str, Any], mode: str) -> Mapping[str, Any] | None:
        """How `load_inline` of a candidate is built; None: candidates build nothing.

        Keys: `language` (`cuda`, `hip` or `cpp`), `arch` (a list; empty for that of the GPU at hand), `flags` (added to
        every build), `device_only`.
        """
        return None

    def classify(self, error: BaseException) -> str:
        """`compile`, `memory` or `error` for an exception raised by the candidate."""
        return "error"

    def compile_check(self, module: Any, options: Mapping[str, Any]) -> str:
        """In mode `compile`, where nothing is run: compile what the loaded module defines; a sentence on what was
        compiled. Set `checks_compilation`."""
        raise NotImplementedError

    def disable_kernels(self) -> None:
        """For the probe `no_op`, before a candidate is loaded: no kernel that it launches does anything from here on.
        Set `disables_kernels`. Extensions need nothing: they are built with empty kernels."""
        raise NotImplementedError
