"""From sources to a shared object, by the shortest way that certainly means the same as the ordinary one.

Three routes, each reported:

    bound     device code without torch's headers, host code against a precompiled header, functions called through
              trampolines (`binding`)
    pybind    the same with an ordinary Python module, against a larger precompiled header
    ordinary  what `load_inline` does: the device compiler reads torch's headers

A request that cannot be taken apart (`splitting.Unsplittable`), and an error that may come from taking it apart, lead
to the next route. An error that cannot is the candidate's: it is told at once, because most candidates of a model that
learns do not compile.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Literal

import attrs

from kernelrl_judge.building import stubs
from kernelrl_judge.building.binding import (
    Signature,
    Unbindable,
    bindings_data,
    module_functions,
    signatures,
    trampolines,
)
from kernelrl_judge.building.diagnosis import (
    EXTENSION,
    FUNCTIONS_FILE,
    WHOLE,
    CompileError,
    Diagnosis,
    NotCertain,
    other_language,
)
from kernelrl_judge.building.joining import joinable
from kernelrl_judge.building.lexing import Unreadable, items, text_of, unbalanced
from kernelrl_judge.building.prepare import MODULE_NAME, Prepared
from kernelrl_judge.building.request import InlineRequest
from kernelrl_judge.building.resources import read_resources
from kernelrl_judge.building.screening import Denied, screen
from kernelrl_judge.building.splitting import Split, Unsplittable, split
from kernelrl_judge.building.toolchain import Toolchain

__all__ = ["CompileError", "Compiled", "compile_extension"]

_HOST_LEVEL = "-O1"
_NEEDS_MORE = re.compile(
    r"\b(?:PYBIND11_\w+|TORCH_LIBRARY\w*|THP\w+|Py\w*Object|py::\w+|pybind11::\w+"
    r"|torch::(?:nn|jit|autograd|optim|data|serialize|dynamo|wrap_pybind_function)\b)"
)
_COVERED = re.compile(
    r"^[ \t]*#[ \t]*include[ \t]*[<\"]"
    r"(?:torch/(?:extension|types|torch|all|python)\.h|ATen/ATen\.h|pybind11/\w+\.h)[>\"]",
    re.MULTILINE,
)
_LEVELS = re.compile(r"-O[0-3]|-g\d?|-w|-W(?!l,|a,|p,)[\w=+-]*|-pipe")
_USUAL_FLAGS = ("-march=native", "-fopenmp", "-ffast-math")
_PASSING = ("-Xcompiler", "--compiler-options")

Run = Callable[..., tuple[int, str, float]]


@attrs.frozen
class Compiled:
    """What was built."""

    path: str
    kind: Literal["bound", "module", "device_only"]
    """How it is loaded: by the binder, or as a Python module."""
    module_name: str
    bindings: list[dict[str, Any]]
    route: Literal["bound", "pybind", "ordinary", "unchecked"]
    """How it was built; `unchecked`: not at all, because it cannot be on this machine, which also could not run it."""
    reason: str
    """Why the route is not `bound`."""
    resources: list[dict[str, Any]]
    """Of each kernel, by the compiler's report: registers, spills, shared memory."""
    log: str
    seconds: float
    cpu_seconds: float
    stages: dict[str, float]
    """Processor time of each stage, in seconds."""


def compile_extension(
    request: InlineRequest, toolchain: Toolchain, prepared: Prepared, directory: Path, *, run: Run
) -> Compiled:
    """Build an extension.

    Args:
        directory: empty, for the files of this build alone.
        run: executes `(argv, cwd)`; returns status, output and processor time in seconds.

    Raises:
        CompileError: the candidate's mistake.
    """
    try:
        screen(request)
    except Denied as denied:
        raise CompileError(f"denied: {denied}") from None
    try:
        return _Build(request, toolchain, prepared, directory, run).result()
    except CompileError as error:
        raise CompileError(other_language(request, str(error)) or str(error)) from None


class _Build:
    def __init__(
        self, request: InlineRequest, toolchain: Toolchain, prepared: Prepared, directory: Path, run: Run
    ) -> None:
        self._request = request
        self._toolchain = toolchain
        self._prepared = prepared
        self._directory = directory
        self._run = run
        self._started = time.monotonic()
        self._stages: dict[str, float] = {}
        self._log: list[str] = []
        self._resources: list[dict[str, Any]] = []
        self._entries: dict[int, frozenset[str]] = {}
        self._may_join, self._joined = True, False
        self._diagnosis = Diagnosis(request, toolchain, prepared, directory, self._probe)
        self._precompiled_flags, self._other_flags = self._flags()
        # What compilers show of a source is that of the candidate, not that of a unit made of it.
        for file, sources in (("main.cpp", request.cpp_sources), ("cuda.cu", request.device_sources)):
            (directory / file).write_text("".join(sources[:1]), encoding="utf-8", errors="surrogatepass")

    def result(self) -> Compiled:
        request = self._request
        if request.language == "cpp" and request.device_sources:
            raise CompileError("cuda_sources: this backend compiles C++ for the processor, and no device code")
        reasons: list[str] = []
        for files, sources in ((_main_file, request.cpp_sources), (_device_file, request.device_sources)):
            for index, source in enumerate(sources):
                if mistake := unbalanced(source):
                    raise CompileError(f"{files(index)}: error: {mistake}")
        try:
            found, parts, original = self._take_apart()
        except (Unsplittable, NotCertain) as why:
            return self._device_whole(str(why)) if request.device_only else self._ordinary(str(why))
        if request.device_only:
            return self._device_alone(parts)
        cpp_sources, bound = found
        attempts = (
            lambda: self._split_build(parts, cpp_sources, signatures(cpp_sources, bound), "types", ""),
            lambda: self._split_build(original, request.cpp_sources, None, "types", reasons[0]),
            lambda: self._split_build(original, request.cpp_sources, None, "extension", reasons[0]),
        )
        place = 0
        while place < len(attempts):
            try:
                return attempts[place]()
            except CompileError as error:
                # Of sources that are compiled apart the errors are told apart.
                if not self._joined or "main" not in str(error):
                    raise
                self._may_join = self._joined = False
            except Unbindable as why:
                reasons.append(str(why))
                place += 1
            except NotCertain as why:
                reasons.append(str(why))
                place = max(place + 1, why.place)
        return self._ordinary("; ".join(dict.fromkeys(reasons)))

    # --- taking apart -----------------------------------------------------------------------------------------------

    def _take_apart(self) -> tuple[tuple[tuple[str, ...], tuple[tuple[str, ...], ...]], list[Split], list[Split]]:
        """C++ sources and functions to bind; the units of the device sources, without a Python module and with it."""
        request = self._request
        defined = self._definitions_for_host()
        parts = [
            split(source, request.language, _device_file(index)) for index, source in enumerate(request.device_sources)
        ]
        parts = [attrs.evolve(part, host=defined + part.host) for part in parts]
        sources = request.cpp_sources
        if request.functions:
            return (sources, request.functions), parts, parts
        for index, source in enumerate(sources):
            read = module_functions(source)
            if read is not None:
                return ((*sources[:index], read[0], *sources[index + 1 :]), read[1]), parts, parts
        for index, part in enumerate(parts):
            read = module_functions(part.host)
            if read is not None:
                bare = [*parts[:index], attrs.evolve(part, host=read[0]), *parts[index + 1 :]]
                return ((*sources, _declarations_only(read[0], read[1])), read[1]), bare, parts
        return (sources, ()), parts, parts

    # --- routes -----------------------------------------------------------------------------------------------------

    def _split_build(
        self,
        parts: Sequence[Split],
        cpp_sources: Sequence[str],
        bound: Sequence[Signature] | None,
        host_header: str,
        reason: str,
    ) -> Compiled:
        """The fast routes: trampolines for `bound`, or a Python module for None."""
        if bound == ():
            raise NotCertain("nothing to bind was found")
        main_header = host_header if bound is not None else "extension"
        units = {
            f"host{index}": (stubs.prelude(index) if part.stubs else "") + part.host for index, part in enumerate(parts)
        }
        main_flags = self._main_flags(cpp_sources)
        if bound and len(parts) == 1 and main_flags == self._device_host_flags() and self._joins(parts[0], cpp_sources):
            # One unit less to compile.
            units["host0"] += "\n" + self._main(cpp_sources, bound)
        else:
            units["main"] = self._main(cpp_sources, bound)
        templates = {name for part in parts for name in part.templates}
        jobs: dict[str, Callable[[], None]] = {
            name: (
                lambda name=name, text=text: self._compile_host(
                    name,
                    text,
                    main_header if name == "main" else host_header,
                    main_flags if name == "main" else self._device_host_flags(),
                    parts,
                    # The unit of the C++ sources is the one that the ordinary way compiles.
                    final=name == "main" and main_header == "extension",
                )
            )
            for name, text in units.items()
        }
        if not templates:
            for index, part in enumerate(parts):
                jobs[f"device{index}"] = lambda index=index, part=part: self._compile_device(index, part.device, parts)
        self._at_once(jobs)
        if templates:
            self._instantiate(parts)
        objects = [f"{name}.o" for name in units] + [f"device{index}.o" for index in range(len(parts))]
        for index, part in enumerate(parts):
            if part.stubs:
                self._register(index, part)
        self._check_kernels([part for part in parts if not part.stubs], list(units))
        path = self._link(objects, with_python=not bound)
        return self._compiled(path, "bound" if bound else "module", bound or (), "bound" if bound else "pybind", reason)

    def _joins(self, part: Split, cpp_sources: Sequence[str]) -> bool:
        """Whether the C++ sources may stand behind the host part of the device source."""
        # A second declaration of what the first unit defines changes nothing.
        if _only_declares(cpp_sources):
            return True
        self._joined = self._may_join and joinable(part.host, cpp_sources)
        return self._joined

    def _ordinary(self, reason: str) -> Compiled:
        request = self._request
        if request.language == "cuda" and request.device_sources and not self._toolchain.has_device_headers:
            raise CompileError("this torch has no headers for the GPU, and the source cannot be compiled without them")
        flags = self._main_flags(request.cpp_sources)
        jobs: dict[str, Callable[[], None]] = {
            "main": lambda: self._compile_host(
                "main", self._main(request.cpp_sources, None), "extension", flags, [], final=True
            )
        }
        if request.device_sources:
            jobs["device0"] = self._compile_whole
        self._at_once(jobs)
        path = self._link([f"{name}.o" for name in jobs], with_python=True, final=True)
        return self._compiled(path, "module", (), "ordinary", reason)

    def _compile_whole(self) -> None:
        """Compile the device sources as they are, with torch's headers."""
        text = "#include <torch/types.h>\n#include <cuda.h>\n#include <cuda_runtime.h>\n" + "\n".join(
            f'#line 1 "{_device_file(index)}"\n{source}' for index, source in enumerate(self._request.device_sources)
        )
        self._compile_device(0, text, with_torch=True)

    def _device_alone(self, parts: Sequence[Split]) -> Compiled:
        """The device code and nothing else, for a machine that could not run it."""
        if not parts:
            raise CompileError("there is no device code")
        self._at_once(
            {
                f"device{index}": (lambda i=index, t=part.device: self._compile_device(i, t))
                for index, part in enumerate(parts)
            }
        )
        return self._compiled(self._directory / "device0.o", "device_only", (), "bound", "")

    def _device_whole(self, reason: str) -> Compiled:
        """The same for sources that cannot be taken apart, where torch has the headers that they need."""
        built = self._directory / "device0.o"
        if self._request.language == "cuda" and self._toolchain.has_device_headers:
            self._compile_whole()
            return self._compiled(built, "device_only", (), "ordinary", reason)
        built.touch()
        return self._compiled(built, "device_only", (), "unchecked", reason)

    def _compiled(self, path: Path, kind: Any, bound: Sequence[Signature], route: Any, reason: str) -> Compiled:
        return Compiled(
            path=str(path),
            kind=kind,
            module_name=MODULE_NAME,
            bindings=bindings_data(bound),
            route=route,
            reason=reason,
            resources=self._resources,
            log="\n".join(self._log),
            seconds=round(time.monotonic() - self._started, 3),
            cpu_seconds=round(sum(self._stages.values()), 3),
            stages={name: round(spent_s, 3) for name, spent_s in self._stages.items()},
        )

    # --- steps ------------------------------------------------------------------------------------------------------

    def _main(self, cpp_sources: Sequence[str], bound: Sequence[Signature] | None) -> str:
        """The unit of the C++ sources, with trampolines or with a Python module for the functions."""
        text = "\n".join(f'#line 1 "{_main_file(index)}"\n{source}' for index, source in enumerate(cpp_sources))
        if bound is not None:
            return f'{text}\n#line 1 "binding.cpp"\n{trampolines(bound)}'
        if self._request.functions:
            defined = "\n".join(
                f'm.def("{name}", torch::wrap_pybind_function({name}), {_quoted(documentation)});'
                for name, documentation in self._request.functions
            )
            text += f'\n#line 1 "{FUNCTIONS_FILE}"\nPYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {{\n{defined}\n}}\n'
        return text

    def _compile_host(
        self,
        name: str,
        text: str,
        header_name: str,
        flags: tuple[tuple[str, ...], tuple[str, ...]],
        parts: Sequence[Split],
        *,
        final: bool = False,
    ) -> None:
        """Compile a unit for the processor.

        Args:
            flags: those that there is a precompiled header for, and others.
        """
        if header_name == "types":
            if more := _NEEDS_MORE.search(text):
                raise NotCertain(f"{more.group()} needs torch's whole extension header", EXTENSION)
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
            *("-c", source.name, "-o", f"{name}.o"),
        ]
        status, log, _ = self._execute(f"{name} (g++)", command)
        if status:
            self._diagnosis.fail(log, parts, final=final, retry=EXTENSION if header_name == "types" else WHOLE)

    def _compile_device(self, index: int, text: str, parts: Sequence[Split] = (), *, with_torch: bool = False) -> None:
        toolchain, request = self._toolchain, self._request
        machine_code = bool(parts) and parts[index].stubs
        source = self._directory / f"device{index}.cu"
        source.write_text(text, encoding="utf-8", errors="surrogatepass")
        flags = _words(request.device_flags)
        if request.language == "hip":
            # Where CUDA is installed too, hipcc would hand everything to nvcc.
            command = ["env", "HIP_PLATFORM=amd", toolchain.device_compiler, "-x", "hip"]
            command += [*(f"--offload-arch={arch}" for arch in request.arch)]
            command += ["--genco"] if request.device_only else ["-fPIC", "-c"]
        elif machine_code:
            command = [toolchain.device_compiler, *(part for arch in request.arch for part in _gencode(arch, flags))]
            command += ["-Xptxas", "-v", "-fatbin"]
        else:
            command = [toolchain.device_compiler, *(part for arch in request.arch for part in _gencode(arch, flags))]
            command += ["-Xcompiler", "-fPIC", "-Xptxas", "-v", "-c"]
            if toolchain.release >= (12, 8):
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
            self._diagnosis.fail(log, parts, final=with_torch or request.device_only, retry=WHOLE, device=True)
        self._entries[index] = stubs.entries(log)
        self._resources += read_resources(log)

    def _instantiate(self, parts: Sequence[Split]) -> None:
        """Compile the device units with the instances of templates that the host units need."""
        for index, part in enumerate(parts):
            known = self._defined(f"host{index}.o").values() if part.stubs else self._undefined(f"host{index}.o")
            wanted = [
                text
                for text in known
                if part.templates
                and re.match(rf"(?:void )?(?:\w+::)*(?:{'|'.join(map(re.escape, part.templates))})<", text)
            ]
            lines = []
            types = ""
            for text in wanted:
                if "c10::" in text:
                    types = "#include <c10/util/Half.h>\n#include <c10/util/BFloat16.h>\n"
                scope = _scope_of(text)
                instance = text if text.startswith("void ") else f"void {text}"
                lines.append(f"{scope[0]}template __global__ {instance.replace(scope[2], '')};{scope[1]}")
            text = types + part.device + '\n#line 1 "instances.cu"\n' + "\n".join(lines) + "\n"
            self._compile_device(index, text, parts)

    def _register(self, index: int, part: Split) -> None:
        """Make the object that brings the machine code and names its kernels."""
        kernels = {
            symbol: text
            for symbol, text in self._defined(f"host{index}.o").items()
            if _plain_name(text) in part.kernels and "[clone" not in text
        }
        if missing := kernels.keys() - self._entries.get(index, frozenset()):
            raise NotCertain(f"no device code for {kernels[min(missing)]}", WHOLE)
        source = self._directory / f"device{index}.s"
        source.write_text(stubs.assembly(index, f"device{index}.fatbin", kernels))
        status, log, _ = self._execute("assembler", [self._toolchain.cxx, "-c", source.name, "-o", f"device{index}.o"])
        if status:
            raise NotCertain(f"the kernels cannot be registered: {log[-300:]}", WHOLE)

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

    def _check_kernels(self, parts: Sequence[Split], units: Sequence[str]) -> None:
        """Every kernel that host code launches must be defined by device code of ours."""
        names = {name for part in parts for name in part.kernels}
        if not names:
            return
        wanted = {text for unit in units for text in self._undefined(f"{unit}.o") if _plain_name(text) in names}
        if not wanted:
            return
        status, listed, _ = self._execute(
            "nm", ["nm", "--defined-only", "--extern-only", "-C", *(f"device{index}.o" for index in range(len(parts)))]
        )
        defined = {line.split(" ", 2)[2].strip() for line in listed.splitlines() if line.count(" ") >= 2}
        if status or wanted - defined:
            raise NotCertain(f"no device code for {min(wanted - defined, default='a kernel')}")

    def _link(self, objects: Sequence[str], *, with_python: bool, final: bool = False) -> Path:
        toolchain = self._toolchain
        libraries = [*toolchain.libraries, *(["torch_python"] if with_python else [])]
        command = [
            *(toolchain.cxx, "-shared", *objects, "-o", "extension.so"),
            *(["-fopenmp"] if "-fopenmp" in (*_words(self._request.cflags), *_words(self._request.ldflags)) else []),
            *(word for word in _words(self._request.ldflags) if word.startswith("-l")),
            *(f"-L{path}" for path in (self._prepared.link_libraries(), *toolchain.library_dirs)),
            # Empty libraries, which a linker that drops what seems unused would drop.
            *("-Wl,--no-as-needed", *(f"-l{name}" for name in libraries)),
        ]
        status, log, _ = self._execute("link", command)
        if status:
            # No other way to compile would find a library that is not there.
            if final or "cannot find -l" in log:
                raise CompileError(self._diagnosis.own(log))
            raise NotCertain(f"linking failed: {log[-300:]}", WHOLE)
        return self._directory / "extension.so"

    def _at_once(self, jobs: Mapping[str, Callable[[], None]]) -> None:
        if len(jobs) == 1:
            next(iter(jobs.values()))()
            return
        with ThreadPoolExecutor(len(jobs)) as pool:
            futures = [pool.submit(job) for job in jobs.values()]
        errors = [error for future in futures if (error := future.exception()) is not None]
        for kind in (CompileError, NotCertain):
            for error in errors:
                if isinstance(error, kind):
                    raise error
        if errors:
            raise errors[0]

    def _execute(self, stage: str, command: Sequence[str]) -> tuple[int, str, float]:
        status, log, cpu_s = self._run(list(command), self._directory)
        self._stages[stage] = self._stages.get(stage, 0.0) + cpu_s
        if log.strip() and stage not in ("nm",):
            self._log.append(self._diagnosis.own(log))
        return status, log, cpu_s

    def _probe(self, text: str) -> str:
        """What the compiler says of a unit behind torch's whole header."""
        (self._directory / "probe.cpp").write_text(text)
        precompiled = self._device_host_flags()[0]
        header = self._prepared.header("extension", precompiled)
        _, said, _ = self._execute(
            "probe",
            [
                *self._prepared.host_command(precompiled),
                *(f"-I{header.parent}", "-include", header.name, "-fsyntax-only", "probe.cpp"),
            ],
        )
        return said

    # --- flags ------------------------------------------------------------------------------------------------------

    def _flags(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Flags of the C++ sources: those for which there is, or will be, a precompiled header, and the others.

        A header per combination would fill the disk: common ones have one; with others, which may be more than such a
        header bears, the compiler reads the headers again where it has to.
        """
        level = "-O3" if self._request.language == "cpp" else _HOST_LEVEL
        given = _words(self._request.cflags)
        meaning = [word for word in given if not _LEVELS.fullmatch(word)]
        if all(word in _USUAL_FLAGS for word in meaning):
            return (level, *(word for word in _USUAL_FLAGS if word in meaning)), ()
        return (level,), tuple(given)

    def _main_flags(self, cpp_sources: Sequence[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Flags of the unit of the C++ sources."""
        code = [word for word in _words(self._request.cflags) if not re.match(r"-[fmOgwW]", word)]
        if self._request.device_sources and not code and _only_declares(cpp_sources):
            # Flags for the making of code, and no code that they could be for.
            return self._device_host_flags()
        return self._precompiled_flags, self._other_flags

    def _device_host_flags(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Flags of the host code in device sources, which those of the C++ sources are not for."""
        if self._request.language == "cpp":
            return self._precompiled_flags, ()
        return (_HOST_LEVEL,), ()

    def _definitions_for_host(self) -> str:
        """What the flags of the device compiler define, as source for the host code that it would compile too.

        Raises:
            NotCertain: they do more than to define.
        """
        lines = []
        words = _words(self._request.device_flags)
        for before, word in zip(["", *words], words, strict=False):
            option, _, value = word.partition("=")
            passed = word if before in _PASSING else value if option in _PASSING else ""
            if any(not _LEVELS.fullmatch(part) and part != "-fPIC" for part in passed.strip("'\"").split(",") if part):
                raise NotCertain(f"{passed} is for the compiler behind the device compiler")
            if "default-stream" in word or (option in ("-std", "--std") and value != self._toolchain.standard):
                raise NotCertain(f"{word} changes the host code too")
            if re.match(r"--?(?:rdc|relocatable|dc\b|dlto|lto|ltoir)", word):
                raise NotCertain(f"{word} leaves device code to be linked")
            if match := re.fullmatch(r"-([DU])(\w+)(?:=(.*))?", word):
                kind, name, text = match.groups()
                if name.encode() in self._prepared.known_names():
                    raise NotCertain(f"{word} may change torch's headers")
                lines.append(f"#define {name} {'1' if text is None else text}" if kind == "D" else f"#undef {name}")
        return "".join(f"{line}\n" for line in lines)


def _words(flags: Sequence[str]) -> list[str]:
    return [word for flag in flags for word in flag.split()]


def _only_declares(sources: Sequence[str]) -> bool:
    try:
        found = [item for source in sources for item in items(source)]
    except Unreadable:
        return False
    return all(
        (item.kind == "declaration" and "=" not in {token.text for token in item.tokens})
        or (item.kind == "directive" and text_of(item.tokens).split()[0].lstrip().startswith("#include"))
        for item in found
    )


def _main_file(index: int) -> str:
    return "main.cpp" if index == 0 else f"main{index}.cpp"


def _device_file(index: int) -> str:
    return "cuda.cu" if index == 0 else f"cuda{index}.cu"


def _gencode(arch: str, flags: Sequence[str]) -> list[str]:
    if any("arch" in flag or "gencode" in flag for flag in flags):
        return []
    number = arch.replace(".", "")
    return [f"-gencode=arch=compute_{number},code=sm_{number}"]


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'


def _declarations_only(host: str, bound: Sequence[tuple[str, ...]]) -> str:
    """Declarations of the functions that a host unit defines and its module binds."""
    names = {entry[-1] for entry in bound}
    found = []
    for item in items(host):
        if item.kind == "function":
            head = text_of(item.tokens[: item.body])
            if names & {token.text for token in item.tokens[: item.body]}:
                found.append(re.sub(r"^\s*(?:static|inline)\s+", "", re.sub(r"#line[^\n]*\n", "", head)).strip() + ";")
    return "\n".join(found)


def _plain_name(symbol: str) -> str:
    """Last part of the name of a demangled symbol, without template arguments and parameters."""
    head = symbol.removeprefix("void ")
    match = re.match(r"(?:\w+::)*(\w+)", head)
    return match.group(1) if match else ""


def _scope_of(symbol: str) -> tuple[str, str, str]:
    """What opens and closes the namespaces of a symbol, and the prefix that names them."""
    match = re.match(r"(?:void )?((?:\w+::)+)\w+<", symbol)
    if match is None:
        return "", "", "\0"
    names = match.group(1).strip(":").split("::")
    return "".join(f"namespace {name} {{ " for name in names), " }" * len(names), match.group(1)
