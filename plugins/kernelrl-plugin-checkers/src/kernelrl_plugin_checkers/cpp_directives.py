"""Directives of C++ that honest kernels do not need: headers, pragmas, conditions and macros."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Protocol

from kernelrl_plugin_checkers.cpp_names import CppNames, Seen
from kernelrl_plugin_checkers.cpp_preprocessor import PASTED
from kernelrl_plugin_checkers.cpp_tokens import Token, tokens
from kernelrl_plugin_checkers.cpp_vocabulary import CONDITIONS, HEADERS, KEYWORDS, PRAGMAS, ROOTS, UNQUALIFIED, words

__all__ = ["LooksAtMacros", "unusual_directives"]

_DIRECTIVE = re.compile(r"(?:#|%:)[ \t]*+(\w*+)[ \t]*+([\s\S]*)")
_INCLUDED = re.compile(r"[<\"]([^<>\"]*)[>\"]\s*")
_DEFINED = re.compile(r"(\w++)(\(([^)]*)\))?([\s\S]*)")
_NAME = re.compile(r"[A-Za-z_]\w*+")
_CALL = re.compile(r"\b([A-Za-z_]\w*+)(?=\s*\()")
_POINTS = frozenset({".", "->", "::"})
_BLANKS = re.compile(r"[\s\0]++")
_PASTED_END = re.compile(rf" ?## ?(?:{'|'.join(PASTED)})\b")
_PASTED_ALONE = re.compile(rf"(?:[^#%]|#(?!#)|%(?!:)|## ?(?:{'|'.join(PASTED)})\b)*+")
_CONSTANT = re.compile(r"[\s()]*+-?[\d.][-+\w.]*+[\s()]*+|\s*__\w+__\s*|\s*inline\s*|\s*")
_CLAUSES = words("""
private firstprivate lastprivate shared reduction schedule collapse num_threads default if safelen simdlen aligned
linear proc_bind copyin hint inclusive exclusive order critical declare simd ordered nontemporal uniform atomic
initializer depend static dynamic guided
""")
"""Of OpenMP, with arguments."""


class LooksAtMacros(Protocol):
    """What looks at the tokens of a macro."""

    def of_macro(self, body: Sequence[Token], own: frozenset[str]) -> Iterator[Seen]:
        """What is unusual in the body of a macro.

        Args:
            own: parameters and names that the macro declares.
        """
        ...


def unusual_directives(directives: Sequence[Token], names: CppNames, look: LooksAtMacros) -> Iterator[Seen]:
    """What directives name or do that is neither on the lists nor of the source."""
    for token in directives:
        match = _DIRECTIVE.match(token.text)
        word, rest = (match[1], match[2]) if match else ("", "")
        note: str | None = None
        if word == "include":
            header = _INCLUDED.fullmatch(rest)
            if header is None or (HEADERS.fullmatch(header[1]) is None):
                note = f"the header {rest.strip()[:60]}; include those of torch, the device, math and containers"
        elif word == "pragma":
            if PRAGMAS.match(rest) is None:
                note = f"the pragma {rest.strip()[:40]}; unroll, omp and warnings are enough"
            elif rest.lstrip().startswith("omp"):
                yield from _of_pragma(token, rest, names)
        elif word == "define":
            yield from _of_macro(token, rest, names, look)
        elif word in ("if", "ifdef", "ifndef", "elif", "elifdef", "elifndef"):
            asked = [name for name in _NAME.findall(rest) if name not in names.macros]
            other = next((name for name in asked if not CONDITIONS.fullmatch(name)), None)
            if other and word != "ifndef":
                note = f"a condition on {other[:40]}; ask for the architecture or for macros of your own"
            elif not asked and not any(name in names.macros for name in _NAME.findall(rest)):
                note = "a condition that is always the same; leave out what is not compiled"
        elif word == "undef":
            if rest.strip() not in names.macros:
                note = f"#undef {rest.strip()[:40]}, which the source does not define"
        elif word not in ("else", "endif", "error", "warning", ""):
            note = f"the directive #{word[:20]}"
        if note:
            yield token.start, note


def _of_pragma(token: Token, rest: str, names: CppNames) -> Iterator[Seen]:
    # Names of the loop around it are known to the compiler alone: calls are what leads elsewhere.
    for match in _CALL.finditer(rest):
        name = match[1]
        if name not in _CLAUSES and name not in names.functions and name not in UNQUALIFIED:
            yield token.start, f"{name[:40]} in a pragma"


def _of_macro(token: Token, rest: str, names: CppNames, look: LooksAtMacros) -> Iterator[Seen]:
    match = _DEFINED.match(rest)
    if match is None:
        return
    name, body = match[1], _BLANKS.sub(" ", match[4])
    if name in KEYWORDS or name in ROOTS or (name in UNQUALIFIED and not _is_constant(body)):
        yield token.start, f"a macro named {name}, which means something else; name it otherwise"
    parts = list(tokens(_PASTED_END.sub("", body), blanks=False))
    if not parts:
        return
    offset = token.start
    parameters = frozenset(re.findall(r"\w++", match[3] or ""))
    if (parts[0].kind == "directive" or "##" in body or "%:%:" in body) and not _PASTED_ALONE.fullmatch(body):
        yield offset, f"the macro {name[:40]} pastes names; write them, or use a template"
        return
    if parts[0].text in _POINTS or parts[-1].text in _POINTS:
        yield offset, f"the macro {name[:40]} is part of a name; write the name"
        return
    for before, part, after in zip([None, *parts], parts, [*parts[1:], None], strict=False):
        if part.kind != "name" or part.text not in parameters:
            continue
        if (before and before.text in _POINTS and not _is_dots(parts, before)) or (after and after.text == "::"):
            yield offset, f"a parameter of the macro {name[:40]} is part of a name; write the name, or use a template"
            return
    for _, note in look.of_macro(parts, parameters | frozenset(_declared_in(parts))):
        if not note.startswith("a literal with"):
            yield offset, f"{note}, in a macro"


def _is_dots(parts: Sequence[Token], before: Token) -> bool:
    """Whether a point is the last of three."""
    index = parts.index(before)
    return before.text == "." and index > 0 and parts[index - 1].text == "."


def _declared_in(parts: Sequence[Token]) -> Iterator[str]:
    for before, part, after in zip(parts, parts[1:], [*parts[2:], None], strict=False):
        is_typed = part.kind == "name" and (before.kind == "name" or before.text in ("*", "&", ">"))
        if is_typed and after is not None and after.text in ("=", ";", "[", ",", ":", ")"):
            yield part.text


def _is_constant(body: str) -> bool:
    return _CONSTANT.fullmatch(body) is not None
