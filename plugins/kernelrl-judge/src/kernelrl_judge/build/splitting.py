"""Taking a CUDA or HIP source apart: device code that needs no header of torch, and host code that needs no device
compiler.

What a device compiler makes of a launch is ordinary C++: `kernel<<<grid, block>>>(args)` pushes the configuration and
calls `kernel(args)`, whose definition on the host side is a stub of the same name. So the host unit has each kernel as
a function: with the stub as its body (`stubs`), or declared only, and then the stub in the object of the device unit is
what it finds when both are linked. Templates of kernels are treated alike; the instances that the host unit needs are
named explicitly in the device unit.

`Unsplittable` is raised whenever it is not certain that both units together mean what the source means.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

import attrs

from kernelrl_judge.build.kernel_syntax import (
    Unsplittable,
    declared,
    external,
    function_name,
    head_names,
    is_mutable_variable,
    with_launches,
)
from kernelrl_judge.build.lexing import Item, Unreadable, items, text_of
from kernelrl_judge.build.preludes import device_prelude, host_prelude
from kernelrl_judge.build.stubs import stub_body

__all__ = ["Split", "Unsplittable", "of_torch", "split"]


@attrs.frozen
class Split:
    """The two units of a source."""

    host: str
    device: str
    kernels: tuple[str, ...]
    """Names of the kernels."""
    templates: tuple[str, ...]
    """Names of those that are templates."""
    device_names: frozenset[str]
    """Names defined in the device unit alone."""
    host_names: frozenset[str]
    """Names defined in the host unit alone."""
    stubs: bool
    """Whether the host unit defines what a launch calls, so that the device unit is needed as machine code alone."""
    further_headers: bool
    """Whether headers of torch are included beyond the usual ones, whose names are known (`prepare`)."""


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
    # What a device compiler defines for host code too.
    *("__CUDACC__", "__NVCC__", "__CUDACC_VER_MAJOR__", "__CUDACC_VER_MINOR__", "__HIPCC__", "__HIP__"),
    *("__CUDACC_EXTENDED_LAMBDA__", "__CUDACC_RELAXED_CONSTEXPR__", "__CUDACC_DEBUG__"),
}
_OF_DEVICE = {"__global__", "__device__", "__constant__", "__shared__"}
_DEVICE_LIBRARIES = {
    *("cub", "thrust", "cooperative_groups", "cg", "nvcuda", "wmma", "cutlass", "cute", "curand", "hipcub", "rocwmma"),
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
        work.add(item, ())
    return work.finish()


class _Splitter:
    def __init__(self, language: str, file: str) -> None:
        self._language = language
        self._file = file
        self._host: list[str] = []
        self._device: list[str] = []
        self._host_names: set[str] = set()
        self._kernels: dict[str, bool] = {}
        self._device_names: set[str] = set()
        self._host_only: set[str] = set()
        self._further_headers = False
        self._accessors: list[str] = []
        self._stubs: dict[int, str | None] = {}

    def add(self, item: Item, scopes: tuple[str, ...]) -> None:
        getattr(self, f"_add_{item.kind}")(item, scopes)

    def finish(self) -> Split:
        body = "".join(self._device)
        if missing := self._host_names & _DEVICE_LIBRARIES:
            raise Unsplittable(f"host code uses {min(missing)}")
        if templated := [name for name in self._host_names if _DEVICE_COMPILER_ONLY.match(name)]:
            raise Unsplittable(f"host code uses {min(templated)}")
        prelude = device_prelude(self._language, body)
        prelude_of_host = host_prelude(self._language, self._host_names, launches=bool(self._kernels))
        # A variable of the device has a host side of its own.
        has_stubs = self._language == "cuda" and not self._accessors and None not in self._stubs.values()
        for place, stub in self._stubs.items():
            self._host[place] += stub if has_stubs and stub is not None else ";"
        return Split(
            host=prelude_of_host + "".join(self._host),
            device=prelude + body + "".join(self._accessors),
            kernels=tuple(self._kernels),
            templates=tuple(name for name, template in self._kernels.items() if template),
            device_names=frozenset(self._device_names),
            host_names=frozenset(self._host_only),
            stubs=has_stubs and bool(self._kernels),
            further_headers=self._further_headers,
        )

    # --- items ------------------------------------------------------------------------------------------------------

    def _add_directive(self, item: Item, scopes: tuple[str, ...]) -> None:
        text = text_of(item.tokens).strip()
        if _TORCH_HEADERS.match(text):
            if re.search(r"\.cuh[>\"]", text):
                raise Unsplittable(f"line {item.line}: a header of torch for the device")
            self._further_headers |= not _USUAL_HEADERS.match(text)
            self._put(self._host, item, text)
            return
        self._refuse(item, item.names())
        if re.match(r"#\s*(?:el)?if", text) and of_torch(item.names()):
            raise Unsplittable(f"line {item.line}: a condition on torch's headers")
        include = _INCLUDE.match(text)
        if include is None:
            if re.match(r"#\s*define\b", text):
                self._check_macro(item, text)
            self._put(self._host, item, text)
            self._put(self._device, item, text)
            return
        header = include.group(1)
        if not _DEVICE_HEADERS.match(header):
            self._put(self._host, item, text)
        if _DEVICE_HEADERS.match(header) or header in _LIGHT_HEADERS or "/" in header or header.endswith(".h"):
            self._put(self._device, item, text)

    def _check_macro(self, item: Item, text: str) -> None:
        names = item.names()
        if names & _QUALIFIERS or "<<<" in text or names & _UNSPLITTABLE_NAMES:
            raise Unsplittable(f"line {item.line}: a macro that makes device code or launches it")

    def _add_scope(self, item: Item, scopes: tuple[str, ...]) -> None:
        head = item.words
        opening = " ".join(head)
        if set(head) & _TORCH_NAMES:
            raise Unsplittable(f"line {item.line}: a namespace of torch")
        if head == ["namespace"]:
            # Kernels of an unnamed namespace could not be found from another unit.
            opening = "inline namespace kernelrl_unnamed"
        for unit in (self._host, self._device):
            self._put(unit, item, opening + " {")
        for child in item.children:
            self.add(child, (*scopes, opening))
        for unit in (self._host, self._device):
            unit.append("\n}\n")

    def _add_record(self, item: Item, scopes: tuple[str, ...]) -> None:
        names = item.names()
        self._refuse(item, names)
        if not of_torch(names):
            self._put(self._device, item, text_of(item.tokens))
        else:
            self._host_only |= head_names(item)
        if not names & _DEVICE_LIBRARIES:
            self._put(self._host, item, with_launches(item.tokens))
            return
        self._device_names |= head_names(item)
        if of_torch(names):
            raise Unsplittable(f"line {item.line}: a record that needs torch and a device library")

    def _add_declaration(self, item: Item, scopes: tuple[str, ...]) -> None:
        names = item.names()
        self._refuse(item, names)
        words = item.words
        if "__global__" in names:
            if words[0] == "template" and words[1:2] != ["<"]:
                # An explicit instantiation.
                self._put(self._device, item, text_of(item.tokens))
                return
            self._put(self._device, item, external(item))
            self._put(self._host, item, declared(item))
        elif "__constant__" in names or ("__device__" in names and "(" not in words):
            self._add_variable(item, words, scopes)
        elif "__device__" in names and "__host__" not in names:
            self._device_names |= names
            self._put(self._device, item, text_of(item.tokens))
        elif (
            of_torch(names)
            or (words[0] == "using" and names & {"std"} and "namespace" not in names)
            # Device code cannot use a variable of the host, and two units would have two of them.
            or (is_mutable_variable(words) and not names & _DEVICE_LIBRARIES)
        ):
            self._host_only |= {name for name in names if not of_torch([name])}
            self._put(self._host, item, with_launches(item.tokens))
        else:
            if not names & _DEVICE_LIBRARIES:
                self._put(self._host, item, text_of(item.tokens))
            else:
                self._device_names |= names
            # A prototype of a host function is no use to the device unit, and no harm.
            self._put(self._device, item, text_of(item.tokens))

    def _add_variable(self, item: Item, words: list[str], scopes: tuple[str, ...]) -> None:
        self._put(self._device, item, text_of(item.tokens))
        plain = [word for word in words if word not in ("static", "extern", "__constant__", "__device__", ";")]
        joined = " ".join(plain)
        match = re.fullmatch(r"((?:[A-Za-z_]\w*(?: :: )?\s?)+?) ([A-Za-z_]\w*)((?: \[ [^\]]* \])*)(?: = .*)?", joined)
        if match is None or scopes:
            self._device_names |= {word for word in plain if re.fullmatch(r"[A-Za-z_]\w*", word)} - {"float", "int"}
            return
        kind, name, extent = match.groups()
        if kind.split()[0] == "const":
            self._put(self._host, item, text_of(item.tokens).replace("__constant__", "").replace("__device__", ""))
            return
        # The address of a device variable's shadow on the host is its handle: the host unit refers to the same one.
        self._accessors.append(f'\nextern "C" void* kernelrl_symbol_{name}() {{ return (void*)&{name}; }}\n')
        self._put(
            self._host,
            item,
            f'extern "C" void* kernelrl_symbol_{name}(); typedef {kind} kernelrl_type_{name}{extent}; '
            f"static kernelrl_type_{name}& {name} = *(kernelrl_type_{name}*)kernelrl_symbol_{name}();",
        )

    def _add_function(self, item: Item, scopes: tuple[str, ...]) -> None:
        names = item.names()
        self._refuse(item, names)
        head = set(item.words)
        name = function_name(item)
        if not name and head & {"__global__", "__device__"}:
            raise Unsplittable(f"line {item.line}: a function without a name")
        if "__global__" in head:
            if of_torch(names):
                raise Unsplittable(f"line {item.line}: a kernel that uses torch")
            if name in self._kernels:
                raise Unsplittable(f"line {item.line}: several kernels of one name")
            if item.words[:3] == ["template", "<", ">"]:
                raise Unsplittable(f"line {item.line}: a specialised kernel")
            self._kernels[name] = "template" in head
            self._put(self._device, item, external(item))
            self._stubs[len(self._host)] = stub_body(item)
            self._put(self._host, item, declared(item))
        elif "__device__" in head and "__host__" not in head:
            if of_torch(names):
                raise Unsplittable(f"line {item.line}: device code that uses torch")
            self._device_names.add(name)
            self._put(self._device, item, text_of(item.tokens))
        elif "__device__" in head or ("constexpr" in head and not of_torch(names)):
            if of_torch(names):
                raise Unsplittable(f"line {item.line}: device code that uses torch")
            for unit in (self._host, self._device):
                self._put(unit, item, text_of(item.tokens))
        else:
            if inside := names & _OF_DEVICE:
                raise Unsplittable(f"line {item.line}: {min(inside)} inside host code")
            self._host_names |= names
            self._host_only |= head_names(item)
            self._put(self._host, item, with_launches(item.tokens))

    # --- texts ------------------------------------------------------------------------------------------------------

    def _put(self, unit: list[str], item: Item, text: str) -> None:
        line = item.line
        stripped = text.lstrip()
        unit.append(f'\n#line {line} "{self._file}"\n{stripped}')

    def _refuse(self, item: Item, names: set[str]) -> None:
        if found := names & _UNSPLITTABLE_NAMES:
            raise Unsplittable(f"line {item.line}: {min(found)}")


def of_torch(names: Iterable[str]) -> bool:
    """Whether one of some names is a name of torch."""
    return any(name in _TORCH_NAMES or name in _HOST_TYPES or _TORCH_MACROS.match(name) for name in names)
