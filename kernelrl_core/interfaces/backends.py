"""Backends: the languages a kernel can be written in.

A backend has two classes. `Backend` works in the main process: it supplies the prompt's facts about the language and
parses a source without executing it. `BackendRunner` works in the judge's zygote and in the runner: it builds and loads
a candidate.

`kernelrl plugins new backends NAME` writes a sample plugin.
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
    """Facts about a backend that prompts contain."""

    title: str
    """Name in running text, such as `Triton`."""
    fences: tuple[str, ...]
    """Tags of code fences, besides `python`, that may contain a candidate for this backend."""
    instructions: str
    """One short paragraph on how to write a candidate: imports, decorator, launch."""
    example: Example
    """Example for one-shot prompts."""
    few_shot: tuple[Example, ...] = ()
    """Further examples for few-shot prompts; empty: few-shot prompts use `example`."""
    host_language: bool = False
    """Whether sources of other backends contain this language, too, such as C++ beside CUDA. Another backend that finds
    a kernel in a source is then the likelier one."""


@attrs.frozen
class BackendConfig(ComponentConfig):
    """Options of a backend."""

    def requires_for(self, settings: EvaluationSettings) -> Requires:
        """Prerequisites that depend on the evaluation settings, such as a GPU when run time is measured."""
        return Requires()


class Backend(ABC):
    """A kernel language in the main process. Its module imports nothing heavy; its methods are pure."""

    facts: BackendFacts
    """Facts for the prompt."""

    runner: str
    """`module:attribute` of the `BackendRunner`. It loads candidates in the build sandbox and in the runner only."""

    @abstractmethod
    def source_facts(self, source: str) -> SourceFacts:
        """Find the device kernels and embedded sources of a candidate. `source` parses as Python; never execute it."""


class BackendRunner(ABC):
    """A kernel language in the zygote and the runner. The main process calls `mode` only.

    The zygote constructs it once, before any candidate is known. The other methods are called in forks of the zygote.
    """

    disables_kernels: bool = False
    """True if `disable_kernels` is implemented."""
    checks_compilation: bool = False
    """True if `compile_check` is implemented."""
    mode_without_gpu: str = "compile"
    """Return value of `mode` for the option `mode: auto` on a machine without a GPU."""

    def mode(self, options: Mapping[str, Any], has_gpu: bool) -> str:
        """Name of the zygote for these options: `interpreter`, `cpu`, `gpu` or `compile`. Called in the main process
        and in the judge; imports nothing.

        The default returns the option `mode`. For `auto`, or without that option, it returns `gpu` if there is a GPU,
        else `mode_without_gpu`.
        """
        wanted = str(options.get("mode", "auto"))
        if wanted == "auto":
            return "gpu" if has_gpu else self.mode_without_gpu
        return wanted

    @abstractmethod
    def load(self, path: str, options: Mapping[str, Any]) -> Any:
        """Load the candidate in the file `path` and return its `ModelNew` class. Called in the runner.

        Exceptions of the candidate's code pass through.
        """

    def environment(self, mode: str, options: Mapping[str, Any]) -> Mapping[str, str]:
        """Environment variables of the zygote and its runners, set before Python starts."""
        return {}

    def preload(self, mode: str) -> Sequence[str]:
        """Modules that the zygote imports besides torch, so that each fork has them loaded."""
        return ()

    def toolchain(self, options: Mapping[str, Any], mode: str) -> Mapping[str, Any] | None:
        """Build settings for `load_inline` calls of a candidate; None: candidates build no extensions.

        Keys: `language` (`cuda`, `hip` or `cpp`), `arch` (list of architectures; empty: that of the present GPU),
        `flags` (added to every build), `device_only`.
        """
        return None

    def classify(self, error: BaseException) -> str:
        """Class of an exception that the candidate raised: `compile`, `memory` or `error`."""
        return "error"

    def compile_check(self, module: Any, options: Mapping[str, Any]) -> str:
        """Compile the kernels of the loaded module without executing them. Called in mode `compile`.

        Requires `checks_compilation = True`.

        Returns:
            One sentence that names the compiled kernels.
        """
        raise NotImplementedError

    def disable_kernels(self) -> None:
        """Turn every later kernel launch of the candidate into a no-op, for the probe `no_op`. Called before the
        candidate is loaded.

        Requires `disables_kernels = True`. Extensions need no handling: the judge builds them with empty kernels.
        """
        raise NotImplementedError
