"""Files that are built once per toolchain: precompiled headers, the binder, and the names that torch's headers know.

A precompiled header serves only the flags that it was built with. Each variant of the flags has its own, built on its
first use. Each takes hundreds of megabytes. When one is built, those that were unused for two weeks are removed.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from kernelrl_build.store import scratch
from kernelrl_build.toolchain import Toolchain, ToolchainMissing
from kernelrl_core.api.config import FileLock

__all__ = ["HEADERS", "MODULE_NAME", "Prepared", "prepare"]

MODULE_NAME = "kernelrl_extension"
"""Value of `TORCH_EXTENSION_NAME`, whatever name a call gives its extension."""

_TYPES = "#include <torch/types.h>\n"
_CUDA_HEADERS = (
    "#include <ATen/cuda/CUDAContext.h>\n#include <c10/cuda/CUDAGuard.h>\n#include <c10/cuda/CUDAException.h>\n"
    "#include <cuda.h>\n#include <cuda_runtime.h>\n"
)
HEADERS = {"types": _TYPES, "extension": "#include <torch/extension.h>\n"}
"""Contents of the precompiled headers: `types` for bound functions, `extension` for a Python module."""
_EMPTIED = {"types": ("torch/library.h",)}
"""Headers that a precompiled header replaces by empty ones. Each unit instantiates the templates that the functions of
a header use. A quarter of all templates belong to torch's library for operators; a source that registers an operator
is compiled with the other precompiled header."""
_BINDER, _CAPTURE = (Path(__file__).with_name(name) for name in ("binder.cpp", "capture.c"))
_HEADER = "kernelrl_prelude.h"
_DAY_S = 86_400.0
_UNUSED_S = 14 * _DAY_S
_NAME = re.compile(rb"[A-Za-z_]\w*")


class Prepared:
    """The prepared parts of one toolchain. Each is built on first use.

    Every method that returns a part may raise `ToolchainMissing`: a compiler cannot compile torch's own headers, or the
    disk is full.

    Args:
        directory: of this toolchain alone.
    """

    def __init__(self, toolchain: Toolchain, directory: Path) -> None:
        self.toolchain = toolchain
        self.directory = directory
        self.on_wait: Callable[[float], None] = lambda seconds: None
        """Called with the seconds that a build waited for a header. They do not count towards its limit."""

    def host_command(self, flags: Sequence[str]) -> list[str]:
        """g++ with the flags that every host part is compiled with."""
        toolchain = self.toolchain
        return [
            *(toolchain.cxx, f"-std={toolchain.standard}", "-fPIC", "-w"),
            *("-DTORCH_API_INCLUDE_EXTENSION_H", f"-DTORCH_EXTENSION_NAME={MODULE_NAME}"),
            *flags,
            *(part for path in toolchain.include_dirs for part in ("-isystem", path)),
        ]

    def header(self, name: str, flags: Sequence[str]) -> Path:
        """A header with its precompiled form beside it."""
        started = time.monotonic()
        variant = "-".join([name, *(re.sub(r"\W+", "_", flag) for flag in flags)])
        is_new = not (self.directory / variant).exists()
        path = self._part(variant, lambda directory: self._make_header(name, flags, directory)) / _HEADER
        built = path.with_suffix(".h.gch")
        if is_new:
            self.on_wait(time.monotonic() - started)
        elif time.time() - built.stat().st_mtime > _DAY_S:
            built.touch()
        return path

    def known_names(self) -> frozenset[bytes]:
        """Every name in torch's extension header and the headers that it includes, with the names of macros."""
        return frozenset(self._part("names", self._make_names).read_bytes().split(b"\n"))

    def link_libraries(self) -> Path:
        """A directory with an empty library in the place of each library of torch and the runtime, with the same name.

        The linker would spend most of its time on the symbol tables of the real libraries, and a shared object is not
        checked against the libraries that it names.
        """
        return self._part("libraries", self._make_libraries)

    def capture_object(self) -> Path:
        """The object that records work of an extension for CUDA (`capture.c`)."""
        command = [self.toolchain.cxx, "-x", "c", "-O2", "-fPIC", "-c", str(_CAPTURE), "-o"]
        return self._part("capture.o", lambda made: self._run([*command, str(made)]))

    def binder(self) -> Path:
        """The module that calls trampolines (`binder.cpp`)."""
        command = [*self.host_command(["-O1", "-shared"]), str(_BINDER)]
        command += [*(f"-L{path}" for path in self.toolchain.library_dirs)]
        command += ["-lc10", "-ltorch_cpu", "-ltorch", "-ltorch_python", "-o"]
        return self._part("kernelrl_binder.so", lambda made: self._run([*command, str(made)]))

    def prove(self, archs: Sequence[str]) -> None:
        """Compile an empty kernel, once for each list of architectures.

        Raises:
            ToolchainMissing: the compiler cannot compile any kernel, because of the architecture, the C++ compiler, or
                parts of it that are missing.
        """
        if self.toolchain.language != "cpp":
            name = "-".join(["proved", *(re.sub(r"[^\w.]", "_", arch) for arch in archs)])
            self._part(name, lambda made: self._compile_empty(archs, made))

    def _part(self, name: str, make: Callable[[Path], None]) -> Path:
        """A file or directory of this toolchain. If it does not exist, `make` creates it at the path that it gets."""
        path = self.directory / name
        if not path.exists():
            self.directory.mkdir(parents=True, exist_ok=True)
            with FileLock(self.directory / f".{name}.lock"):
                if not path.exists():
                    with scratch(self.directory) as partial:
                        make(partial / name)
                        os.rename(partial / name, path)
        return path

    def _make_header(self, name: str, flags: Sequence[str], directory: Path) -> None:
        # Unused headers are removed, also those of other toolchains.
        for built in self.directory.parent.glob("*/[!.]*/*.gch"):
            with contextlib.suppress(OSError):
                if time.time() - built.stat().st_mtime > _UNUSED_S:
                    shutil.rmtree(built.parent.rename(built.parent.with_name(f".part-{time.time_ns()}")))
        directory.mkdir()
        (directory / _HEADER).write_text(HEADERS[name] + self._device_headers())
        for header in _EMPTIED.get(name, ()):
            empty_header = directory / "without" / header
            empty_header.parent.mkdir(parents=True)
            empty_header.write_text("#pragma once\n")
        command = self.host_command([*flags, "-isystem", str(directory / "without")])
        self._run([*command, "-x", "c++-header", str(directory / _HEADER), "-o", str(directory / f"{_HEADER}.gch")])

    def _device_headers(self) -> str:
        return _CUDA_HEADERS if self.toolchain.language == "cuda" and self.toolchain.has_device_headers else ""

    def _make_names(self, made: Path) -> None:
        source = made.with_suffix(".cpp")
        headers = self._device_headers()
        more = "#include <cuda_fp16.h>\n#include <cuda_bf16.h>\n" if headers else ""
        source.write_text(HEADERS["extension"] + headers + more)
        done = subprocess.run([*self.host_command([]), "-E", "-dD", str(source)], capture_output=True)
        made.write_bytes(b"\n".join(sorted(set(_NAME.findall(done.stdout)))))

    def _make_libraries(self, directory: Path) -> None:
        directory.mkdir()
        for name in (*self.toolchain.libraries, "torch_python"):
            file = f"lib{name}.so"
            paths = (Path(path) / file for path in self.toolchain.library_dirs)
            real_library = next((str(path) for path in paths if path.exists()), "")
            if not real_library:
                continue
            dumped = subprocess.run(["objdump", "-p", real_library], capture_output=True, text=True)
            if soname := re.search(r"^\s*SONAME\s+(\S+)", dumped.stdout, re.MULTILINE):
                command = [self.toolchain.cxx, "-shared", "-nostdlib", f"-Wl,-soname,{soname[1]}", "-x", "c"]
                self._run([*command, os.devnull, "-o", str(directory / file)])

    def _compile_empty(self, archs: Sequence[str], made: Path) -> None:
        source = made.with_name("empty.cu")
        source.write_text("__global__ void empty() {}\n")
        command = [*self.toolchain.device_command(archs), "--genco" if self.toolchain.language == "hip" else "-c"]
        self._run([*command, str(source), "-o", str(made.with_name("empty.o"))], f"a kernel for {', '.join(archs)}")
        made.touch()

    def _run(self, command: list[str], what: str = "torch's own headers") -> None:
        environment = {**os.environ, "PATH": self.toolchain.path()}
        done = subprocess.run(command, capture_output=True, text=True, env=environment)
        if done.returncode:
            lines = (done.stderr.strip() or done.stdout.strip() or "without a word").splitlines()
            first = next((line for line in lines if re.search("error|fatal|not found", line)), lines[0])
            compiler = next(word for word in command if word.startswith("/"))
            if "No space left on device" in first:
                raise ToolchainMissing(
                    f"no space is left in {self.directory} or in {tempfile.gettempdir()}",
                    "free some (1 GB), or set KERNELRL_CACHE_DIR and TMPDIR to places that have it",
                )
            raise ToolchainMissing(
                f"{compiler} cannot compile {what}: {first}",
                "repair or replace that compiler, or choose another architecture; kernelrl doctor",
            )


def prepare(toolchain: Toolchain, directory: Path) -> Prepared:
    """The prepared parts of a toolchain."""
    # A change of this module that changes the parts gives them another directory.
    own = [
        HEADERS,
        _EMPTIED,
        _CUDA_HEADERS,
        Prepared(toolchain, directory).host_command([]),
        _BINDER.read_text(),
        *([_CAPTURE.read_text()] if toolchain.language == "cuda" else []),
    ]
    stamp = hashlib.sha256(json.dumps(own).encode()).hexdigest()[:8]
    return Prepared(toolchain, directory / f"{toolchain.id}-{stamp}")
