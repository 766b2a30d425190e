"""Symbols that a shared object imports from libraries that compute. No spelling in a source can hide them."""

from __future__ import annotations

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
    r"|(?:GOMP|omp|__kmpc|pthread|__pthread|sem)_\w+|Sleef_\w+|__(?:cpu_model|cpu_indicator_init|cpu_features2)"
    r"|__(?:trunc|extend|fix|float|mul|div|udiv|mod|umod|add|sub|neg|pow|popcount|clz|ctz|parity|bswap|cmp|ucmp|ash|lsh)\w+"
    # The mathematics, memory, text and clocks of C.
    r"|(?:__)?(?:a?(?:sin|cos|tan)h?|sincos|atan2|exp(?:2|10|m1)?|log(?:2|10|1p|b)?|pow|sqrt|cbrt|fabs|fma|fmax|fmin|fmod|fdim"
    r"|floor|ceil|trunc|(?:ll?)?r(?:int|ound)|roundeven|nearbyint|erfc?|[lt]gamma|hypot|copysign|ldexp|frexp|modf|remainder|remquo"
    r"|nextafter|nexttoward|nan|scalb(?:l?n)?|ilogb|isnan|isinf|finite|signbit|fpclassify|[jy][01n])[fl]?(?:_r|_finite)?"
    r"|(?:__)?(?:mem|str|wcs|wmem)[a-z_]+|(?:__)?v?(?:s|sn|f)?w?printf(?:_chk)?|__isoc\d+_\w+|is[a-z]+|to(?:upper|lower)|__ctype_\w+"
    r"|(?:m|c|re)alloc|free|posix_memalign|aligned_alloc|malloc_usable_size|f?put[cs]|putchar|fwrite|fflush|std(?:out|err|in)|perror"
    r"|ato(?:i|l|ll|f)|l?l?abs|l?l?div|qsort|bsearch|s?rand(?:om)?(?:_r)?|[de]rand48|abort|exit|_exit|atexit|getenv"
    r"|__(?:errno_location|stack_chk_fail|assert_fail|tls_get_addr|libc_single_threaded|sched_\w+)|sched_\w+|sysconf|get_nprocs\w*"
    r"|clock(?:_gettime)?|gettimeofday|time|difftime|(?:nano|u)?sleep|madvise|fe[gs]et(?:env|round)|fe\w+except"
    # Python, pybind11, and the part of torch that holds tensors and registers functions.
    rf"|_?Py\w+|THP\w+|\w*8pybind11\w*|{_NESTED}(?:3c10|6caffe2)\w+|_ZN3c10\w+|_Z[lr]sRSo\w+"
    rf"|{_NESTED}5torch(?:7Library|11CppFunction|8autograd|6detail|10class_base|16PyWarningHandler|29translate)\w+"
    rf"|{_NESTED}2at(?:6Tensor|10TensorBase|11TensorMaker|14TensorIterator|18TensorIterator|20TensorIterator|8internal|6detail)\w+"
    rf"|{_NESTED}2at(?:7Context|13globalContext|15get_num_threads|14get_thread_num|18in_parallel_region|16init_num_threads)\w+"
    rf"|{_NESTED}2at(?:5print|9Generator|7indexing|ls)\w+|_ZN2atls\w+"
)
"""Symbols that an extension for the CPU may import without being listed."""
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
        language: of the extension. For `cpp`, every import that is not known to be harmless is returned, such as
            functions of the loader and calls of Python's objects; for device code, the imports that compute.

    Returns:
        Operators of torch as `aten::NAME`, others by their names; empty if the file is not a 64-bit ELF file.
    """
    found = set()
    for name, is_defined in _looked_up(Path(path).read_bytes()):
        operator = _OF_TORCH.match(name)
        if operator is not None:
            found.add(f"aten::{operator[2][: int(operator[1][:_MOST_DIGITS])]}")
        elif _computes(name) or (language == "cpp" and not is_defined and not is_plain(name)):
            found.add(_readable(name[:_MOST_READ]))
    return sorted(found)


def _computes(name: str) -> bool:
    return bool(_WORD.fullmatch(name) and (_VENDOR.fullmatch(name) or _OTHER_ROUTES.fullmatch(name)))


def is_plain(name: str) -> bool:
    """Whether an extension for the CPU may import a symbol with this name without being listed."""
    return bool(_WORD.fullmatch(name) and _PLAIN.fullmatch(name)) and not _OF_OBJECTS.fullmatch(name)


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
                if name and (section == 0 or (index, number) in used):
                    begin = names + name
                    yield content[begin : content.index(b"\0", begin)].decode("ascii", "replace"), section != 0
    except (struct.error, ValueError, IndexError):
        # The output of a linker is complete; another file has no imports.
        return
