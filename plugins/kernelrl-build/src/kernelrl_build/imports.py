"""Symbols that a shared object imports from libraries that compute. No spelling in a source can hide them."""

from __future__ import annotations

import functools
import re
import struct
from collections.abc import Iterator
from pathlib import Path

__all__ = ["is_plain", "library_imports"]

_OF_TORCH = re.compile(
    r"_ZN2at(?:4_ops|3cpu|4cuda|6native(?:7cpublas)?|10redispatch|4meta|17functionalization|\d+composite[a-z]+)(\d+)(\w+)"
)
_OTHER_ROUTES = re.compile(
    r"_ZNK?[RO]?(?:3c1010Dispatcher|3c1014OperatorHandle|3c104impl13OperatorEntry|5torch2nn|5torch3jit|5torch7Library9_fallback)\w+"
)
"""Other routes to torch's operators: its dispatcher and the handles that it finds, fallbacks, which get each operator,
its layers, and its own compiler."""
_VENDOR = re.compile(
    r"(?:cblas_|cublas|hipblas|rocblas_)?[sdczhSDCZH](?:gemm|gemv|symm|symv|syrk|trsm|trmm|ger|dot|axpy|nrm2|asum|scal)\w*"
    r"|(?:cblas_|cublas|hipblas)\w*(?:[Gg]emm|GEMM|Matmul)\w*|(?:mkl_|mkldnn_|dnnl_|xnn_)\w+|_ZN(?:4dnnl|5ideep)\w+"
    r"|(?:cudnn|miopen)\w*(?:Forward|Execute|Backward)\w*|(?:cuf|hipf)ftExec\w+|v[msd]{1,2}[A-Z]\w+"
)
_NESTED = r"(?:_ZNV?K?[RO]?|_ZT[ISTV]N|_ZGVN|_ZTv\w+?_NK?|_ZThn\d+_NK?)"
_PLAIN = re.compile(
    # The runtimes of C++, of compilers, of OpenMP and of threads, and functions for vectors.
    r"_Z(?:NV?K?[RO]?S[ta-dios]|S[ta-dios]|T[ISTV](?:N?S[ta-dios]|N10__cxxabiv1|N9__gnu_cxx|P?K?[a-z]$)|n[wa]|d[la]|GT|GV[a-e]|N9__gnu_cxx)\w*"
    r"|_Z[lr]sR?S[ta-dios]\w*|__cxa_\w+|_Unwind_\w+|__gxx_personality_v0|_ITM_\w+|__gmon_start__|__dynamic_cast|__once_proxy"
    r"|(?:GOMP|omp|__kmpc|pthread|__pthread|sem)_\w+|Sleef_\w+|__(?:cpu_model|cpu_indicator_init|cpu_features2)|__stack_chk_\w+"
    r"|__(?:trunc|extend|fix|float|mul|div|udiv|mod|umod|add|sub|neg|pow|popcount|clz|ctz|parity|bswap|cmp|ucmp|ash|lsh)\w+"
    # Python, pybind11, and the part of torch that holds tensors and registers functions.
    rf"|_?Py\w+|THP\w+|\w*8pybind11\w*|{_NESTED}(?:3c10|6caffe2)\w+|_ZN3c10\w+|_Z[lr]sRSo\w+"
    rf"|{_NESTED}5torch(?:7Library|11CppFunction|8autograd|6detail|10class_base|16PyWarningHandler|29translate)\w+"
    rf"|{_NESTED}2at(?:6Tensor|10TensorBase|11TensorMaker|14TensorIterator|18TensorIterator|20TensorIterator|8internal|6detail)\w+"
    rf"|{_NESTED}2at(?:7Context|13globalContext|15get_num_threads|14get_thread_num|18in_parallel_region|16init_num_threads)\w+"
    r"|_ZN2at6tensorE\w+"
    rf"|{_NESTED}2at(?:5print|9Generator|7indexing|ls)\w+|_ZN2atls\w+"
)
"""Symbols that an extension for the CPU may import without being listed, in addition to those of the C library."""
_WAYS = re.compile(
    r"_*(?:dl\w+|libc_dl\w+|r_debug|rtld_\w+|la_\w+|v?fork|clone\d?|f?exec\w+|posix_spawn\w*|system|popen|libc_system"
    r"|mmap\w*|mremap|mprotect|pkey_\w+|remap_file_pages|ptrace|process_vm_\w+)"
)
"""Functions of the C library that lead to other libraries: the loader, new processes, and memory for code."""
_UNWINDING = ("dl_iterate_phdr", "_dl_find_object")
"""Functions of the loader with which the runtime of C++ finds handlers of exceptions."""
_C_LIBRARY = re.compile(
    r"^\S+ \S+ \S+ \S+ \S+\s+(/\S*/(?:lib(?:c|m|pthread|rt)(?:-[\d.]+)?|ld-[\w.-]+)\.so[\d.]*)$", re.MULTILINE
)
_SWITCHES = re.compile(
    r"_ZN3c104impl\d+(?:(?:Include|Force)DispatchKeyGuard|tls_set_dispatch_key_|_force_tls_local_dispatch_key_set"
    r"|TorchDispatchModeTLS|PythonDispatcherTLS)\w+"
)
"""Functions that change which parts of torch's dispatcher see a call. Exclusions for a block are missing: factories
such as `torch::empty` make them."""
_OVERLOAD = re.compile(r"(\w+?_)_(?:Scalar|Tensor)|(\w+?)_(?:Scalar|Tensor)")
_OF_OBJECTS = re.compile(
    r"_?Py(?:Object|Eval|Vectorcall|CFunction|Method|Gen|Iter)_\w*(?:Call(?!FunctionObjArgs$)|Vectorcall|Send)\w*|PyVectorcall_\w+"
    r"|_?PyNumber_(?!(?:Check|Long|Float|Index|AsSsize_t|Add)$)\w+|PyObject_RichCompare|PySequence_(?:Concat|Repeat|InPlace\w+)"
    r"|_?Py(?:Import|Run|Sys|Marshal|Code|Function)_\w+|_?PyEval_(?:Eval|Set)\w+|Py_CompileString\w*"
)
"""Functions of Python through which objects, such as arrays, compute: calls, arithmetic, modules and code. Excluded are
the functions that every module of pybind11 needs, and those that convert arguments and results."""
_WORD = re.compile(r"\w++")
"""Names that the other patterns read once. They could read another name as often as it has letters."""
_MOST_DIGITS, _MOST_READ = 6, 4096
_LENGTH = re.compile(rf"\d{{1,{_MOST_DIGITS}}}")
_DYNAMIC_SYMBOLS, _RELOCATIONS = 11, 4


def library_imports(path: str | Path, language: str) -> list[str]:
    """Imports of a shared object from libraries that compute, and imports that may lead to such libraries.

    Args:
        language: of the extension. For `cpp`, the ways to libraries are returned as well: the loader, new processes,
            calls of Python's objects, and every function of an unknown library. The runtimes of C and C++ are known,
            whether they are linked statically or not. For device code, only the imports that compute are returned.

    Returns:
        Operators of torch as `aten::NAME`, others by their names; empty if the file is not a 64-bit ELF file.
    """
    found = set()
    names = [*_looked_up(Path(path).read_bytes())]
    contains_runtime = not any(name.startswith("_Unwind_") for name, is_defined in names if not is_defined)
    harmless = _UNWINDING if contains_runtime else ()
    for name, is_defined in names:
        operator = _OF_TORCH.match(name)
        if operator is not None:
            name_with_overload = operator[2][: int(operator[1][:_MOST_DIGITS])]
            found.add(f"aten::{_without_overload(name_with_overload)}")
        elif _computes(name) or (language == "cpp" and not is_defined and not is_plain(name) and name not in harmless):
            found.add(_readable(name[:_MOST_READ]))
    return sorted(found)


def _computes(name: str) -> bool:
    return bool(_WORD.fullmatch(name) and (_VENDOR.fullmatch(name) or _OTHER_ROUTES.fullmatch(name)))


def is_plain(name: str) -> bool:
    """Whether an extension for the CPU may import a symbol with this name without being listed."""
    if not _WORD.fullmatch(name) or any(ways.fullmatch(name) for ways in (_OF_OBJECTS, _WAYS, _SWITCHES)):
        return False
    return name in _of_c_library() or _PLAIN.fullmatch(name) is not None


@functools.cache
def _of_c_library() -> frozenset[str]:
    """Names of the functions and tables of this machine's C library, with its mathematics."""
    with open("/proc/self/maps") as file:
        paths = {*_C_LIBRARY.findall(file.read())}
    return frozenset(name for path in paths for name in _defined(Path(path).read_bytes()))


def _without_overload(name: str) -> str:
    """Name of an operator in that of its overload: `fill_` for `fill__Scalar`."""
    overload = _OVERLOAD.fullmatch(name[:_MOST_READ])
    return next(filter(None, overload.groups())) if overload else name


def _readable(symbol: str) -> str:
    """Name of the function in a symbol of C++, without its parameters; the symbol itself if it is not that simple."""
    rest, names = re.sub("^_ZNV?K?[RO]?", "", symbol), []
    while length := _LENGTH.match(rest):
        end = length.end() + int(length[0])
        names.append(rest[length.end() : end])
        rest = rest[end:]
    return "::".join(names) or symbol


def _looked_up(content: bytes) -> Iterator[tuple[str, bool]]:
    """Names that the loader looks up in all libraries, and whether the file defines the symbol itself.

    The loader may find a symbol that the file defines in another library first, unless the file was linked to its own.
    """
    for name, is_defined, is_used in _dynamic_symbols(content):
        if is_used or not is_defined:
            yield name, is_defined


def _defined(content: bytes) -> Iterator[str]:
    """Names that a library defines."""
    return (name for name, is_defined, _ in _dynamic_symbols(content) if is_defined)


def _dynamic_symbols(content: bytes) -> Iterator[tuple[str, bool, bool]]:
    """Each dynamic symbol of a file: its name, whether the file defines it, and whether a relocation uses it."""
    if content[:6] != b"\x7fELF\x02\x01":
        return
    try:
        (sections,) = struct.unpack_from("<Q", content, 0x28)
        size, count = struct.unpack_from("<HH", content, 0x3A)
        headers = [struct.unpack_from("<IIQQQQIIQQ", content, sections + size * index) for index in range(count)]
        used = {
            (link, information >> 32)
            for _, kind, _, _, offset, length, link, _, _, _ in headers
            if kind == _RELOCATIONS
            for _, information, _ in struct.iter_unpack("<QQq", content[offset : offset + length])
        }
        for index, (_, kind, _, _, offset, length, link, _, _, _) in enumerate(headers):
            if kind != _DYNAMIC_SYMBOLS:
                continue
            names = headers[link][4]
            for number, at in enumerate(range(offset, offset + length, 24)):
                name, _, _, section = struct.unpack_from("<IBBH", content, at)
                if name:
                    begin = names + name
                    text = content[begin : content.index(b"\0", begin)].decode("ascii", "replace")
                    yield text, section != 0, (index, number) in used
    except (struct.error, ValueError, IndexError):
        # The output of a linker is complete; another file has no imports.
        return
