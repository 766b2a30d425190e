"""Decides whether an error of a compiler is a mistake in the sources or may come from the split of the sources."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

import attrs

from kernelrl_build.inline_request import InlineRequest
from kernelrl_build.prepare import Prepared
from kernelrl_build.splitting import Split, of_torch

__all__ = ["FUNCTIONS_FILE", "CompileError", "Diagnosis", "NotCertain", "other_language"]

FUNCTIONS_FILE = "functions"
"""File name, in messages of compilers, of the lines that are generated from the argument `functions`."""

_NOISE = re.compile(r"ptxas info|\s+0 bytes|In file included from |\s+from .*[,:]$")
_SEAM = re.compile(
    r"\bcuda[A-Z_]\w*|\bhip[A-Z]\w*|\bkernelrl(?!_prelude)\w*|\bdim3\b|declared using local type"
    # Functions that CUDA's headers declare for the host part, for nvcc alone.
    r"|[‘'](?:r?(?:sqrt|cbrt|hypot)|r?norm[34]d|(?:sin|cos|sincos)pi|exp10|erfc?inv|erfcx|normcdf(?:inv)?|fdivide)f?[’']"
    r"|[‘'](?:u|ll|ull)(?:min|max)[’']"
)
_OF_ONE_PART = re.compile(
    r"(?:declared|used|referenced) but (?:never|not) defined|undefined reference|[Uu]nresolved extern"
    # A declaration of common types that g++ does not read where a device compiler does.
    r"|expected initializer before [‘'`]at[’']"
)
"""Errors that one part of a split source can have alone. Others of these forms are rare, because the next route takes
long."""
_NO_HEADER = re.compile(
    r'(?:cannot open source file "|fatal error: [\'‘]?)([\w./+-]+)(?:"|[\'’]?(?:: No such file| file not found))'
)
_SHOWN_SOURCE = re.compile(r"^\s*\d*\s*\|.*\n?|^In file included.*\n?|^\s+from .*\n?", re.MULTILINE)
_TORCH_NAMESPACES = re.compile(r"^[ \t]*using\s+namespace\s+(?:at|torch|c10|pybind11|std)\b[\w:]*\s*;", re.MULTILINE)
_ERROR_FILES = re.compile(r"^([\w.]+):[\d:]+ (?:fatal )?error: ", re.MULTILINE)
_QUOTED = r"[‘'`](?:\w+::)*(\w+)[’']"
_UNKNOWN_NAMES = re.compile(
    r'identifier "(?:\w+::)*(\w+)" is undefined|name(?:space)? "[\w:]+" has no (?:actual )?member "(\w+)"'
    r'|"(\w+)" is not a (?:type name|template|class or namespace name)'
    rf"|{_QUOTED} (?:was not declared|is not a member|has not been declared|does not name a)"
    r"|(?:use of undeclared identifier|no member named|unknown type name) '(\w+)'"
    r"|incomplete type|cannot open source file|No such file|file not found"
)
_WRONG_OVERLOADS = re.compile(
    r'calling a __\w+__ function\("?(?:\w+::)*(\w+)|no instance of [\w ]+ "(?:\w+::)*(\w+)'
    r"|no matching function for call to [‘'`](?:\w+::)*(\w+)"
)
"""Errors about a function whose overload may be in the other part."""

_NOT_DECLARED = re.compile(
    rf"^{FUNCTIONS_FILE}:[\d:]+ error: {_QUOTED} (?:was not declared|has not been)[^;\n]*(;.*)?$"
)
_OF_FUNCTIONS = re.compile(rf"{FUNCTIONS_FILE}(?::\d+)*:")
_EXCERPT = re.compile(r"\s*(?:\d+\s*)?\|")
_OTHERS = {"cuda": ("hip", r"hip/[\w./]+", r"\bhip"), "hip": ("cuda", r"cuda\w*\.h", r"\bcuda\w*\.h\b")}
"""Language of a build -> backend of the other language, its headers, and the words of errors about it."""


class NotCertain(Exception):
    """Another route has to be taken; the text is the reason.

    Args:
        whole: whether it must be the route `ordinary`, because every other one would repeat the error.
    """

    def __init__(self, reason: str, *, whole: bool = False) -> None:
        super().__init__(reason)
        self.whole = whole


class CompileError(Exception):
    """The sources do not compile. The text is the compiler's diagnosis, with the file names of the sources."""


@attrs.frozen
class Diagnosis:
    """Reads the output of the compilers of one build.

    Args:
        probe: compiles a unit after torch's whole header and returns the output of the compiler.
    """

    request: InlineRequest
    prepared: Prepared
    directory: Path
    probe: Callable[[str], str]

    def fail(self, log: str, parts: Sequence[Split], *, final: bool, whole: bool, device: bool = False) -> None:
        """Raise the error that the log of a compiler means.

        Args:
            final: whether no other route follows.
            whole: whether only the route `ordinary` reads more of torch's headers.
            device: whether the device compiler wrote the log.

        Raises:
            CompileError: a mistake in the sources.
            NotCertain: the split of the sources may have caused the error.
        """
        if not final:
            self._require_certain(_SHOWN_SOURCE.sub("", log), parts, whole=whole, device=device)
        raise CompileError(self.own(log))

    def _require_certain(self, messages: str, parts: Sequence[Split], *, whole: bool, device: bool) -> None:
        """Raise `NotCertain` if the split may have caused an error."""
        if set(_ERROR_FILES.findall(messages)) == {"binding.cpp"}:
            raise NotCertain("a type is not what it seemed")
        # After an instance, an error in the lines of the kernel itself is a mistake in the sources.
        if device and re.search(r"^instances\.cu[(:]\d", messages, re.MULTILINE):
            raise NotCertain("an instance of a kernel cannot be named", whole=True)
        if "Assembler messages:" in messages or self._lacks_header(messages):
            return
        if parts and not device and (seam := _SEAM.search(messages)):
            # The headers of the runtime declare more for the device compiler than for another one.
            raise NotCertain(f"an error about {seam.group()}", whole=True)
        if parts and (of_one_part := _OF_ONE_PART.search(messages)):
            raise NotCertain(f"an error of one part: {of_one_part.group()}", whole=True)
        names_elsewhere = {name for part in parts for name in (part.host_names if device else part.device_names)}
        unknown = [next(filter(None, match.groups()), "") for match in _UNKNOWN_NAMES.finditer(messages)]
        if unknown and device and any(part.further_headers for part in parts):
            raise NotCertain(f"{unknown[0]} may be a name of torch's", whole=True)
        without_overload = [next(filter(None, match.groups())) for match in _WRONG_OVERLOADS.finditer(messages)]
        for name in (*unknown, *without_overload):
            if name in names_elsewhere:
                raise NotCertain(f"{name} belongs to the other part", whole=True)
        known = self.prepared.known_names() if unknown else frozenset()
        doubtful = {name for name in unknown if not name or name.encode() in known}
        if doubtful and (visible := self._visible(doubtful, messages)):
            raise NotCertain(f"{min(visible) or 'a header'} is not known without torch's headers", whole=whole)

    def _lacks_header(self, messages: str) -> bool:
        """Whether a compiler misses a header that no directory of the toolchain contains."""
        missing = _NO_HEADER.findall(messages)
        if not missing:
            return False
        header = missing[0]
        if header.startswith("/"):
            return True
        directories = [Path(path) for path in self.prepared.toolchain.include_dirs]
        return not any((path / below / header).exists() for path in directories for below in ("", "cccl"))

    def _visible(self, names: set[str], log: str) -> set[str]:
        """The names that a compiler reports as unknown and that torch's headers may declare.

        A header is full of common names (parameters, members) that no other source can see. A small unit tests which
        names are declared outside of any namespace.
        """
        plain = {
            name
            for name in names
            if name
            and not re.search(rf"member \"{name}\"|{_quotes(name)} is not a member|error: [^\n]*::{name}\b", log)
        }
        certain = names - plain
        if certain:
            return certain
        request = self.request
        if request.device_only:
            # The test needs a precompiled header, which no other step of such a build needs.
            return {name for name in plain if of_torch([name])}
        opened = [
            found.group()
            for text in (*request.cpp_sources, *request.device_sources)
            for found in _TORCH_NAMESPACES.finditer(text)
        ]
        lines = [*dict.fromkeys(opened)]
        for index, name in enumerate(sorted(plain)):
            lines += [f"#ifndef {name}", f"namespace kernelrl_probe_{index} {{ using ::{name}; }}"]
            lines += ["#else", f"#error kernelrl defines {name}", "#endif"]
        messages = self.probe("\n".join(lines) + "\n")
        return {
            name for name in plain if not re.search(rf"{_quotes(f'(?:::)?{name}')} has not been declared", messages)
        }

    def own(self, log: str) -> str:
        """The output of compilers without the paths of this machine."""
        log = log.replace(str(self.directory) + "/", "").replace('"device0.cu"', '"cuda.cu"')
        for path in self.prepared.toolchain.include_dirs:
            log = log.replace(path + "/", "")
        log = re.sub(r"(?<![\w.+-])(?:/[\w.+-]+)+/(?=[\w.+-]+[:(])", "", log)
        lines = (line for line in log.splitlines() if not _NOISE.match(line))
        return "\n".join(_in_terms_of_functions(lines))


def other_language(request: InlineRequest, log: str) -> str:
    """A line on a source that is written for the other kind of GPU; empty if that is not the reason of the errors."""
    here = request.language
    other, header, words = _OTHERS.get(here, ("", "", ""))
    for source in request.device_sources if other and re.search(words, log) else ():
        if found := re.search(rf"^[ \t]*#[ \t]*include[ \t]*[<\"]({header})", source, re.MULTILINE):
            line = source.count("\n", 0, found.start()) + 1
            return (
                f"cuda.cu:{line}: error: <{found[1]}> is {other.upper()}, which backend {here} does not compile; "
                f"use backend {other} (-b {other}), or write {here.upper()}"
            )
    return ""


def _in_terms_of_functions(lines: Iterable[str]) -> Iterator[str]:
    """The lines with messages on the argument `functions`, in the place of those on the lines generated from it."""
    about = False
    for line in lines:
        if about and _EXCERPT.match(line):
            continue
        about = bool(_OF_FUNCTIONS.match(line))
        if (missing := _NOT_DECLARED.match(line)) and not missing[1].startswith("pybind11_"):
            yield f"functions names {missing[1]!r}, which cpp_sources neither declares nor defines{missing[2] or ''}"
        # Messages of g++ on the enclosing function, and on the missing module, do not help.
        elif not about or (": error:" in line and "pybind11_" not in line):
            yield line


def _quotes(pattern: str) -> str:
    return rf"[‘'`]{pattern}[’']"
