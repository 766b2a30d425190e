"""Splits a CUDA or HIP source into two parts: device code that needs no header of torch, and host code that needs no
device compiler.

A device compiler turns a launch into ordinary C++: `kernel<<<grid, block>>>(args)` pushes the configuration and calls
`kernel(args)`, whose definition on the host side is a stub of the same name. So the host unit has each kernel as a
function. Either the stub is its body (`stubs`), or the function is only declared, and the linker finds the stub in the
object of the device unit. Templates of kernels are treated alike; the device unit names the instances that the host
unit needs.

`Unsplittable` is raised whenever it is not certain that both units together mean what the source means.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

import attrs

from kernelrl_build.kernel_syntax import (
    Unsplittable,
    declared,
    external,
    function_name,
    head_names,
    is_mutable_variable,
    with_launches,
)
from kernelrl_build.lexing import Item, Unreadable, items
from kernelrl_build.preludes import device_prelude, host_prelude
from kernelrl_build.stubs import stub_body

__all__ = ["Split", "Unsplittable", "of_torch", "split"]


@attrs.frozen
class Split:
    """The two units of a source."""

    host: str
    device: str
    kernels: tuple[str, ...]
    """Names of the kernels."""
    templates: tuple[str, ...]
    """Names of the kernels that are templates."""
    device_names: frozenset[str]
    """Names defined in the device unit alone."""
    host_names: frozenset[str]
    """Names defined in the host unit alone."""
    stubs: bool
    """Whether the host unit defines the functions that launches call. The device unit is then compiled to machine code
    alone."""
    further_headers: bool
    """Whether the source includes headers of torch beyond the usual ones, whose names are known (`prepare`)."""


_TORCH_HEADERS = re.compile(r'#\s*include\s*[<"](torch/|ATen/|c10/|pybind11/|Python\.h|caffe2/)')
_USUAL_HEADERS = re.compile(
    r'#\s*include\s*[<"](?:torch/(?:extension|types|torch|all|python)|torch/csrc/utils/pybind|pybind11/\w+|Python|ATen/ATen'
    r"|ATen/Dispatch|ATen/cuda/CUDAContext(?:Light)?|c10/cuda/CUDA(?:Guard|Exception|Stream|Functions|Macros)"
    r'|c10/util/(?:Half|BFloat16|Exception|Optional|ArrayRef)|c10/macros/Macros)\.h[>"]'
)
_INCLUDE = re.compile(r'#\s*include\s*[<"]([^>"]*)[>"]')
_DEVICE_HEADERS = re.compile(
    r"^(cub/|thrust/|cuda/|nv/|cooperative_groups|mma\.h|curand_kernel|cuda_pipeline|cuda_awbarrier|cutlass/|cute/"
    r"|hipcub/|rocwmma/|device_functions|sm_|hip/hip_cooperative)"
)
_LIGHT_HEADERS = {
    *("cmath", "cfloat", "climits", "cstdint", "cstddef", "limits", "math.h", "float.h", "limits.h", "stdint.h"),
    *("stddef.h", "cuda.h", "cuda_runtime.h", "cuda_runtime_api.h", "cuda_fp16.h", "cuda_bf16.h", "cuda_fp8.h"),
    *("math_constants.h", "device_launch_parameters.h", "type_traits", "cassert", "assert.h", "cstdio", "stdio.h"),
    *("vector_types.h", "hip/hip_runtime.h", "hip/hip_fp16.h", "hip/hip_bf16.h", "cstring", "string.h"),
}
_TORCH_NAMES = {"torch", "at", "c10", "pybind11", "py", "caffe2"}
_TORCH_MACROS = re.compile(r"^(TORCH_|AT_|C10_|CUDA_KERNEL_ASSERT|PYBIND11_|THC|TENSOR)")
_HOST_TYPES = {"Tensor", "IntArrayRef", "TensorOptions", "CUDAStream", "PackedTensorAccessor32", "ScalarType"}
_UNSPLITTABLE_NAMES = {
    *("texture", "surface", "__managed__", "__grid_constant__", "cudaTextureObject_t"),
    # Macros that a device compiler defines for host code as well.
    *("__CUDACC__", "__NVCC__", "__CUDACC_VER_MAJOR__", "__CUDACC_VER_MINOR__", "__HIPCC__", "__HIP__"),
    *("__CUDACC_EXTENDED_LAMBDA__", "__CUDACC_RELAXED_CONSTEXPR__", "__CUDACC_DEBUG__"),
}
_OF_DEVICE = {"__global__", "__device__", "__constant__", "__shared__"}
_DEVICE_LIBRARIES = {
    *("cub", "thrust", "cooperative_groups", "cg", "nvcuda", "wmma", "cutlass", "cute", "curand", "hipcub", "rocwmma")
}
_DEVICE_COMPILER_ONLY = re.compile(r"cudaOccupancy\w+|cudaLaunchKernelEx\w*|cudaGraph\w*Node\w*|cudaCreateTexture\w*")
_QUALIFIERS = {"__global__", "__device__", "__host__", "__constant__", "__shared__", "__managed__"}


def split(source: str, language: str, file: str) -> Split:
    """The units of a device source.

    Args:
        language: `cuda` or `hip`.
        file: name of the source in messages of the compilers.

    Raises:
        Unsplittable: see above.
    """
    try:
        found = items(source)
    except Unreadable as error:
        raise Unsplittable(str(error)) from None
    work = _Splitter(language, file)
    for item in found:
        work.add(item)
    return work.finish()


class _Splitter:
    def __init__(self, language: str, file: str) -> None:
        self._language = language
        self._file = file
        self._host: list[str] = []
        self._device: list[str] = []
        self._used: set[str] = set()
        """Names in functions of the host."""
        self._kernels: dict[str, bool] = {}
        """Name: whether it is a template."""
        self._device_only: set[str] = set()
        self._host_only: set[str] = set()
        self._further_headers = False
        self._accessors: list[str] = []
        self._stubs: dict[int, str | None] = {}
        """Index in the host unit -> the stub of the kernel at this place; None if the kernel cannot have one."""

    def finish(self) -> Split:
        for_device_compiler = {name for name in self._used if _DEVICE_COMPILER_ONLY.match(name)}
        if missing := self._used & _DEVICE_LIBRARIES or for_device_compiler:
            raise Unsplittable(f"host code uses {min(missing)}")
        # A variable of the device has a host side of its own.
        has_stubs = self._language == "cuda" and not self._accessors and None not in self._stubs.values()
        for index, stub in self._stubs.items():
            self._host[index] += stub if has_stubs and stub is not None else ";"
        body = "".join(self._device)
        return Split(
            host=host_prelude(self._language, self._used, launches=bool(self._kernels)) + "".join(self._host),
            device=device_prelude(self._language, body) + body + "".join(self._accessors),
            kernels=tuple(self._kernels),
            templates=tuple(name for name, template in self._kernels.items() if template),
            device_names=frozenset(self._device_only),
            host_names=frozenset(self._host_only),
            stubs=has_stubs and bool(self._kernels),
            further_headers=self._further_headers,
        )

    # --- items ------------------------------------------------------------------------------------------------------

    def add(self, item: Item, *, nested: bool = False) -> None:
        names = item.names()
        is_torch_header = item.kind == "directive" and _TORCH_HEADERS.match(item.text.strip())
        if item.kind == "scope":
            self._add_scope(item)
        elif is_torch_header:
            self._add_torch_header(item)
        elif found := names & _UNSPLITTABLE_NAMES:
            raise _unsplittable(item, min(found))
        elif item.kind == "directive":
            self._add_directive(item, names)
        elif item.kind == "record":
            self._add_record(item, names)
        elif item.kind == "function":
            self._add_function(item, names)
        else:
            self._add_declaration(item, names, nested)

    def _add_torch_header(self, item: Item) -> None:
        text = item.text.strip()
        if re.search(r"\.cuh[>\"]", text):
            raise _unsplittable(item, "a header of torch for the device")
        self._further_headers |= not _USUAL_HEADERS.match(text)
        self._put(item, text, self._host)

    def _add_directive(self, item: Item, names: set[str]) -> None:
        text = item.text.strip()
        if re.match(r"#\s*(?:el)?if", text) and of_torch(names):
            raise _unsplittable(item, "a condition on torch's headers")
        if re.match(r"#\s*define\b", text) and (names & _QUALIFIERS or "<<<" in text):
            raise _unsplittable(item, "a macro that makes device code or launches it")
        include = _INCLUDE.match(text)
        header = include[1] if include else ""
        if not _DEVICE_HEADERS.match(header):
            self._put(item, text, self._host)
        if (
            not include
            or _DEVICE_HEADERS.match(header)
            or header in _LIGHT_HEADERS
            or "/" in header
            or header.endswith(".h")
        ):
            self._put(item, text, self._device)

    def _add_scope(self, item: Item) -> None:
        if not _TORCH_NAMES.isdisjoint(item.words):
            raise _unsplittable(item, "a namespace of torch")
        # Kernels of an unnamed namespace could not be found from another unit.
        opening = "inline namespace kernelrl_unnamed" if item.words == ["namespace"] else " ".join(item.words)
        self._put(item, opening + " {", self._host, self._device)
        for child in item.children:
            self.add(child, nested=True)
        for unit in (self._host, self._device):
            unit.append("\n}\n")

    def _add_record(self, item: Item, names: set[str]) -> None:
        if not of_torch(names):
            self._put(item, item.text, self._device)
        else:
            self._host_only |= head_names(item)
        if not names & _DEVICE_LIBRARIES:
            self._put(item, with_launches(item.tokens), self._host)
        elif of_torch(names):
            raise _unsplittable(item, "a record that needs torch and a device library")
        else:
            self._device_only |= head_names(item)

    def _add_declaration(self, item: Item, names: set[str], nested: bool) -> None:
        words = item.words
        if "__global__" in names:
            if words[0] == "template" and words[1:2] != ["<"]:
                # An explicit instantiation.
                self._put(item, item.text, self._device)
                return
            self._put(item, external(item), self._device)
            self._put(item, declared(item), self._host)
        elif "__constant__" in names or ("__device__" in names and "(" not in words):
            self._add_variable(item, words, nested)
        elif "__device__" in names and "__host__" not in names:
            self._device_only |= names
            self._put(item, item.text, self._device)
        elif (
            of_torch(names)
            or (words[0] == "using" and names & {"std"} and "namespace" not in names)
            # Device code cannot use a variable of the host, and two units would have two of them.
            or (is_mutable_variable(words) and not names & _DEVICE_LIBRARIES)
        ):
            self._host_only |= {name for name in names if not of_torch([name])}
            self._put(item, with_launches(item.tokens), self._host)
        elif names & _DEVICE_LIBRARIES:
            self._device_only |= names
            self._put(item, item.text, self._device)
        else:
            # The device unit does not need the prototype of a host function, which changes nothing there.
            self._put(item, item.text, self._host, self._device)

    def _add_variable(self, item: Item, words: list[str], nested: bool) -> None:
        self._put(item, item.text, self._device)
        plain = [word for word in words if word not in ("static", "extern", "__constant__", "__device__", ";")]
        joined = " ".join(plain)
        match = re.fullmatch(r"((?:[A-Za-z_]\w*(?: :: )?\s?)+?) ([A-Za-z_]\w*)((?: \[ [^\]]* \])*)(?: = .*)?", joined)
        if match is None or nested:
            self._device_only |= {word for word in plain if re.fullmatch(r"[A-Za-z_]\w*", word)} - {"float", "int"}
            return
        kind, name, extent = match.groups()
        if kind.split()[0] == "const":
            self._put(item, item.text.replace("__constant__", "").replace("__device__", ""), self._host)
            return
        # The address of a device variable's shadow on the host is its handle: the host unit refers to the same one.
        self._accessors.append(f'\nextern "C" void* kernelrl_symbol_{name}() {{ return (void*)&{name}; }}\n')
        text = (
            f'extern "C" void* kernelrl_symbol_{name}(); typedef {kind} kernelrl_type_{name}{extent}; '
            f"static kernelrl_type_{name}& {name} = *(kernelrl_type_{name}*)kernelrl_symbol_{name}();"
        )
        self._put(item, text, self._host)

    def _add_function(self, item: Item, names: set[str]) -> None:
        head = set(item.words)
        name = function_name(item)
        if head & {"__global__", "__device__"}:
            if not name:
                raise _unsplittable(item, "a function without a name")
            if of_torch(names):
                raise _unsplittable(item, "device code that uses torch")
        if "__global__" in head:
            if name in self._kernels:
                raise _unsplittable(item, "several kernels of one name")
            if item.words[:3] == ["template", "<", ">"]:
                raise _unsplittable(item, "a specialised kernel")
            self._kernels[name] = "template" in head
            self._put(item, external(item), self._device)
            self._stubs[len(self._host)] = stub_body(item)
            self._put(item, declared(item), self._host)
        elif "__device__" in head and "__host__" not in head:
            self._device_only.add(name)
            self._put(item, item.text, self._device)
        elif "__device__" in head or ("constexpr" in head and not of_torch(names)):
            self._put(item, item.text, self._host, self._device)
        else:
            if inside := names & _OF_DEVICE:
                raise _unsplittable(item, f"{min(inside)} inside host code")
            self._used |= names
            self._host_only |= head_names(item)
            self._put(item, with_launches(item.tokens), self._host)

    def _put(self, item: Item, text: str, *units: list[str]) -> None:
        for unit in units:
            unit.append(f'\n#line {item.line} "{self._file}"\n{text.lstrip()}')


def _unsplittable(item: Item, why: str) -> Unsplittable:
    return Unsplittable(f"line {item.line}: {why}")


def of_torch(names: Iterable[str]) -> bool:
    """Whether one of some names is a name of torch."""
    return any(name in _TORCH_NAMES or name in _HOST_TYPES or _TORCH_MACROS.match(name) for name in names)
