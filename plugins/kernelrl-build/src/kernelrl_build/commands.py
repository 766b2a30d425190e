"""The commands of a build: compilers, assembler and linker, and the symbols that objects define and need."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from kernelrl_build import stubs
from kernelrl_build.diagnosis import CompileError, Diagnosis, NotCertain
from kernelrl_build.inline_request import InlineRequest
from kernelrl_build.prepare import MODULE_NAME, Prepared
from kernelrl_build.splitting import Split
from kernelrl_build.units import HostFlags, device_host_flags, with_instances

__all__ = ["CAPTURED", "Commands", "Run", "at_once"]

_NEEDS_MORE = re.compile(
    r"\b(?:PYBIND11_\w+|TORCH_LIBRARY\w*|THP\w+|Py\w*Object|py::\w+|pybind11::\w+"
    r"|torch::(?:nn|jit|autograd|optim|data|serialize|dynamo|wrap_pybind_function)\b)"
)
_COVERED = re.compile(
    r"^[ \t]*#[ \t]*include[ \t]*[<\"]"
    r"(?:torch/(?:extension|types|torch|all|python)\.h|ATen/ATen\.h|pybind11/\w+\.h)[>\"]",
    re.MULTILINE,
)

CAPTURED = (
    *("cudaLaunchKernel", "__cudaGetKernel", "__cudaLaunchKernel", "__cudaLaunchKernel_ptsz"),
    *("cudaLaunchCooperativeKernel", "cudaLaunchKernelExC"),
    *("cudaMemcpyAsync", "cudaMemsetAsync", "cudaMemcpy", "cudaMemset", "cudaMalloc", "cudaFree"),
    *("cudaDeviceSynchronize", "cudaStreamSynchronize", "cudaEventSynchronize"),
)
"""Functions of the CUDA runtime that `capture.c` wraps."""
_WRAPPED = [f"-Wl,--wrap={name}" for name in CAPTURED]

Run = Callable[..., tuple[int, str, float]]
"""Executes `(argv, cwd)`; returns status, output and CPU time in seconds."""


class Commands:
    """Runs the commands of a build in its directory.

    Args:
        directory: of this build alone; objects have the names of their units.
    """

    def __init__(self, request: InlineRequest, prepared: Prepared, directory: Path, run: Run) -> None:
        self._request = request
        self._toolchain = prepared.toolchain
        self._prepared = prepared
        self._directory = directory
        self._run = run
        self._diagnosis = Diagnosis(request, prepared, directory, self._probe)
        self.stages: dict[str, float] = {}
        """CPU time by command, in seconds."""
        self.resources: dict[str, dict[str, Any]] = {}
        """Resources of each kernel, by its symbol, as the compiler reports them."""

    def compile_host(
        self, name: str, text: str, header_name: str, flags: HostFlags, parts: Sequence[Split], *, final: bool = False
    ) -> None:
        """Compile a unit for the CPU.

        Args:
            header_name: the precompiled header that comes first.
            parts: the parts of the split device sources.
            final: whether no other route follows that could compile the unit in another way.

        Raises:
            CompileError: a mistake in the sources.
            NotCertain: the split of the sources may have caused the error.
        """
        if header_name == "types":
            if more := _NEEDS_MORE.search(text):
                raise NotCertain(f"{more.group()} needs torch's whole extension header")
            # The prelude replaces these headers; a source that uses more of them takes the next route.
            text = _COVERED.sub("", text)
        source = self._directory / f"unit_{name}.cpp"
        source.write_text(text, encoding="utf-8", errors="surrogatepass")
        precompiled, others = flags
        header = self._prepared.header(header_name, precompiled)
        command = [
            *self._prepared.host_command(precompiled),
            *others,
            *(f"-I{header.parent}", "-include", header.name),
            # The symbols of the objects are read, which contain none after `-flto`.
            *("-fno-lto", "-c", source.name, "-o", f"{name}.o"),
        ]
        status, log, _ = self._execute(f"{name} (g++)", command)
        if status:
            self._diagnosis.fail(log, parts, final=final, whole=header_name != "types")

    def compile_device(self, index: int, text: str, parts: Sequence[Split] = (), *, with_torch: bool = False) -> None:
        """Compile a unit for the device, to machine code alone if the host unit has stubs."""
        toolchain, request = self._toolchain, self._request
        machine_code = bool(parts) and parts[index].stubs and not request.device_only
        source = self._directory / f"device{index}.cu"
        source.write_text(text, encoding="utf-8", errors="surrogatepass")
        flags = request.device_flags
        flags_name_arch = request.language == "cuda" and any("arch" in flag or "gencode" in flag for flag in flags)
        command = toolchain.device_command(() if flags_name_arch else request.arch)
        if request.language == "hip":
            command += ["--genco"] if request.device_only else ["-fPIC", "-c"]
        else:
            command += ["-Xptxas", "-v", *(["-fatbin"] if machine_code else ["-Xcompiler", "-fPIC", "-c"])]
            if not machine_code and toolchain.release >= (12, 8):
                # Otherwise the host side of a template's instance is invisible to other units.
                command.append("--static-global-template-stub=false")
        if not any(flag.lstrip("-").startswith("std=") for flag in flags):
            command.append(f"-std={toolchain.standard}")
        command += [*toolchain.device_flags, *flags]
        if with_torch:
            command += ["-DTORCH_API_INCLUDEEXTENSION_H", f"-DTORCH_EXTENSION_NAME={MODULE_NAME}"]
        paths = toolchain.include_dirs if with_torch or "c10/" in text else ()
        command += [part for path in paths for part in ("-isystem", path)]
        command += [source.name, "-o", f"device{index}.{'fatbin' if machine_code else 'o'}"]
        status, log, _ = self._execute("device", command)
        if status:
            self._diagnosis.fail(log, parts, final=with_torch, whole=True, device=True)
        self.resources |= stubs.read_resources(log)

    def instantiate(self, parts: Sequence[Split]) -> None:
        """Compile the device units with the instances of templates that the host units need."""
        for index, part in enumerate(parts):
            known = self._defined(f"host{index}.o").values() if part.stubs else self._undefined(f"host{index}.o")
            self.compile_device(index, with_instances(part, known), parts)

    def register(self, index: int, part: Split) -> None:
        """Make the object that contains the machine code and the names of its kernels."""
        kernels = {
            symbol: text
            for symbol, text in self._defined(f"host{index}.o").items()
            if _plain_name(text) in part.kernels and "[clone" not in text
        }
        if missing := kernels.keys() - self.resources.keys():
            raise NotCertain(f"no device code for {kernels[min(missing)]}", whole=True)
        source = self._directory / f"device{index}.s"
        source.write_text(stubs.assembly(index, f"device{index}.fatbin", kernels))
        status, log, _ = self._execute("assembler", [self._toolchain.cxx, "-c", source.name, "-o", f"device{index}.o"])
        if status:
            raise NotCertain(f"the kernels cannot be registered: {log[-300:]}", whole=True)

    def check_kernels(self, parts: Sequence[Split], units: Sequence[str]) -> None:
        """Require that the device units define every kernel that host code launches."""
        names = {name for part in parts for name in part.kernels}
        wanted = {
            text for unit in units if names for text in self._undefined(f"{unit}.o") if _plain_name(text) in names
        }
        if not wanted:
            return
        status, listed, _ = self._execute(
            "nm", ["nm", "--defined-only", "--extern-only", "-C", *(f"device{index}.o" for index in range(len(parts)))]
        )
        defined = {line.split(" ", 2)[2].strip() for line in listed.splitlines() if line.count(" ") >= 2}
        if status or wanted - defined:
            raise NotCertain(f"no device code for {min(wanted - defined, default='a kernel')}")

    def link(self, objects: Sequence[str], *, with_python: bool, final: bool = False) -> Path:
        """Link the extension; `with_python` for a Python module."""
        toolchain = self._toolchain
        libraries = [*toolchain.libraries, *(["torch_python"] if with_python else [])]
        command = [
            # An extension calls its own functions, also where another library defines functions of these names.
            *(toolchain.cxx, "-shared", "-Wl,-Bsymbolic-functions", *objects, "-o", "extension.so"),
            *([str(self._prepared.capture_object()), *_WRAPPED] if toolchain.language == "cuda" else ()),
            *(["-fopenmp"] if "-fopenmp" in (*self._request.cflags, *self._request.ldflags) else []),
            *(word for word in self._request.ldflags if word.startswith("-l")),
            *(f"-L{path}" for path in (self._prepared.link_libraries(), *toolchain.library_dirs)),
            # The linker would drop the empty libraries, because nothing uses them.
            *("-Wl,--no-as-needed", *(f"-l{name}" for name in libraries)),
        ]
        status, log, _ = self._execute("link", command)
        if status:
            # A missing library is missing on every route.
            if final or "cannot find -l" in log:
                raise CompileError(self._diagnosis.own(log))
            raise NotCertain(f"linking failed: {log[-300:]}", whole=True)
        return self._directory / "extension.so"

    def _defined(self, name: str) -> dict[str, str]:
        """Functions that an object defines: symbol -> name in C++."""
        lines = []
        for option in ("--no-demangle", "--demangle"):
            status, listed, _ = self._execute("nm", ["nm", "-p", "--defined-only", option, name])
            if status:
                raise NotCertain("nm failed")
            lines.append(listed.splitlines())
        found = {}
        for plain, readable in zip(*lines, strict=True):
            _, kind, symbol = plain.split(" ", 2)
            if kind in "TtWw":
                found[symbol] = readable.split(" ", 2)[2].strip()
        return found

    def _undefined(self, name: str) -> list[str]:
        status, listed, _ = self._execute("nm", ["nm", "-u", "-C", name])
        if status:
            raise NotCertain("nm failed")
        return [line.strip().partition(" ")[2].strip() for line in listed.splitlines()]

    def _execute(self, step: str, command: Sequence[str]) -> tuple[int, str, float]:
        status, log, cpu_s = self._run(list(command), self._directory)
        self.stages[step] = self.stages.get(step, 0.0) + cpu_s
        return status, log, cpu_s

    def _probe(self, text: str) -> str:
        """Output of the compiler for a unit after torch's whole header."""
        # Each line may be an error. The added lines are errors, so that the compiler gives up after them: it would take
        # seconds to instantiate the templates that the header uses.
        most = 2 * text.count("\n") + 1
        ending = "".join(f"namespace kernelrl_end {{ using ::kernelrl_end_{index}; }}\n" for index in range(most))
        (self._directory / "probe.cpp").write_text(text + ending)
        precompiled = device_host_flags(self._request)[0]
        header = self._prepared.header("extension", precompiled)
        command = [*self._prepared.host_command(precompiled), f"-I{header.parent}", "-include", header.name]
        return self._execute("probe", [*command, "-fsyntax-only", f"-fmax-errors={most}", "probe.cpp"])[1]


def at_once(jobs: Mapping[str, Callable[[], None]]) -> None:
    """Run jobs concurrently. Of several errors, a mistake in the sources is raised first."""
    with ThreadPoolExecutor(len(jobs)) as pool:
        futures = [pool.submit(job) for job in jobs.values()]
    errors = [error for future in futures if (error := future.exception()) is not None]
    if errors:
        raise min(errors, key=lambda error: (not isinstance(error, CompileError), not isinstance(error, NotCertain)))


def _plain_name(symbol: str) -> str:
    """Last part of the name of a demangled symbol, without template arguments and parameters."""
    match = re.match(r"(?:void )?(?:\w+::)*(\w+)", symbol)
    return match[1] if match else ""
