"""Keywords of C++ that honest kernels need in some forms only: `static`, `extern`, `using`, `operator`, attributes."""

from __future__ import annotations

import bisect
import re
from collections.abc import Iterator, Sequence

from kernelrl_plugin_checkers.cpp_globals import HANDLE
from kernelrl_plugin_checkers.cpp_names import CppNames, Defined, Scope, Seen
from kernelrl_plugin_checkers.cpp_tokens import Token, text_at
from kernelrl_plugin_checkers.cpp_vocabulary import ATTRIBUTES, OPEN_NAMESPACES, PATTERNS, ROOTS, UNQUALIFIED

__all__ = ["CONTEXTUAL", "MOST_PATH", "Keywords"]

_NEVER = {
    "goto": "goto",
    "co_await": "a coroutine",
    "co_yield": "a coroutine",
    "co_return": "a coroutine",
}
CONTEXTUAL = frozenset(
    {"asm", "__asm__", "extern", "__attribute__", "operator", "using", "static", "thread_local", *_NEVER}
)
"""Words whose neighbours are looked at."""
MOST_PATH = 12
"""Parts of a qualified name that are looked at."""
_IN_ATTRIBUTES = ATTRIBUTES | {"sizeof", "alignof", "alignas", "float", "int", "double", "half", "scalar_t"}
_KEPT = frozenset({"bool", "int", "auto"})
"""Types of what honest code keeps: device properties, handles, and whether a limit has been set."""
_RESERVED = re.compile(
    r"_|cuda|hip|cu[A-Z]|Py|py|c10|at_|aten|torch|pthread|omp_|GOMP|clock|time|sched|sys|mem|str|std"
)


class Keywords:
    """Looks at tokens with a meaning of their own."""

    def __init__(self, found: Sequence[Token], names: CppNames, defined: Defined) -> None:
        self._found, self._names, self._defined = found, names, defined
        self._attributes_end = 0
        """Number of the token behind the last attribute."""

    def _contextual(self, at: int, scope: Scope) -> str | None:
        found = self._found
        text, before, after = found[at].text, text_at(found, at - 1), text_at(found, at + 1)
        if text in _NEVER:
            return f"{_NEVER[text]}; write loops and branches"
        if text == "__attribute__":
            return next((note for _, note in self._attributes(at + 1, 0)), None)
        if text in ("asm", "__asm__"):
            return None if scope.device else "assembly outside of device code; write C++ or intrinsics"
        if text == "extern":
            if after == "__shared__" or (after == '"C"' and text_at(found, at + 2) in ("__global__", "{")):
                return None
            if (after == '"C"' and scope.kind == "outside") or after == '"C"':
                return self._extern_c(at)
            return "extern, for a name that the source does not define; define what you use"
        if text == "operator":
            if before in ("return", "=", "(", ",", ".", "->"):
                return "an operator that is called by its name; write it as usual"
            if after in ("new", "delete", "co_await", ",", "->", "&") or after.startswith('"'):
                return f"operator {after[:20]}; define functions with names"
            return None
        if text == "using":
            return self._using(at)
        if text in ("static", "thread_local"):
            return self._static(at) if scope.kind == "function" and not scope.device else None
        return None

    def _static(self, at: int) -> str | None:
        """What is wrong with a variable that keeps its value; what keeps tensors has a rule of its own."""
        words = []
        for token in self._found[at + 1 : at + 40]:
            if token.text in ("=", ";", "(", "{"):
                break
            if token.kind == "name":
                words.append(token.text)
        if len(words) < 2 or {"const", "constexpr", "Tensor", "inline"} & set(words) or _is_kept(words):
            return None
        heads, start = self._names.heads, self._found[at].start
        below = bisect.bisect_right(heads, (start, len(self._found) + start)) - 1
        if below >= 0 and start < heads[below][1]:
            return None
        return f"{words[-1][:40]} keeps its value from one call to the next; make it anew, or const"

    def _extern_c(self, at: int) -> str | None:
        for place in range(at + 2, min(at + 40, len(self._found))):
            text = self._found[place].text
            if text == "__global__":
                return None
            if text == "(":
                name = self._found[place - 1].text
                if name in UNQUALIFIED or PATTERNS.fullmatch(name) or _RESERVED.match(name) or "_" not in name:
                    return f'extern "C" {name}; give functions of C names of your own, of two words'
                return None
            if text in ("{", ";"):
                break
        return 'extern "C" of something else than a function; define functions'

    def _using(self, at: int) -> str | None:
        found = self._found
        if text_at(found, at + 1) != "namespace":
            return None
        path: list[str] = []
        place = at + 2
        while place < len(found) and found[place].text != ";" and len(path) < MOST_PATH:
            if found[place].kind == "name":
                path.append(found[place].text)
            place += 1
        if not path:
            return None
        path = [*self._names.aliases.get(path[0], (path[0],)), *path[1:]]
        whole = "::".join(path)
        if whole in OPEN_NAMESPACES or (path[0] in self._names.namespaces and path[0] not in ROOTS):
            return None
        return f"using namespace {whole[:60]}; name what you need with its namespace"

    def _attributes(self, at: int, depth: int) -> Iterator[Seen]:
        for place in range(at, min(at + 60, len(self._found))):
            token = self._found[place]
            self._attributes_end = place + 1
            if token.text in ("(", "["):
                depth += 1
            elif token.text in (")", "]"):
                depth -= 1
                if depth <= 0:
                    return
            elif token.kind == "name" and token.text not in _IN_ATTRIBUTES and not self._is_number(token.text):
                yield token.start, f"the attribute {token.text[:40]}; kernels need alignment and inlining alone"

    def _is_number(self, name: str) -> bool:
        names = self._names
        return name in names.values or name in names.macros or name in names.types


def _is_kept(words: Sequence[str]) -> bool:
    return words[0] in _KEPT or any(HANDLE.fullmatch(word) for word in words)
