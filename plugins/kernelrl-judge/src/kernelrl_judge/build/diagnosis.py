"""Decides whether an error of a compiler is the candidate's, or comes from splitting its source."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

import attrs

from kernelrl_judge.build.prepare import Prepared
from kernelrl_judge.build.splitting import Split, of_torch
from kernelrl_judge.build.store import InlineRequest

__all__ = ["FUNCTIONS_FILE", "CompileError", "Diagnosis", "NotCertain", "other_language"]

FUNCTIONS_FILE = "functions"
"""What compilers call the lines that are made of the argument `functions`."""

_NOISE = re.compile(r"ptxas info|\s+0 bytes|In file included from |\s+from .*[,:]$")
_SEAM = re.compile(
    r"\bcuda[A-Z_]\w*|\bhip[A-Z]\w*|\bkernelrl(?!_prelude)\w*|\bdim3\b|declared using local type|used but never defined"
    # Functions that CUDA's headers give the host part, for their own compiler alone.
    r"|[‘'](?:r?(?:sqrt|cbrt|hypot)|r?norm[34]d|(?:sin|cos|sincos)pi|exp10|erfc?inv|erfcx|normcdf(?:inv)?|fdivide)f?[’']"
    r"|[‘'](?:u|ll|ull)(?:min|max)[’']"
)
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
"""Errors about a function of which the other part may have the overload that is meant."""

_NOT_DECLARED = re.compile(
    rf"^{FUNCTIONS_FILE}:[\d:]+ error: {_QUOTED} (?:was not declared|has not been)[^;\n]*(;.*)?$"
)
_OF_FUNCTIONS = re.compile(rf"{FUNCTIONS_FILE}(?::\d+)*:")
_EXCERPT = re.compile(r"\s*(?:\d+\s*)?\|")
_OTHERS = {"cuda": ("hip", r"hip/[\w./]+", r"\bhip"), "hip": ("cuda", r"cuda\w*\.h", r"\bcuda\w*\.h\b")}
"""Language of a build -> backend of the other one, its headers, and how errors speak of it."""


class NotCertain(Exception):
    """Another route has to be taken; the text is why.

    Args:
        whole: whether that is the ordinary one, because all others would repeat the error.
    """

    def __init__(self, why: str, *, whole: bool = False) -> None:
        super().__init__(why)
        self.whole = whole


class CompileError(Exception):
    """The candidate does not compile; the text is what the compiler says, in the candidate's own file names."""


@attrs.frozen
class Diagnosis:
    """Reads what compilers say of one build.

    Args:
        probe: compiles a unit against torch's whole header and returns what the compiler says of it.
    """

    request: InlineRequest
    prepared: Prepared
    directory: Path
    probe: Callable[[str], str]

    def fail(self, log: str, parts: Sequence[Split], *, final: bool, whole: bool, device: bool = False) -> None:
        """Decide whose error a compiler found.

        Args:
            whole: whether more of torch's headers are read on the ordinary route alone.

        Raises:
            CompileError: the candidate's.
            NotCertain: it may come from taking the source apart.
        """
        if not final:
            said = _SHOWN_SOURCE.sub("", log)
            if set(_ERROR_FILES.findall(said)) == {"binding.cpp"}:
                raise NotCertain("a type is not what it seemed")
            # An error in a kernel's own lines that an instance leads to is the candidate's.
            if device and re.search(r"^instances\.cu[(:]\d", said, re.MULTILINE):
                raise NotCertain("an instance of a kernel cannot be named", whole=True)
            if "Assembler messages:" in said:
                raise CompileError(self.own(log))
            missing = _NO_HEADER.findall(said)
            if missing and not any(
                (Path(path) / below / missing[0]).exists()
                # An absolute path is that of no header of torch.
                for path in (self.prepared.toolchain.include_dirs if missing[0][0] != "/" else ())
                for below in ("", "cccl")
            ):
                raise CompileError(self.own(log))
            if parts and not device and (seam := _SEAM.search(said)):
                # The runtime's headers offer the device compiler more than they offer another one.
                raise NotCertain(f"an error about {seam.group()}", whole=True)
            elsewhere = {name for part in parts for name in (part.host_names if device else part.device_names)}
            unknown = [next(filter(None, match.groups()), "") for match in _UNKNOWN_NAMES.finditer(said)]
            if unknown and device and any(part.further_headers for part in parts):
                raise NotCertain(f"{unknown[0]} may be a name of torch's", whole=True)
            others = [next(filter(None, match.groups())) for match in _WRONG_OVERLOADS.finditer(said)]
            for name in (*unknown, *others):
                if name in elsewhere:
                    raise NotCertain(f"{name} belongs to the other part", whole=True)
            known = self.prepared.known_names() if unknown else frozenset()
            doubtful = {name for name in unknown if not name or name.encode() in known}
            if doubtful and (visible := self._visible(doubtful, said)):
                raise NotCertain(f"{min(visible) or 'a header'} is not known without torch's headers", whole=whole)
        raise CompileError(self.own(log))

    def _visible(self, names: set[str], log: str) -> set[str]:
        """Those of some names, of which a compiler said that they are unknown, that torch's headers may make known.

        A header is full of common names (parameters, members) that nobody outside can see: a small unit asks which
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
            # To ask takes a precompiled header, which no other part of such a build needs.
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
        said = self.probe("\n".join(lines) + "\n")
        return {name for name in plain if not re.search(rf"{_quotes(f'(?:::)?{name}')} has not been declared", said)}

    def own(self, log: str) -> str:
        """What compilers say, without the paths of this machine."""
        log = log.replace(str(self.directory) + "/", "").replace('"device0.cu"', '"cuda.cu"')
        for path in self.prepared.toolchain.directories():
            log = log.replace(path + "/", "")
        log = re.sub(r"(?<![\w.+-])(?:/[\w.+-]+)+/(?=[\w.+-]+[:(])", "", log)
        lines = (line for line in log.splitlines() if not _NOISE.match(line))
        return "\n".join(_in_terms_of_functions(lines))


def other_language(request: InlineRequest, log: str) -> str:
    """What is wrong with a source for the other kind of GPU, in a line; empty where that is not what compilers say."""
    here = request.language
    other, header, speaks = _OTHERS.get(here, ("", "", ""))
    for source in request.device_sources if other and re.search(speaks, log) else ():
        if found := re.search(rf"^[ \t]*#[ \t]*include[ \t]*[<\"]({header})", source, re.MULTILINE):
            line = source.count("\n", 0, found.start()) + 1
            return (
                f"cuda.cu:{line}: error: <{found[1]}> is {other.upper()}, which backend {here} does not compile; "
                f"use backend {other} (-b {other}), or write {here.upper()}"
            )
    return ""


def _in_terms_of_functions(lines: Iterable[str]) -> Iterator[str]:
    """Messages on the lines made of the argument `functions`, as messages on the argument."""
    about = False
    for line in lines:
        if about and _EXCERPT.match(line):
            continue
        about = bool(_OF_FUNCTIONS.match(line))
        if (missing := _NOT_DECLARED.match(line)) and not missing[1].startswith("pybind11_"):
            yield f"functions names {missing[1]!r}, which cpp_sources neither declares nor defines{missing[2] or ''}"
        # What g++ says of the function around them, and of the module that is not made, is of no use.
        elif not about or (": error:" in line and "pybind11_" not in line):
            yield line


def _quotes(pattern: str) -> str:
    return rf"[‘'`]{pattern}[’']"
