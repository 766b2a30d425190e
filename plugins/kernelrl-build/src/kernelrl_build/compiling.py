"""From sources to a shared object, by the fastest route whose result certainly equals that of torch's `load_inline`.

There are three routes; the result names the one that was used:

    bound     device code without torch's headers, host code against a precompiled header, functions called through
              trampolines (`binding`)
    pybind    the same with an ordinary Python module, against a larger precompiled header
    ordinary  like torch's `load_inline`: the device compiler reads torch's headers

If a source cannot be split (`splitting.Unsplittable`), or the split may have caused an error, the next route follows.
Any other error is a mistake in the sources. It is reported at once, because most candidates of a model that learns do
not compile.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal

import attrs

from kernelrl_build import stubs
from kernelrl_build.binding import Signature, Unbindable, module_functions, signatures
from kernelrl_build.commands import Commands, Run, at_once
from kernelrl_build.diagnosis import CompileError, NotCertain, other_language
from kernelrl_build.inline_request import InlineRequest
from kernelrl_build.lexing import Unreadable, unbalanced
from kernelrl_build.prepare import MODULE_NAME, Prepared
from kernelrl_build.screening import Denied, screen
from kernelrl_build.splitting import Split, Unsplittable, split
from kernelrl_build.units import (
    declarations_only,
    definitions_for_host,
    device_file,
    device_host_flags,
    main_file,
    main_flags,
    main_unit,
    only_declares,
    whole_device_unit,
)

__all__ = ["CompileError", "Compiled", "compile_extension"]


@attrs.frozen
class Compiled:
    """A compiled extension."""

    path: str
    kind: Literal["bound", "module", "device_only"]
    """The way to load it: by the binder, as a Python module, or none."""
    module_name: str
    bindings: list[dict[str, Any]]
    route: Literal["bound", "pybind", "ordinary", "unchecked"]
    """Route of the build; `unchecked`: nothing was compiled, because this machine lacks a part. It could not execute
    the extension either."""
    reason: str
    """Reason why the route is not `bound`."""
    resources: list[dict[str, Any]]
    """Registers, spills and shared memory of each kernel, as the compiler reports them."""
    seconds: float
    cpu_seconds: float
    stages: dict[str, float]
    """CPU time by command, in seconds."""


def compile_extension(request: InlineRequest, prepared: Prepared, directory: Path, *, run: Run) -> Compiled:
    """Build an extension.

    Args:
        directory: empty, for the files of this build alone.
        run: executes `(argv, cwd)`; returns status, output and CPU time in seconds.

    Raises:
        CompileError: a mistake in the sources.
    """
    try:
        screen(request)
    except Denied as denied:
        raise CompileError(f"denied: {denied}") from None
    except Unreadable as why:
        raise CompileError(f"error: {why}") from None
    try:
        return _Build(request, prepared, directory, run).result()
    except CompileError as error:
        raise CompileError(other_language(request, str(error)) or str(error)) from None


class _Build:
    def __init__(self, request: InlineRequest, prepared: Prepared, directory: Path, run: Run) -> None:
        self._request = request
        self._prepared = prepared
        self._directory = directory
        self._commands = Commands(request, prepared, directory, run)
        self._started = time.monotonic()
        # Compilers quote lines of these files in messages, in the place of the units that are made of the sources.
        for file, sources in (("main.cpp", request.cpp_sources), ("cuda.cu", request.device_sources)):
            (directory / file).write_text("".join(sources[:1]), encoding="utf-8", errors="surrogatepass")

    def result(self) -> Compiled:
        request = self._request
        if request.language == "cpp" and request.device_sources:
            raise CompileError("cuda_sources: this backend compiles C++ for the CPU, and no device code")
        for files, sources in ((main_file, request.cpp_sources), (device_file, request.device_sources)):
            for index, source in enumerate(sources):
                if mistake := unbalanced(source):
                    raise CompileError(f"{files(index)}: error: {mistake}")
        try:
            parts = self._parts()
            if request.device_only:
                return self._device_alone(parts)
        except (Unsplittable, NotCertain) as why:
            return self._device_whole(str(why)) if request.device_only else self._ordinary(str(why))
        reasons: list[str] = []
        for attempt in (self._bound, self._pybind):
            try:
                return attempt(parts, "; ".join(reasons))
            except Unbindable as why:
                reasons.append(str(why))
            except NotCertain as why:
                reasons.append(str(why))
                if why.whole:
                    break
        return self._ordinary("; ".join(dict.fromkeys(reasons)))

    def _parts(self) -> list[Split]:
        """The units of the device sources."""
        request = self._request
        defined = definitions_for_host(request, self._prepared)
        parts = [
            split(source, request.language, device_file(index)) for index, source in enumerate(request.device_sources)
        ]
        return [attrs.evolve(part, host=defined + part.host) for part in parts]

    # --- routes -----------------------------------------------------------------------------------------------------

    def _bound(self, parts: list[Split], reason: str) -> Compiled:
        sources = self._request.cpp_sources
        functions: tuple[tuple[str, ...], ...] = self._request.functions
        if not functions:
            # A module that only binds functions is removed.
            texts = [*sources, *(part.host for part in parts)]
            modules = ((index, found) for index, text in enumerate(texts) if (found := module_functions(text)))
            first = next(modules, None)
            if first is None:
                raise NotCertain("nothing to bind was found")
            index, (text, functions) = first
            if index < len(sources):
                sources = (*sources[:index], text, *sources[index + 1 :])
            else:
                sources = (*sources, declarations_only(text, functions))
                place = index - len(self._request.cpp_sources)
                parts = [*parts[:place], attrs.evolve(parts[place], host=text), *parts[place + 1 :]]
        return self._split_build(parts, sources, signatures(sources, functions), "types", reason)

    def _pybind(self, parts: list[Split], reason: str) -> Compiled:
        return self._split_build(parts, self._request.cpp_sources, None, "extension", reason)

    def _split_build(
        self,
        parts: Sequence[Split],
        cpp_sources: Sequence[str],
        bound: Sequence[Signature] | None,
        header: str,
        reason: str,
    ) -> Compiled:
        """The fast routes: trampolines for `bound`, or a Python module for None."""
        units = {
            f"host{index}": (stubs.prelude(index) if part.stubs else "") + part.host for index, part in enumerate(parts)
        }
        flags, host_flags = main_flags(self._request, cpp_sources), device_host_flags(self._request)
        main = main_unit(self._request, cpp_sources, bound)
        if bound and len(parts) == 1 and flags == host_flags and only_declares(cpp_sources):
            # One unit less to compile. A second declaration of a function that the first part defines changes nothing.
            units["host0"] += "\n" + main
        else:
            units["main"] = main
        jobs: dict[str, Callable[[], None]] = {
            name: partial(
                self._commands.compile_host,
                name,
                text,
                header,
                flags if name == "main" else host_flags,
                parts,
                # The route `ordinary` would compile the same unit of the C++ sources.
                final=name == "main" and header == "extension",
            )
            for name, text in units.items()
        }
        has_templates = any(part.templates for part in parts)
        if not has_templates:
            jobs |= self._device_jobs(parts)
        at_once(jobs)
        if has_templates:
            self._commands.instantiate(parts)
        for index, part in enumerate(parts):
            if part.stubs:
                self._commands.register(index, part)
        self._commands.check_kernels([part for part in parts if not part.stubs], list(units))
        objects = [f"{name}.o" for name in units] + [f"device{index}.o" for index in range(len(parts))]
        path = self._commands.link(objects, with_python=not bound)
        return self._compiled(path, "bound" if bound else "module", bound or (), "bound" if bound else "pybind", reason)

    def _device_jobs(self, parts: Sequence[Split]) -> dict[str, Callable[[], None]]:
        return {
            f"device{index}": partial(self._commands.compile_device, index, part.device, parts)
            for index, part in enumerate(parts)
        }

    def _ordinary(self, reason: str) -> Compiled:
        request = self._request
        if request.language == "cuda" and request.device_sources and not self._prepared.toolchain.has_device_headers:
            raise CompileError("this torch has no headers for the GPU, and the source cannot be compiled without them")
        flags = main_flags(request, request.cpp_sources)
        jobs: dict[str, Callable[[], None]] = {
            "main": lambda: self._commands.compile_host(
                "main", main_unit(request, request.cpp_sources, None), "extension", flags, [], final=True
            )
        }
        if request.device_sources:
            jobs["device0"] = self._compile_whole
        at_once(jobs)
        path = self._commands.link([f"{name}.o" for name in jobs], with_python=True, final=True)
        return self._compiled(path, "module", (), "ordinary", reason)

    def _compile_whole(self) -> None:
        """Compile the device sources as they are, with torch's headers."""
        self._commands.compile_device(0, whole_device_unit(self._request), with_torch=True)

    def _device_alone(self, parts: Sequence[Split]) -> Compiled:
        """The device code alone, for a machine that could not execute it."""
        if not parts:
            raise CompileError("there is no device code")
        at_once(self._device_jobs(parts))
        return self._compiled(self._directory / "device0.o", "device_only", (), "bound", "")

    def _device_whole(self, reason: str) -> Compiled:
        """The same for sources that cannot be split, if torch has the headers that they need."""
        built = self._directory / "device0.o"
        if self._request.language == "cuda" and self._prepared.toolchain.has_device_headers:
            self._compile_whole()
            return self._compiled(built, "device_only", (), "ordinary", reason)
        built.touch()
        return self._compiled(built, "device_only", (), "unchecked", reason)

    def _compiled(self, path: Path, kind: Any, bound: Sequence[Signature], route: Any, reason: str) -> Compiled:
        return Compiled(
            path=str(path),
            kind=kind,
            module_name=MODULE_NAME,
            bindings=[attrs.asdict(signature) for signature in bound],
            route=route,
            reason=reason,
            resources=[kernel for kernel in self._commands.resources.values() if "registers" in kernel],
            seconds=round(time.monotonic() - self._started, 3),
            cpu_seconds=round(sum(self._commands.stages.values()), 3),
            stages={name: round(spent_s, 3) for name, spent_s in self._commands.stages.items()},
        )
