"""Refuses sources and flags that a compiler must not get, before one is started.

The compilers do not see the files of the user (`compilers`), so no directive of a source is refused. Options are
refused: with some, a compiler writes unexpected files or executes other programs.
"""

from __future__ import annotations

import re

from kernelrl_build.inline_request import InlineRequest
from kernelrl_build.lexing import tokens

__all__ = ["PASSING", "Denied", "screen"]


class Denied(Exception):
    """The request has a part that is not allowed; the text names it."""


_HOST_FLAGS = re.compile(
    r"-(?:O[0-3sg]|Ofast|g\d?|w|W[\w=+-]*|f(?!plugin|sanitize|profile|dump|file|macro|debug-prefix|working|pre|input-charset|modules|module-|directives)[\w=+-]+"
    r"|m(?:arch|tune|avx\w*|fma|sse[\w.]*|prefer-vector-width|no-[\w-]+)(?:=[\w+.-]+)?|D\w+(?:=[\w.+\"'-]*)?|U\w+"
    r"|std=(?:c|gnu)\+\+\w+|pthread|pipe|pedantic|ansi)"
)
_DEVICE_FLAGS = re.compile(
    r"-(?:O[0-3]|g|G|lineinfo|w|W[\w=-]*|use_fast_math|-use_fast_math|-expt-[\w-]+|-extended-lambda|-expt-extended-lambda"
    r"|-maxrregcount[= ]?\d*|maxrregcount[= ]?\d*|-ftz=\w+|-prec-div=\w+|-prec-sqrt=\w+|-fmad=\w+|ftz=\w+|prec-div=\w+"
    r"|prec-sqrt=\w+|fmad=\w+|-default-stream[= ]?[\w-]+|-ptxas-options=[\w=,.-]+|Xptxas=?[\w=,.-]*|-resource-usage"
    r"|-generate-line-info|-restrict|restrict|-relaxed-constexpr|-diag-suppress[= ]?\d*|diag-suppress[= ]?\d*"
    r"|std=c\+\+\w+|-std=c\+\+\w+|D\w+(?:=[\w.+\"'-]*)?|U\w+|-threads[= ]?\d*|t=?\d*|-split-compile[= ]?\d*|lto|dlto"
    r"|arch=\w+|-gpu-architecture=\w+|gencode=?[\w=,]*|-generate-code=?[\w=,]*|f(?:fast-math|no-[\w-]+|unroll-loops|gpu-[\w-]+)"
    r"|munsafe-fp-atomics|m[\w-]+(?:=\w+)?|ffp-contract=\w+)"
)
_VALUES = re.compile(r"[\w=,.+-]+")
PASSING = {"-Xcompiler", "--compiler-options"}
"""Options of nvcc whose value is for the host compiler."""
_WITH_VALUE = {*PASSING, "-Xptxas", "--ptxas-options", "-gencode", "-maxrregcount"}
_LINKER_FLAGS = re.compile(
    r"-l(?:cublas|cublasLt|cudart|cuda|curand|cufft|cusparse|cudnn|nvrtc|cusolver|c10|c10_cuda|torch|torch_cpu|torch_cuda"
    r"|m|gomp|pthread|dl|rt)|-fopenmp|-pthread|-O[0-3]|-s|-shared|-Wl,--no-as-needed"
)
_FUNCTION = re.compile(r"[A-Za-z_][\w:]*(?:<[\w:, ]+>)?")
_DEEPEST, _LONGEST = 1_000, 10_000
_TOOLKIT = re.compile(r"/(?:usr/local/cuda(?:-[\d.]+)?|opt/rocm(?:-[\d.]+)?)/(?:include|lib64|lib)/?")
"""Directories that the compilers search in any case."""


def screen(request: InlineRequest) -> None:
    """Refuse a request with a part that is not allowed.

    Raises:
        Denied: with the name of the part.
        Unreadable: a comment or a raw string of a source is never closed.
    """
    for label, sources in (("main.cpp", request.cpp_sources), ("cuda.cu", request.device_sources)):
        for source in sources:
            _screen_depth(source, label)
    for name, _ in request.functions:
        if not _FUNCTION.fullmatch(name):
            raise Denied(f"functions: {name[:80]!r} is not the name of a function")
    for path in request.include_paths:
        if path.strip() and not _TOOLKIT.fullmatch(path.strip()):
            raise Denied(f"extra_include_paths is not allowed: {path!r}")
    _screen_flags(request.cflags, "extra_cflags", _HOST_FLAGS)
    _screen_flags(request.device_flags, "extra_cuda_cflags", _DEVICE_FLAGS)
    for word in request.ldflags:
        if not _LINKER_FLAGS.fullmatch(word) and not (word[:2] == "-L" and _TOOLKIT.fullmatch(word[2:])):
            raise Denied(f"extra_ldflags: {word!r} is not allowed")


def _screen_flags(flags: tuple[str, ...], label: str, allowed: re.Pattern[str]) -> None:
    option = ""
    for word in flags:
        if not option and word in _WITH_VALUE:
            option = word
            continue
        name, _, value = (option, "", word) if option else word.partition("=")
        if name in PASSING:
            fits = all(_HOST_FLAGS.fullmatch(part) for part in value.strip("'\"").split(","))
        elif option:
            fits = _VALUES.fullmatch(word) is not None
        else:
            fits = bool(allowed.fullmatch(word) or (word[:2] == "-I" and _TOOLKIT.fullmatch(word[2:])))
        if not fits:
            raise Denied(f"{label}: {word!r} is not allowed")
        option = ""


def _screen_depth(source: str, label: str) -> None:
    """Refuse expressions so deep or long that a compiler needs a minute for them and then crashes."""
    depth = angles = length = 0
    for token in tokens(source):
        length += not token.blank and token.kind != "directive"
        if token.kind == "mark":
            depth += (token.text in "([{") - (token.text in ")]}")
            angles += (token.text == "<") - (token.text == ">")
            if token.text in ";{},":
                angles, length = angles if token.text == "," else 0, 0
        if max(depth, angles) > _DEEPEST:
            raise Denied(f"{label}:{token.line}: brackets may be nested {_DEEPEST} deep at most")
        if length > _LONGEST:
            raise Denied(f"{label}:{token.line}: an expression may have {_LONGEST} tokens at most")
