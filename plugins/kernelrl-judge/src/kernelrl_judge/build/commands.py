"""The commands of a build: compilers, assembler and linker, and which symbols objects define and need."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from kernelrl_judge.build import stubs
from kernelrl_judge.build.diagnosis import CompileError, Diagnosis, NotCertain
from kernelrl_judge.build.prepare import MODULE_NAME, Prepared
from kernelrl_judge.build.splitting import Split
from kernelrl_judge.build.store import InlineRequest
from kernelrl_judge.build.units import HostFlags, device_host_flags, with_instances

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
    *("cudaLaunchKernel", "cudaLaunchCooperativeKernel", "cudaLaunchKernelExC", "cudaMemcpyAsync", "cudaMemsetAsync"),
    *("cudaMemcpy", "cudaMemset", "cudaMalloc", "cudaFree"),
    *("cudaDeviceSynchronize", "cudaStreamSynchronize", "cudaEventSynchronize"),
)
"""Functions of the CUDA runtime that `capture.c` wraps."""
_WRAPPED = [f"-Wl,--wrap={name}" for name in CAPTURED]

Run = Callable[..., tuple[int, str, float]]
"""Executes `(argv, cwd)`; returns status, output and processor time in seconds."""


class Commands:
    """Runs what a build needs, in its directory.

    Args:
        directory: of this build alone; objects are called after their units.
    """

    def __init__(self, request: InlineRequest, prepared: Prepared, directory: Path, run: Run) -> None:
        self._request = request
        self._toolchain = prepared.toolchain
        self._prepared = prepared
        self._directory = directory
        self._run = run
        self._diagnosis = Diagnosis(request, prepared, directory, self._probe)
        self.stages: dict[str, float] = {}
        """Processor time of each stage, in seconds."""
        self.resources: dict[str, dict[str, Any]] = {}
        """Of each kernel by its symbol, by the compiler's report."""

    def compile_host(
        self, name: str, text: str, header_name: str, flags: HostFlags, parts: Sequence[Split], *, final: bool = False
    ) -> None:
        """Compile a unit for the processor.

        Args:
            header_name: the precompiled header that comes first.
            parts: what the device sources were taken apart into.
            final: whether no further route could take another way.

        Raises:
            CompileError: the candidate's mistake.
            NotCertain: it may come from taking the sources apart.
        """
        if header_name == "types":
            if more := _NEEDS_MORE.search(text):
                raise NotCertain(f"{more.group()} needs torch's whole extension header")
            # The prelude stands for them; whoever uses more of them takes the next route.
            text = _COVERED.sub("", text)
        source = self._directory / f"unit_{name}.cpp"
        source.write_text(text, encoding="utf-8", errors="surrogatepass")
        precompiled, others = flags
        header = self._prepared.header(header_name, precompiled)
        command = [
            *self._prepared.host_command(precompiled),
            *others,
            *(f"-I{header.parent}", "-include", header.name),
            # The symbols of its objects are read.
            *("-fno-lto", "-c", source.name, "-o", f"{name}.o"),
        ]
        status, log, _ = self._execute(f"{name} (g++)", command)
        if status:
            self._diagnosis.fail(log, parts, final=final, whole=header_name != "types")

    def compile_device(self, index: int, text: str, parts: Sequence[Split] = (), *, with_torch: bool = False) -> None:
        """Compile a unit for the device, as machine code alone where the host unit has stubs."""
        toolchain, request = self._toolchain, self._request
        machine_code = bool(parts) and parts[index].stubs and not request.device_only
        source = self._directory / f"device{index}.cu"
        source.write_text(text, encoding="utf-8", errors="surrogatepass")
        flags = request.device_flags
        is_told = request.language == "cuda" and any("arch" in flag or "gencode" in flag for flag in flags)
        command = toolchain.device_command(() if is_told else request.arch)
        if request.language == "hip":
            command += ["--genco"] if request.device_only else ["-fPIC", "-c"]
        else:
            command += ["-Xptxas", "-v", *(["-fatbin"] if machine_code else ["-Xcompiler", "-fPIC", "-c"])]
            if not machine_code and toolchain.release >= (12, 8):
                # Without it the host side of a template's instance is invisible to other units.
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
        """Make the object that brings the machine code and names its kernels."""
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
        """Every kernel that host code launches must be defined by device code of ours."""
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
            # What it defines is its own, whoever else defines a function of that name.
            *(toolchain.cxx, "-shared", "-Wl,-Bsymbolic-functions", *objects, "-o", "extension.so"),
            *([str(self._prepared.capture_object()), *_WRAPPED] if toolchain.language == "cuda" else ()),
            *(["-fopenmp"] if "-fopenmp" in (*self._request.cflags, *self._request.ldflags) else []),
            *(word for word in self._request.ldflags if word.startswith("-l")),
            *(f"-L{path}" for path in (self._prepared.link_libraries(), *toolchain.library_dirs)),
            # Empty libraries, which a linker that drops what seems unused would drop.
            *("-Wl,--no-as-needed", *(f"-l{name}" for name in libraries)),
        ]
        status, log, _ = self._execute("link", command)
        if status:
            # No other way to compile would find a library that is not there.
            if final or "cannot find -l" in log:
                raise CompileError(self._diagnosis.own(log))
            raise NotCertain(f"linking failed: {log[-300:]}", whole=True)
        return self._directory / "extension.so"

    def _defined(self, name: str) -> dict[str, str]:
        """Functions that an object defines, by symbol: as they are written in C++."""
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

    def _execute(self, stage: str, command: Sequence[str]) -> tuple[int, str, float]:
        status, log, cpu_s = self._run(list(command), self._directory)
        self.stages[stage] = self.stages.get(stage, 0.0) + cpu_s
        return status, log, cpu_s

    def _probe(self, text: str) -> str:
        """What the compiler says of a unit behind torch's whole header."""
        # Each line may be an error. The last ones are, so that the compiler gives up there: it would take seconds to
        # instantiate what the header uses.
        most = 2 * text.count("\n") + 1
        ending = "".join(f"namespace kernelrl_end {{ using ::kernelrl_end_{index}; }}\n" for index in range(most))
        (self._directory / "probe.cpp").write_text(text + ending)
        precompiled = device_host_flags(self._request)[0]
        header = self._prepared.header("extension", precompiled)
        command = [*self._prepared.host_command(precompiled), f"-I{header.parent}", "-include", header.name]
        return self._execute("probe", [*command, "-fsyntax-only", f"-fmax-errors={most}", "probe.cpp"])[1]


def at_once(jobs: Mapping[str, Callable[[], None]]) -> None:
    """Run jobs side by side; of their errors the candidate's comes first."""
    with ThreadPoolExecutor(len(jobs)) as pool:
        futures = [pool.submit(job) for job in jobs.values()]
    errors = [error for future in futures if (error := future.exception()) is not None]
    if errors:
        raise min(errors, key=lambda error: (not isinstance(error, CompileError), not isinstance(error, NotCertain)))


def _plain_name(symbol: str) -> str:
    """Last part of the name of a demangled symbol, without template arguments and parameters."""
    match = re.match(r"(?:void )?(?:\w+::)*(\w+)", symbol)
    return match[1] if match else ""
