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
from collections.abc import Iterable, Sequence

import attrs

from kernelrl_judge.building.lexing import Item, Token, Unreadable, items, text_of
from kernelrl_judge.building.stubs import stub_body

__all__ = ["Split", "Unsplittable", "split"]


class Unsplittable(Exception):
    """The source has to go through the device compiler as a whole; the text is why."""


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
_NO_VARIABLE = {
    *("const", "constexpr", "extern", "using", "typedef", "template", "namespace", "struct", "class", "union", "enum"),
    *("friend", "static_assert", "asm", "__asm__"),
}
_DEVICE_LIBRARIES = {
    *("cub", "thrust", "cooperative_groups", "cg", "nvcuda", "wmma", "cutlass", "cute", "curand", "hipcub", "rocwmma"),
}
_DEVICE_COMPILER_ONLY = re.compile(r"cudaOccupancy\w+|cudaLaunchKernelEx\w*|cudaGraph\w*Node\w*|cudaCreateTexture\w*")
_QUALIFIERS = {"__global__", "__device__", "__host__", "__constant__", "__shared__", "__managed__"}
_WITH_ARGUMENTS = {"__launch_bounds__", "__cluster_dims__", "__maxnreg__", "__attribute__", "__align__", "alignas"}
_DROPPED = {"__global__", "__forceinline__", "__noinline__", "static", "inline"}

_PRELUDE = {
    "cfloat": r"\b(?:FLT|DBL)_\w+\b",
    "climits": r"\b(?:U?(?:INT|LONG|LLONG|CHAR|SHRT)_(?:MAX|MIN))\b",
    "cstdint": r"\bu?int(?:8|16|32|64|ptr)_t\b",
    "limits": r"\bnumeric_limits\b",
    "algorithm": r"\bstd::(?:min|max|swap|clamp)\b",
    "type_traits": r"\bstd::(?:is_\w+|enable_if\w*|conditional\w*|remove_\w+|decay\w*|integral_constant)\b",
    "utility": r"\bstd::(?:pair|move|forward|declval)\b",
    "array": r"\bstd::array\b",
    "tuple": r"\bstd::(?:tuple|tie|get|make_tuple)\b",
    "cmath": r"\b(?:M_PI\w*|M_SQRT\w+|INFINITY|NAN|HUGE_VALF?)\b|\bstd::(?:sqrt|exp|log|pow|abs|tanh|fma|floor|ceil)\b",
    "cassert": r"\bassert\b",
    "cstdio": r"\bprintf\b",
    "cstring": r"\bmem(?:cpy|set)\b",
}
_CUDA_PRELUDE = {
    "cuda_fp16.h": r"\b(?:__)?half2?(?:_\w+)?\b|\b__\w*half2?\w*\b",
    "cuda_bf16.h": r"\b(?:__)?nv_bfloat16\w*\b|\b__\w*bfloat16\w*\b",
}

_HOST_PRELUDE = """\
extern "C" unsigned {push}(dim3, dim3, size_t, {stream});
namespace kernelrl {{
inline unsigned push(dim3 grid, dim3 block, size_t shared = 0, {stream} stream = 0) {{
  return {push}(grid, block, shared, stream);
}}
}}
"""


def _extrema() -> str:
    """The overloads of min and max that CUDA's headers define outside of any namespace, for its own compiler alone."""
    plain = ("int", "unsigned", "long", "unsigned long", "long long", "unsigned long long", "float", "double")
    mixed = (
        ("int", "unsigned", "unsigned"),
        ("long", "unsigned long", "unsigned long"),
        ("long long", "unsigned long long", "unsigned long long"),
        ("float", "double", "double"),
    )
    cases = [(name, name, name) for name in plain]
    cases += [case for a, b, result in mixed for case in ((a, b, result), (b, a, result))]
    return "".join(
        f"static inline {result} {name}({a} a, {b} b) "
        f"{{ return ({result})a {sign} ({result})b ? ({result})a : ({result})b; }}\n"
        for a, b, result in cases
        for name, sign in (("min", "<"), ("max", ">"))
    )


_RUNTIME_TEMPLATES = """\
template <typename T> inline cudaError_t cudaMemcpyToSymbol(
    const T& symbol, const void* source, size_t count, size_t offset = 0,
    cudaMemcpyKind kind = cudaMemcpyHostToDevice) {
  return ::cudaMemcpyToSymbol(static_cast<const void*>(&symbol), source, count, offset, kind);
}
template <typename T> inline cudaError_t cudaMemcpyToSymbolAsync(const T& symbol, const void* source, size_t count,
    size_t offset = 0, cudaMemcpyKind kind = cudaMemcpyHostToDevice, cudaStream_t stream = 0) {
  return ::cudaMemcpyToSymbolAsync(static_cast<const void*>(&symbol), source, count, offset, kind, stream);
}
template <typename T> inline cudaError_t cudaMemcpyFromSymbol(
    void* target, const T& symbol, size_t count, size_t offset = 0, cudaMemcpyKind kind = cudaMemcpyDeviceToHost) {
  return ::cudaMemcpyFromSymbol(target, static_cast<const void*>(&symbol), count, offset, kind);
}
template <typename T> inline cudaError_t cudaGetSymbolAddress(void** address, const T& symbol) {
  return ::cudaGetSymbolAddress(address, static_cast<const void*>(&symbol));
}
template <typename R, typename... A>
inline cudaError_t cudaFuncSetAttribute(R (*kernel)(A...), cudaFuncAttribute attribute, int value) {
  return ::cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel), attribute, value);
}
template <typename R, typename... A>
inline cudaError_t cudaFuncSetCacheConfig(R (*kernel)(A...), cudaFuncCache config) {
  return ::cudaFuncSetCacheConfig(reinterpret_cast<const void*>(kernel), config);
}
template <typename R, typename... A>
inline cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, R (*kernel)(A...)) {
  return ::cudaFuncGetAttributes(attributes, reinterpret_cast<const void*>(kernel));
}
template <typename R, typename... A> inline cudaError_t cudaLaunchKernel(
    R (*kernel)(A...), dim3 grid, dim3 block, void** arguments, size_t shared = 0, cudaStream_t stream = 0) {
  return ::cudaLaunchKernel(reinterpret_cast<const void*>(kernel), grid, block, arguments, shared, stream);
}
template <typename R, typename... A> inline cudaError_t cudaLaunchCooperativeKernel(
    R (*kernel)(A...), dim3 grid, dim3 block, void** arguments, size_t shared = 0, cudaStream_t stream = 0) {
  return ::cudaLaunchCooperativeKernel(reinterpret_cast<const void*>(kernel), grid, block, arguments, shared, stream);
}
"""
"""Overloads of the runtime that CUDA's headers have for its own compiler alone."""
_TEMPLATED = set(re.findall(r"cudaError_t (cuda\w+)\(", _RUNTIME_TEMPLATES))

_PUSH = {
    "cuda": _HOST_PRELUDE.format(push="__cudaPushCallConfiguration", stream="struct CUstream_st*"),
    "hip": _HOST_PRELUDE.format(push="__hipPushCallConfiguration", stream="hipStream_t"),
}
_RUNTIME = {"cuda": "#include <cuda.h>\n#include <cuda_runtime.h>\n", "hip": "#include <hip/hip_runtime.h>\n"}


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
        prelude = _RUNTIME[self._language] + "".join(
            f"#include <{header}>\n"
            for header, pattern in {**_PRELUDE, **(_CUDA_PRELUDE if self._language == "cuda" else {})}.items()
            if re.search(pattern, body)
        )
        host_prelude = _PUSH[self._language] if self._kernels else ""
        if self._host_names & {"min", "max"}:
            host_prelude += _extrema()
        if self._host_names & _TEMPLATED and self._language == "cuda":
            host_prelude += _RUNTIME_TEMPLATES
        # A variable of the device has a host side of its own.
        has_stubs = self._language == "cuda" and not self._accessors and None not in self._stubs.values()
        for place, stub in self._stubs.items():
            self._host[place] += stub if has_stubs and stub is not None else ";"
        return Split(
            host=host_prelude + "".join(self._host),
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
        if re.match(r"#\s*(?:el)?if", text) and self._of_torch(item.names()):
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
        head = [token.text for token in item.tokens if not token.blank]
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
        if not self._of_torch(names):
            self._put(self._device, item, text_of(item.tokens))
        else:
            self._host_only |= _head_names(item)
        if not names & _DEVICE_LIBRARIES:
            self._put(self._host, item, self._with_launches(item.tokens))
            return
        self._device_names |= _head_names(item)
        if self._of_torch(names):
            raise Unsplittable(f"line {item.line}: a record that needs torch and a device library")

    def _add_declaration(self, item: Item, scopes: tuple[str, ...]) -> None:
        names = item.names()
        self._refuse(item, names)
        words = [token.text for token in item.tokens if not token.blank]
        if "__global__" in names:
            if words[0] == "template" and words[1:2] != ["<"]:
                # An explicit instantiation.
                self._put(self._device, item, text_of(item.tokens))
                return
            self._put(self._device, item, self._external(item.tokens))
            self._put(self._host, item, self._declared(item.tokens))
        elif "__constant__" in names or ("__device__" in names and "(" not in words):
            self._add_variable(item, words, scopes)
        elif "__device__" in names and "__host__" not in names:
            self._device_names |= names
            self._put(self._device, item, text_of(item.tokens))
        elif (
            self._of_torch(names)
            or (words[0] == "using" and names & {"std"} and "namespace" not in names)
            # Device code cannot use a variable of the host, and two units would have two of them.
            or (_is_mutable_variable(words) and not names & _DEVICE_LIBRARIES)
        ):
            self._host_only |= {name for name in names if not self._of_torch([name])}
            self._put(self._host, item, self._with_launches(item.tokens))
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
        head = {token.text for token in item.tokens[: item.body] if token.kind == "name"}
        if "__global__" in head:
            if self._of_torch(names):
                raise Unsplittable(f"line {item.line}: a kernel that uses torch")
            name = _function_name(item.tokens[: item.body])
            template = "template" in head
            if name in self._kernels:
                raise Unsplittable(f"line {item.line}: several kernels of one name")
            if template and _specialises(item.tokens[: item.body]):
                raise Unsplittable(f"line {item.line}: a specialised kernel")
            self._kernels[name] = template
            self._put(self._device, item, self._external(item.tokens))
            self._stubs[len(self._host)] = stub_body(item.tokens[: item.body], name)
            self._put(self._host, item, self._declared(item.tokens[: item.body]))
        elif "__device__" in head and "__host__" not in head:
            if self._of_torch(names):
                raise Unsplittable(f"line {item.line}: device code that uses torch")
            self._device_names.add(_function_name(item.tokens[: item.body]))
            self._put(self._device, item, text_of(item.tokens))
        elif "__device__" in head or ("constexpr" in head and not self._of_torch(names)):
            if self._of_torch(names):
                raise Unsplittable(f"line {item.line}: device code that uses torch")
            for unit in (self._host, self._device):
                self._put(unit, item, text_of(item.tokens))
        else:
            if inside := names & _OF_DEVICE:
                raise Unsplittable(f"line {item.line}: {min(inside)} inside host code")
            self._host_names |= names
            self._host_only |= _head_names(item)
            self._put(self._host, item, self._with_launches(item.tokens))

    # --- texts ------------------------------------------------------------------------------------------------------

    def _put(self, unit: list[str], item: Item, text: str) -> None:
        line = item.line
        stripped = text.lstrip()
        unit.append(f'\n#line {line} "{self._file}"\n{stripped}')

    def _refuse(self, item: Item, names: set[str]) -> None:
        if found := names & _UNSPLITTABLE_NAMES:
            raise Unsplittable(f"line {item.line}: {min(found)}")

    @staticmethod
    def _of_torch(names: Iterable[str]) -> bool:
        return any(name in _TORCH_NAMES or name in _HOST_TYPES or _TORCH_MACROS.match(name) for name in names)

    @staticmethod
    def _external(parts: Sequence[Token]) -> str:
        """A kernel with the linkage that lets another unit find it."""
        out = []
        for index, token in enumerate(parts):
            if token.text == "{":
                return "".join(out) + text_of(parts[index:])
            out.append("" if token.text in ("static", "inline", "__forceinline__") else token.text)
        return "".join(out)

    @staticmethod
    def _declared(parts: Sequence[Token]) -> str:
        """A kernel as a function of the host."""
        out, index = [], 0
        while index < len(parts):
            token = parts[index]
            if token.text in _WITH_ARGUMENTS:
                index = _after_group(parts, index + 1)
                continue
            if token.text not in _DROPPED and token.kind != "comment":
                out.append(token.text)
            index += 1
        return "".join(out).strip()

    @staticmethod
    def _with_launches(parts: Sequence[Token]) -> str:
        """Host code in which each launch is what a device compiler makes of it."""
        out: list[str] = []
        index = 0
        while index < len(parts):
            token = parts[index]
            if token.kind == "directive" and "<<<" in token.text:
                raise Unsplittable(f"line {token.line}: a macro that launches a kernel")
            if token.text == "<" and [part.text for part in parts[index : index + 3]] == ["<", "<", "<"]:
                begin = _callee(parts, index)
                end = _end_of_launch(parts, index + 3)
                callee = text_of(parts[begin:index])
                del out[len(out) - (index - begin) :]
                configuration = _Splitter._with_launches(parts[index + 3 : end])
                arguments_end = _after_group(parts, end + 3)
                arguments = text_of(parts[end + 3 : arguments_end])
                out += [f"(::kernelrl::push({configuration}) ? (void)0 : {callee}{arguments})"]
                # Pieces and tokens must stay in step for the next launch.
                out += [""] * (arguments_end - begin - 1)
                index = arguments_end
                continue
            out.append(token.text)
            index += 1
        return "".join(out)


def _callee(parts: Sequence[Token], place: int) -> int:
    """Where the expression begins that is launched at `place`."""
    index = place - 1
    while index >= 0 and parts[index].blank:
        index -= 1
    if index >= 0 and parts[index].text == ">":
        depth = nested = 0
        while index >= 0:
            text = parts[index].text
            nested += (text == ")") - (text == "(")
            if not nested:
                depth += (text == ">") - (text == "<")
            if text in (";", "{", "}"):
                break
            index -= 1
            if depth == 0:
                break
        if depth:
            raise Unsplittable(f"line {parts[place].line}: a launch that is not understood")
        while index >= 0 and parts[index].blank:
            index -= 1
    if index < 0 or parts[index].kind != "name":
        raise Unsplittable(f"line {parts[place].line}: a launch of something that is not a name")
    while index >= 2 and parts[index - 1].text == "::" and parts[index - 2].kind == "name":
        index -= 2
    if index >= 1 and parts[index - 1].text in (".", "->", "::"):
        raise Unsplittable(f"line {parts[place].line}: a launch of something that is not a name")
    return index


def _end_of_launch(parts: Sequence[Token], place: int) -> int:
    """Where the `>>>` stands that belongs to a launch whose configuration begins at `place`."""
    depth = 0
    for index in range(place, len(parts) - 2):
        text = parts[index].text
        if parts[index].kind == "mark":
            depth += (text in "([{") - (text in ")]}")
        if depth == 0 and [part.text for part in parts[index : index + 3]] == [">", ">", ">"]:
            return index
    raise Unsplittable("a launch that never ends")


def _after_group(parts: Sequence[Token], place: int) -> int:
    """Index after the parentheses that begin at or after `place`."""
    while place < len(parts) and parts[place].blank:
        place += 1
    if place == len(parts) or parts[place].text != "(":
        raise Unsplittable("parentheses are missing")
    depth = 0
    for index in range(place, len(parts)):
        if parts[index].kind == "mark":
            depth += (parts[index].text in "([{") - (parts[index].text in ")]}")
        if depth == 0:
            return index + 1
    raise Unsplittable("parentheses are never closed")


def _function_name(head: Sequence[Token]) -> str:
    """Name of a function from what stands before its body."""
    index = 0
    while index < len(head):
        token = head[index]
        if token.text in _WITH_ARGUMENTS:
            index = _after_group(head, index + 1)
            continue
        if token.text == "(" and index:
            before = next((part for part in reversed(head[:index]) if not part.blank), None)
            if before is not None and before.kind == "name":
                return before.text
        index += 1
    raise Unsplittable("a function without a name")


def _head_names(item: Item) -> set[str]:
    """Names in front of the body of a function or a record."""
    head = []
    for token in item.tokens:
        if token.text in ("(", "{") and head:
            break
        head.append(token)
    return {token.text for token in head if token.kind == "name"}


def _is_mutable_variable(words: Sequence[str]) -> bool:
    end = next((index for index, word in enumerate(words) if word in ("=", "{", "[", "(", ";")), len(words))
    head = words[:end]
    if len(head) < 2 or words[end] == "(" or set(head) & _NO_VARIABLE:
        return False
    return re.fullmatch(r"[A-Za-z_]\w*", head[-1]) is not None


def _specialises(head: Sequence[Token]) -> bool:
    words = [token.text for token in head if not token.blank]
    return words[:3] == ["template", "<", ">"]
