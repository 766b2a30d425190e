"""Files that are built once per toolchain: precompiled headers, the binder, and the names that torch's headers know.

A precompiled header serves only the flags that it was built with. Each variant of the flags has its own, built when it
is first asked for; they are hundreds of megabytes each. What nothing has asked for in two weeks goes when another is
built.
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
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from kernelrl_core.api.config import FileLock, replace_directory, write_atomically
from kernelrl_judge.build.toolchain import Toolchain, ToolchainMissing

__all__ = ["HEADERS", "MODULE_NAME", "Prepared", "prepare"]

MODULE_NAME = "kernelrl_extension"
"""What `TORCH_EXTENSION_NAME` stands for, whatever name a candidate gives its extension."""

_TYPES = "#include <torch/types.h>\n"
_CUDA_HEADERS = (
    "#include <ATen/cuda/CUDAContext.h>\n#include <c10/cuda/CUDAGuard.h>\n#include <c10/cuda/CUDAException.h>\n"
    "#include <cuda.h>\n#include <cuda_runtime.h>\n"
)
HEADERS = {"types": _TYPES, "extension": "#include <torch/extension.h>\n"}
"""Contents of the precompiled headers: `types` for bound functions, `extension` for a Python module."""
_LEFT_OUT = {"types": ("torch/library.h",)}
"""What a precompiled header goes without. Each unit instantiates the templates that a header's own functions use; those
of torch's library for operators are a quarter of all, and whoever registers one takes the other header."""
_ABANDONED_S = 3600.0
_DAY_S = 86_400.0
_UNUSED_S = 14 * _DAY_S
_NAME = re.compile(rb"[A-Za-z_]\w*")


class Prepared:
    """The prepared parts of one toolchain.

    Args:
        directory: of this toolchain alone.
    """

    def __init__(self, toolchain: Toolchain, directory: Path) -> None:
        self.toolchain = toolchain
        self.directory = directory
        self.on_wait: Callable[[float], None] = lambda seconds: None
        """Called with the seconds that a build waited for a header: they are not the candidate's."""

    @property
    def binder(self) -> Path:
        return self.directory / "kernelrl_binder.so"

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
        """A header with its precompiled form beside it, built now if it never was."""
        variant = "-".join([name, *(re.sub(r"\W+", "_", flag) for flag in flags)])
        path = self.directory / variant / "kernelrl_prelude.h"
        built = path.with_suffix(".h.gch")
        if not built.exists():
            started = time.monotonic()
            with self._once(variant):
                if not built.exists():
                    self._drop_unused()
                    self._build_header(name, flags, path)
            self.on_wait(time.monotonic() - started)
        elif time.time() - built.stat().st_mtime > _DAY_S:
            built.touch()
        return path

    def _drop_unused(self) -> None:
        """Remove precompiled headers that nothing uses any more, those of other toolchains too."""
        for built in self.directory.parent.glob("*/*/*.gch"):
            with contextlib.suppress(OSError):
                if time.time() - built.stat().st_mtime > _UNUSED_S:
                    shutil.rmtree(built.parent)

    def known_names(self) -> frozenset[bytes]:
        """Every name that occurs in torch's extension header and what it includes, macros among them."""
        path = self.directory / "names"
        if not path.exists():
            with self._once("names"):
                if not path.exists():
                    self._collect_names(path)
        return frozenset(path.read_bytes().split(b"\n"))

    def link_libraries(self) -> Path:
        """A directory with an empty library for each of torch's and the runtime's, under the names that these load by.

        A shared object is not checked against the libraries that it names, and to read their tables of symbols is most
        of what linking costs.
        """
        path = self.directory / "libraries"
        if not path.exists():
            with self._once("libraries"):
                if not path.exists():
                    with self._timed("libraries"), self._partial() as scratch:
                        self._empty_libraries(scratch)
                        replace_directory(scratch, path, sync=False)
        return path

    def _empty_libraries(self, directory: Path) -> None:
        toolchain = self.toolchain
        for name in (*toolchain.libraries, "torch_python"):
            file = f"lib{name}.so"
            real = next((str(Path(path) / file) for path in toolchain.library_dirs if (Path(path) / file).exists()), "")
            if not real:
                continue
            shown = subprocess.run(["objdump", "-p", real], capture_output=True, text=True).stdout
            loaded_by = re.search(r"^\s*SONAME\s+(\S+)", shown, re.MULTILINE)
            if loaded_by is not None:
                soname = f"-Wl,-soname,{loaded_by.group(1)}"
                self._run(
                    [toolchain.cxx, "-shared", "-nostdlib", soname, "-x", "c", os.devnull, "-o", str(directory / file)]
                )

    def capture_object(self) -> Path:
        """The object that records work of an extension for CUDA (`capture.c`)."""
        path = self.directory / "capture.o"
        if not path.exists():
            with self._once("capture"):
                if not path.exists():
                    with self._timed("capture"), self._partial() as scratch:
                        source, made = str(_capture_source()), str(scratch / "capture.o")
                        self._run([self.toolchain.cxx, "-x", "c", "-O2", "-fPIC", "-c", source, "-o", made])
                        os.replace(made, path)
        return path

    def prove(self, archs: Sequence[str]) -> None:
        """Compile an empty kernel, once for each list of architectures.

        Raises:
            ToolchainMissing: the compiler cannot, whatever the kernel: with this architecture or C++ compiler, or
                because parts of it are missing.
        """
        toolchain = self.toolchain
        done = self.directory / "-".join(["proved", *(re.sub(r"[^\w.]", "_", arch) for arch in archs)])
        if toolchain.language == "cpp" or done.exists():
            return
        with self._once("device"), self._timed("device"), self._partial() as scratch:
            source = scratch / "empty.cu"
            source.write_text("__global__ void empty() {}\n")
            if toolchain.language == "hip":
                # Where CUDA is installed too, hipcc would hand everything to nvcc.
                command = ["env", "HIP_PLATFORM=amd", toolchain.device_compiler, "-x", "hip", "--genco"]
                command += [f"--offload-arch={arch}" for arch in archs]
            else:
                numbers = [arch.removesuffix("+PTX").replace(".", "") for arch in archs]
                command = [toolchain.device_compiler, "-c"]
                command += [f"-gencode=arch=compute_{number},code=sm_{number}" for number in numbers]
            self._run([*command, str(source), "-o", str(scratch / "empty.o")], f"a kernel for {', '.join(archs)}")
            done.touch()

    def build_binder(self) -> None:
        if self.binder.exists():
            return
        with self._once("binder"):
            if self.binder.exists():
                return
            with self._timed("binder"), self._partial() as scratch:
                command = [
                    *self.host_command(["-O1", "-shared"]),
                    *(str(_binder_source()), "-o", str(scratch / "binder.so")),
                    *(f"-L{path}" for path in self.toolchain.library_dirs),
                    *("-lc10", "-ltorch_cpu", "-ltorch", "-ltorch_python"),
                ]
                self._run(command)
                os.replace(scratch / "binder.so", self.binder)

    def _build_header(self, name: str, flags: Sequence[str], path: Path) -> None:
        content = HEADERS[name] + (_CUDA_HEADERS if self.toolchain.language == "cuda" and self._has_cuda() else "")
        with self._timed(path.parent.name), self._partial() as scratch:
            (scratch / path.name).write_text(content)
            for left_out in _LEFT_OUT.get(name, ()):
                (scratch / "without" / left_out).parent.mkdir(parents=True, exist_ok=True)
                (scratch / "without" / left_out).write_text("#pragma once\n")
            self._run(
                [
                    *self.host_command([*flags, "-isystem", str(scratch / "without")]),
                    *("-x", "c++-header", str(scratch / path.name), "-o", str(scratch / f"{path.name}.gch")),
                ]
            )
            replace_directory(scratch, path.parent, sync=False)

    def _has_cuda(self) -> bool:
        return self.toolchain.has_device_headers

    def _collect_names(self, path: Path) -> None:
        with self._timed("names"), self._partial() as scratch:
            source = scratch / "all.cpp"
            cuda = self.toolchain.language == "cuda"
            source.write_text(
                HEADERS["extension"]
                + (
                    _CUDA_HEADERS + "#include <cuda_fp16.h>\n#include <cuda_bf16.h>\n"
                    if cuda and self._has_cuda()
                    else ""
                )
            )
            done = subprocess.run([*self.host_command([]), "-E", "-dD", str(source)], capture_output=True)
            found = sorted(set(_NAME.findall(done.stdout)))
            write_atomically(path, b"\n".join(found), sync=False)

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
                "mend or replace that compiler, or choose another architecture; kernelrl doctor",
            )

    def _once(self, part: str) -> FileLock:
        self.directory.mkdir(parents=True, exist_ok=True)
        return FileLock(self.directory / f".{part}.lock")

    @contextlib.contextmanager
    def _partial(self) -> Iterator[Path]:
        for left in self.directory.glob(".part-*"):
            # Of a process that was killed: the longest part takes minutes.
            with contextlib.suppress(OSError):
                if time.time() - left.stat().st_mtime > _ABANDONED_S:
                    shutil.rmtree(left, ignore_errors=True)
        scratch = Path(tempfile.mkdtemp(prefix=".part-", dir=self.directory))
        try:
            yield scratch
        finally:
            shutil.rmtree(scratch, ignore_errors=True)

    @contextlib.contextmanager
    def _timed(self, part: str) -> Iterator[None]:
        """Note what a part took: it is paid once and reported apart from the builds."""
        started = time.monotonic()
        yield
        with open(self.directory / "seconds.jsonl", "a") as file:
            file.write(json.dumps({"part": part, "seconds": round(time.monotonic() - started, 2)}) + "\n")


def prepare(toolchain: Toolchain, directory: Path) -> Prepared:
    """The prepared parts of a toolchain; the binder is built now if it never was, the headers when they are used.

    Raises:
        ToolchainMissing: torch's own headers do not compile here.
    """
    # Whatever of this module the parts depend on gives them another place.
    own = [
        HEADERS,
        _LEFT_OUT,
        _CUDA_HEADERS,
        Prepared(toolchain, directory).host_command([]),
        _binder_source().read_text(),
        *([_capture_source().read_text()] if toolchain.language == "cuda" else []),
    ]
    stamp = hashlib.sha256(json.dumps(own).encode()).hexdigest()[:8]
    return Prepared(toolchain, directory / f"{toolchain.id}-{stamp}")


def _capture_source() -> Path:
    return Path(__file__).with_name("capture.c")


def _binder_source() -> Path:
    return Path(__file__).with_name("binder.cpp")
