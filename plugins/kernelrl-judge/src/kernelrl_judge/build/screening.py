"""Refuses sources and flags that a compiler must not get, before one is started.

The compilers run where the files of others do not exist (`confined`), so this is not what keeps them safe. It says
plainly what is wrong, where a compiler would only say that a file is not there.
"""

from __future__ import annotations

import mmap
import re
from pathlib import Path

from kernelrl_judge.build.lexing import Token, Unreadable, as_read, tokens
from kernelrl_judge.build.request import InlineRequest

__all__ = ["Denied", "screen", "screen_assembly"]


class Denied(Exception):
    """The request asks for something that is not allowed; the text names it."""


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
_WITH_VALUE = {"-Xcompiler", "--compiler-options", "-Xptxas", "--ptxas-options", "-gencode", "-maxrregcount"}
_LINKER_FLAGS = re.compile(
    r"-l(?:cublas|cublasLt|cudart|cuda|curand|cufft|cusparse|cudnn|nvrtc|cusolver|c10|c10_cuda|torch|torch_cpu|torch_cuda"
    r"|m|gomp|pthread|dl|rt)|-fopenmp|-pthread|-O[0-3]|-s|-shared|-Wl,--no-as-needed"
)
_FUNCTION = re.compile(r"[A-Za-z_][\w:]*(?:<[\w:, ]+>)?")
_PRAGMA = re.compile(r"\bGCC\s+(?:plugin|pch_preprocess|dependency)\b")
_READS = re.compile(rb"^.*\.(?:include|incbin|macro|irpc?|altmacro|mri)(?!\w).*$", re.IGNORECASE | re.MULTILINE)
"""Lines of assembly that read files, or may put together a directive that does."""
_DATA = re.compile(rb'\s*\.(?:string|ascii|asciz)\s+"(?:[^"\\]|\\.)*"\s*')
_OTHER_MARK = "directives that begin with something else than # are not allowed"
_DEEPEST, _LONGEST = 1_000, 10_000
_TOOLKIT = re.compile(r"/(?:usr/local/cuda(?:-[\d.]+)?|opt/rocm(?:-[\d.]+)?)/(?:include|lib64|lib)/?")
"""Directories that the compilers search anyhow; naming them changes nothing."""


def screen(request: InlineRequest) -> None:
    """Refuse what is not allowed.

    Raises:
        Denied: with the name of it.
    """
    for label, sources in (("main.cpp", request.cpp_sources), ("cuda.cu", request.device_sources)):
        for source in sources:
            _screen_source(source, label)
    for name, _ in request.functions:
        if not _FUNCTION.fullmatch(name):
            raise Denied(f"functions: {name[:80]!r} is not the name of a function")
    for path in request.include_paths:
        if path.strip() and not _TOOLKIT.fullmatch(path.strip()):
            raise Denied(f"extra_include_paths is not allowed: {path!r}")
    _screen_flags(request.cflags, "extra_cflags", _HOST_FLAGS)
    _screen_flags(request.device_flags, "extra_cuda_cflags", _DEVICE_FLAGS)
    for flag in request.ldflags:
        for word in flag.split():
            if not _LINKER_FLAGS.fullmatch(word) and not (word[:2] == "-L" and _TOOLKIT.fullmatch(word[2:])):
                raise Denied(f"extra_ldflags: {word!r} is not allowed")


def screen_assembly(file: Path) -> None:
    """Refuse assembly, as a compiler makes it of a source, that reads files: macros may have put the words together.

    Raises:
        Denied: with the line.
    """
    with open(file, "rb") as opened, mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ) as text:
        for found in _READS.finditer(text):
            if not _DATA.fullmatch(found[0]):
                line = " ".join(found[0].decode("utf-8", "replace").split())
                raise Denied(f"files and macros are not allowed in assembly: {line[:200]}")


def _screen_flags(flags: tuple[str, ...], label: str, allowed: re.Pattern[str]) -> None:
    expected = ""
    for flag in flags:
        for word in flag.split():
            if expected in ("-Xcompiler", "--compiler-options"):
                if not all(_HOST_FLAGS.fullmatch(part) for part in word.strip("'\"").split(",")):
                    raise Denied(f"{label}: {word!r} is not allowed")
            elif expected:
                if not _VALUES.fullmatch(word):
                    raise Denied(f"{label}: {word!r} is not allowed")
            elif word in _WITH_VALUE:
                expected = word
                continue
            elif word.partition("=")[0] in ("-Xcompiler", "--compiler-options"):
                if not all(_HOST_FLAGS.fullmatch(part) for part in word.partition("=")[2].strip("'\"").split(",")):
                    raise Denied(f"{label}: {word!r} is not allowed")
            elif not allowed.fullmatch(word) and not (word[:2] == "-I" and _TOOLKIT.fullmatch(word[2:])):
                raise Denied(f"{label}: {word!r} is not allowed")
            expected = ""


def _screen_source(source: str, label: str) -> None:
    if re.search(r"^[ \t]*\?\?=", source, re.MULTILINE):
        raise Denied(f"{label}: {_OTHER_MARK}")
    try:
        as_read(source)
        found = tokens(source)
    except Unreadable as why:
        raise Denied(f"{label}: {why}") from None
    _screen_depth(found, label)
    said, before = "", ""
    for token in found:
        if token.kind == "string":
            # Strings that stand side by side are one.
            said += _unescaped(token.text)
            if re.search(r"\.\s*inc(?:bin|lude)", said):
                raise Denied(f"{label}:{token.line}: .incbin and .include are not allowed in assembly")
            if before == "_Pragma(" and (match := _PRAGMA.search(said)):
                raise Denied(f"{label}:{token.line}: _Pragma({' '.join(match.group().split())}) is not allowed")
            continue
        if not token.blank:
            said = ""
            before = "_Pragma" if token.text == "_Pragma" else f"{before}(" if token.text == "(" else ""
        if token.kind == "directive":
            _screen_directive(token, label)
        elif token.kind == "name" and token.text in ("__has_include", "__has_include_next", "__has_embed"):
            raise Denied(f"{label}:{token.line}: {token.text} is not allowed")


def _screen_depth(found: list[Token], label: str) -> None:
    """A compiler that goes into such depths takes a minute, and ends by a fault."""
    depth = angles = length = 0
    for token in found:
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


def _leads_out(path: str) -> bool:
    path = _unescaped(f'"{path}"')
    return path.startswith("/") or ".." in path.split("/")


def _unescaped(text: str) -> str:
    """What a string literal stands for, as far as hexadecimal and octal escapes go."""
    inner = text[text.index('"') + 1 : -1]
    return re.sub(
        r"\\(?:x([0-9a-fA-F]{1,2})|([0-7]{1,3})|\r?\n)",
        lambda match: chr(int(match[1], 16) if match[1] else int(match[2], 8)) if match[1] or match[2] else "",
        inner,
    )


def _screen_directive(token: Token, label: str) -> None:
    text = re.sub(r"/\*[\s\S]*?\*/", " ", token.text)
    where = f"{label}:{token.line}"
    if text.startswith("%:"):
        raise Denied(f"{where}: {_OTHER_MARK}")
    match = re.match(r"#\s*(include_next|include|import|embed)\b\s*(.*)", text)
    if match is not None:
        what = match.group(2).strip()
        path = re.match(r'[<"]([^>"]*)[>"]', what)
        if match.group(1) != "include" or path is None:
            raise Denied(f"{where}: #{match.group(1)} of anything but a named header is not allowed")
        if _leads_out(path.group(1)):
            raise Denied(f"{where}: #include of a file outside of the toolchain is not allowed: {path.group(1)}")
    elif re.match(r"#\s*(?:line\b|\d)", text):
        place = re.fullmatch(r'#\s*(?:line\b)?\s*\d+\s*(?:"([^"]*)"[\s\d]*)?', text)
        if place is None or _leads_out(place.group(1) or ""):
            # The compiler would quote it beside its messages.
            raise Denied(f"{where}: #line with anything but a number and a name is not allowed")
    elif "ragma" in text and _PRAGMA.search(text):
        raise Denied(f"{where}: {' '.join(text.split())} is not allowed")
    elif re.search(r"\b__has_(?:include|embed)", text):
        raise Denied(f"{where}: __has_include is not allowed")
    elif re.search(r"\.\s*inc(?:bin|lude)", _unescaped(f'"{text}"')):
        raise Denied(f"{where}: .incbin and .include are not allowed in assembly")
