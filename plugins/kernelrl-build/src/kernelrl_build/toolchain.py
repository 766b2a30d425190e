"""The compilers of this machine, and the flags that torch would give them."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

import attrs

from kernelrl_core.api.config import write_atomically
from kernelrl_core.api.errors import nearest
from kernelrl_sandbox import visible

__all__ = [
    "Toolchain",
    "ToolchainMissing",
    "find_compilers",
    "find_toolchain",
    "known_toolchain",
    "output_of",
    "programs",
]

_FORMAT = 3
_CUDA_FIX = "install the CUDA toolkit and set CUDA_HOME, or put nvcc on PATH"
_HIP_FIX = "install ROCm, or on Debian: apt install hipcc rocm-device-libs libamdhip64-dev"


class ToolchainMissing(Exception):
    """This machine lacks a compiler; the arguments are the missing part and the fix."""


@attrs.frozen
class Toolchain:
    """Compilers, headers, libraries and flags for extensions of one language."""

    language: str
    cxx: str
    """Path of g++."""
    device_compiler: str
    """Path of nvcc or hipcc; empty for C++."""
    version: str
    """Versions of the compilers, and a hash of the CPU's instructions."""
    torch_version: str
    standard: str
    """Language standard that this torch builds extensions with, such as `c++17`."""
    include_dirs: tuple[str, ...]
    library_dirs: tuple[str, ...]
    libraries: tuple[str, ...]
    device_flags: tuple[str, ...]
    """Flags that torch gives the device compiler."""
    has_device_headers: bool
    """Whether torch's own headers for the GPU are installed; without them only device code can be compiled."""
    archs: tuple[str, ...]
    """Architectures that the device compiler knows, such as `9.0` or `gfx90a`."""

    @property
    def id(self) -> str:
        """Hash of everything."""
        content = json.dumps([_FORMAT, attrs.asdict(self)], sort_keys=True)
        return hashlib.sha256(content.encode()).hexdigest()[:24]

    @property
    def release(self) -> tuple[int, int]:
        """Major and minor version of nvcc; zeros for other compilers."""
        found = re.search(r"release (\d+)\.(\d+)", self.version)
        return (int(found.group(1)), int(found.group(2))) if found else (0, 0)

    def require_arch(self, wanted: tuple[str, ...]) -> None:
        """Refuse an architecture that the compiler does not know.

        Raises:
            ToolchainMissing: with those that it knows.
        """
        known = sorted(self.archs, key=lambda arch: (len(arch), arch))
        for name in wanted:
            toolkit = "a newer toolkit"
            if self.language == "cuda":
                plain = name.removesuffix("+PTX").rstrip("af")
                close = min(known, key=lambda arch: abs(float(arch) - float(plain)), default="")
                if known and float(plain) < float(known[0]):
                    toolkit = "an older toolkit, which still knows that GPU"
            else:
                plain = name.partition(":")[0]
                close = nearest(plain, known) or ""
            if known and plain not in known:
                chosen = f"{close}, the nearest that it knows" if close else "one that it knows"
                raise ToolchainMissing(
                    f"{self.device_compiler} does not know the architecture {name}",
                    f"use {chosen}, or {toolkit}; it knows {', '.join(known)}",
                )

    def device_command(self, archs: Sequence[str]) -> list[str]:
        """The device compiler with the options for some architectures."""
        if self.language == "hip":
            # If CUDA is installed as well, hipcc would call nvcc.
            command = ["env", "HIP_PLATFORM=amd", self.device_compiler, "-x", "hip"]
            return [*command, *(f"--offload-arch={arch}" for arch in archs)]
        numbers = [arch.removesuffix("+PTX").replace(".", "") for arch in archs]
        return [self.device_compiler, *(f"-gencode=arch=compute_{number},code=sm_{number}" for number in numbers)]

    def path(self) -> str:
        """Search path on which the compilers find each other."""
        own = [os.path.dirname(compiler) for compiler in (self.device_compiler, self.cxx) if compiler]
        return ":".join(dict.fromkeys([*own, "/usr/local/bin", "/usr/bin", "/bin"]))

    def directories(self) -> list[str]:
        """Directories that a compiler needs, in addition to those of the system."""
        found = [*self.include_dirs, *self.library_dirs]
        for compiler in (self.device_compiler, self.cxx):
            if compiler:
                # Two levels above the program: its own libraries and headers are beside its directory.
                for path in (compiler, os.path.realpath(compiler)):
                    found.append(path)
                    found += visible.installation(os.path.dirname(os.path.dirname(path)))
        return list(dict.fromkeys(found))


def find_toolchain(language: str, directory: Path) -> Toolchain:
    """The toolchain for a language.

    A process of its own imports torch once to describe it; the description is stored in `directory`.

    Raises:
        ToolchainMissing: a compiler is missing.
    """
    cxx, compiler = find_compilers(language)
    path = _stored(language, cxx, compiler, directory)
    if (found := known_toolchain(language, directory)) is not None:
        return found
    described = subprocess.run(
        [sys.executable, "-P", "-m", "kernelrl_build.toolchain", language, cxx, compiler],
        capture_output=True,
        text=True,
        env={**os.environ, "CUDA_VISIBLE_DEVICES": ""},
    )
    if described.returncode:
        last = (described.stderr.strip().splitlines() or ["without a word"])[-1]
        raise ToolchainMissing(f"torch cannot say how to build an extension: {last}", "kernelrl doctor")
    toolchain = _read(described.stdout)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, json.dumps(attrs.asdict(toolchain)), mode=0o600, sync=False)
    return toolchain


def known_toolchain(language: str, directory: Path) -> Toolchain | None:
    """The toolchain for a language if `find_toolchain` found it before; None otherwise. Imports no torch.

    Raises:
        ToolchainMissing: a compiler is missing.
    """
    try:
        return _read(_stored(language, *find_compilers(language), directory).read_text())
    except (OSError, ValueError, TypeError):
        return None


def find_compilers(language: str) -> tuple[str, str]:
    """Paths of the C++ compiler and of the device compiler, which is empty for C++.

    Raises:
        ToolchainMissing: one is missing.
    """
    paths = []
    for program, path, fix in programs(language):
        if path is None:
            raise ToolchainMissing(f"the compiler {program} is missing", fix)
        paths.append(path)
    return paths[0], "".join(paths[1:])


def programs(language: str) -> Iterator[tuple[str, str | None, str]]:
    """Name of each compiler that a language needs, its path (None if it is missing), and how to get it."""
    named = os.environ.get("CXX")
    fix = "set CXX to the path of a g++" if named else "install g++ and put it on PATH"
    yield named or "g++", shutil.which(named or "g++"), fix
    if language == "cuda":
        home = os.environ.get("CUDA_HOME") or os.environ.get("CUDA_PATH") or "/usr/local/cuda"
        yield "nvcc", shutil.which(os.path.join(home, "bin", "nvcc")) or shutil.which("nvcc"), _CUDA_FIX
    if language == "hip":
        home = os.environ.get("ROCM_HOME") or os.environ.get("ROCM_PATH") or "/opt/rocm"
        yield "hipcc", shutil.which(os.path.join(home, "bin", "hipcc")) or shutil.which("hipcc"), _HIP_FIX


def _stored(language: str, cxx: str, compiler: str, directory: Path) -> Path:
    """Path of the stored description of a toolchain."""
    stamp = [
        language,
        cxx,
        os.stat(cxx).st_mtime_ns,
        compiler,
        os.stat(compiler).st_mtime_ns if compiler else 0,
        _torch_version(),
        sys.executable,
        _instruction_set(),
        _FORMAT,
    ]
    key = hashlib.sha256(json.dumps(stamp).encode()).hexdigest()[:16]
    return directory / "toolchains" / f"{language}-{key}.json"


def _torch_version() -> str:
    try:
        return metadata.version("torch")
    except metadata.PackageNotFoundError:
        raise ToolchainMissing("PyTorch is not installed", "pip install torch") from None


def _read(text: str) -> Toolchain:
    data: dict[str, Any] = json.loads(text)
    fields: dict[str, Any] = {name: tuple(value) if isinstance(value, list) else value for name, value in data.items()}
    return Toolchain(**fields)


def _describe(language: str, cxx: str, compiler: str) -> Toolchain:
    """The toolchain as torch describes it. Runs in a process of its own."""
    import inspect
    import sysconfig

    import torch
    from torch.utils import cpp_extension

    device = language if language != "cpp" else "cpu"
    # A torch without CUDA raises an error; the headers of the host part are the same.
    try:
        include_dirs = cpp_extension.include_paths("cuda" if device in ("cuda", "hip") else "cpu")
    except (AssertionError, OSError, RuntimeError):
        include_dirs = cpp_extension.include_paths("cpu")
    with_device = bool(torch.version.cuda if language == "cuda" else torch.version.hip) and language != "cpp"
    home = os.path.dirname(os.path.dirname(os.path.realpath(compiler))) if compiler else ""
    if language == "cuda" and os.path.isdir(f"{home}/include"):
        include_dirs.append(f"{home}/include")
    source = inspect.getsource(cpp_extension._write_ninja_file_to_build_library)
    standards = re.findall(r"-std=(c\+\+\d+)", source)
    library_dirs = [os.path.join(os.path.dirname(torch.__file__), "lib")]
    libraries = ["c10", "torch_cpu", "torch"]
    flags: list[str] = []
    if language == "cuda":
        flags = list(cpp_extension.COMMON_NVCC_FLAGS)
        library_dirs += [path for path in (f"{home}/lib64", f"{home}/lib") if os.path.isdir(path)][:1]
        libraries = [*(["c10_cuda", "torch_cuda"] if with_device else []), *libraries, "cudart"]
    elif language == "hip":
        flags = [*cpp_extension.COMMON_HIP_FLAGS, *cpp_extension.COMMON_HIPCC_FLAGS]
        libraries = [*(["c10_hip", "torch_hip"] if with_device else []), *libraries, "amdhip64"]
    # Code for this CPU does not run on every other CPU whose machine shares the store.
    versions = [
        f"processor {_instruction_set()}",
        output_of([cxx, "--version"]).partition("\n")[0] or "unknown",
        *([output_of([compiler, "--version"])] if compiler else []),
    ]
    return Toolchain(
        language=language,
        cxx=cxx,
        device_compiler=compiler,
        version="; ".join(versions),
        torch_version=torch.__version__,
        standard=max(standards, default="c++17"),
        include_dirs=tuple(dict.fromkeys([*include_dirs, sysconfig.get_path("include")])),
        library_dirs=tuple(library_dirs),
        libraries=tuple(libraries),
        device_flags=tuple(flags),
        has_device_headers=with_device,
        archs=_archs(language, compiler),
    )


def _instruction_set() -> str:
    """Short hash of the instructions that this machine's CPU has."""
    try:
        facts = os.environ.get("KERNELRL_PROCESSOR") or Path("/proc/cpuinfo").read_text()
    except OSError:
        facts = platform.processor()
    found = re.search(r"^(?:flags|Features)\s*:.*$", facts, re.MULTILINE)
    return hashlib.sha256((found.group() if found else facts).encode()).hexdigest()[:8]


def _archs(language: str, compiler: str) -> tuple[str, ...]:
    if language == "cuda":
        numbers = re.findall(r"compute_(\d+)", output_of([compiler, "--list-gpu-arch"]))
        return tuple(f"{number[:-1]}.{number[-1]}" for number in numbers)
    if language == "hip":
        clang = next((path for path in _hip_clangs(compiler) if shutil.which(path)), "")
        known = output_of([clang, "--target=amdgcn-amd-amdhsa", "-nogpulib", "-print-supported-cpus"])
        return tuple(dict.fromkeys(re.findall(r"^\s*(gfx\w+)", known, re.MULTILINE)))
    return ()


def _hip_clangs(compiler: str) -> list[str]:
    home = os.path.dirname(os.path.dirname(os.path.realpath(compiler)))
    named = re.findall(r"\S*clang\S*", output_of([compiler, "--version"]))
    return [f"{home}/llvm/bin/clang", *named, *(f"clang-{number}" for number in range(25, 13, -1)), "clang"]


def output_of(command: list[str]) -> str:
    """The output of a program; empty if it is missing or fails."""
    try:
        # If CUDA is installed as well, hipcc would call nvcc.
        environment = {**os.environ, "HIP_PLATFORM": "amd"}
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, env=environment)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return "" if done.returncode else done.stdout + done.stderr


if __name__ == "__main__":
    print(json.dumps(attrs.asdict(_describe(*sys.argv[1:4]))))
