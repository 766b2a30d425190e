"""Sources that a candidate built and its file does not show: texts made at run time, macros in flags, functions that
are bound from elsewhere."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

from kernelrl_core.api.evaluators import EmbeddedSource, Finding, Severity, SourceFacts
from kernelrl_judge.build.calls import InlineCall, SourceText, find_inline_calls
from kernelrl_judge.build.kernel_facts import call_facts

__all__ = ["MAX_CHARACTERS", "hidden_facts"]

MAX_CHARACTERS = 1 << 18
"""Of all hidden texts of a candidate together that are kept and read."""
_OTHER_WAYS = re.compile(
    r"\b(?:_?compile_kernel|RawKernel|RawModule|triton|ctypes|cffi|numba|\w*(?:nvrtc|hiprtc)\w*)\b", re.IGNORECASE
)
_MACRO = re.compile(r"-D(\w+)=['\"]*([A-Za-z_]\w*)")


def hidden_facts(source: str, orders: Sequence[bytes], language: str) -> tuple[SourceFacts, tuple[Finding, ...]]:
    """Kernels and texts of the builds that cannot be read off the source, and what is wrong with them as such.

    Lines of what is found are those of its own text.

    Args:
        orders: what `runner.builds` sent, as the build service has accepted it.
        language: of the device code: `cuda`, `hip` or `cpp`.
    """
    calls = find_inline_calls(source)
    shown = {_content(call) for call in calls if not call.unread}
    texts = {piece.text for call in calls for piece in (*call.cpp_sources, *call.cuda_sources)}
    built = [_call(order) for order in orders]
    hidden = [call for call in built if _content(call) not in shown]
    pieces = [
        *(("cpp", text) for call in built if (text := _beside(call))),
        *(("cpp", piece.text) for call in hidden for piece in call.cpp_sources),
        *((language, piece.text) for call in hidden for piece in call.cuda_sources),
    ]
    new: dict[str, str] = {}
    for kind, text in pieces:
        if text not in texts:
            new.setdefault(text, kind)
    embedded: list[EmbeddedSource] = []
    left = MAX_CHARACTERS
    for text, kind in new.items():
        if kept := text[: max(0, left)]:
            embedded.append(EmbeddedSource(kind, kept, 1))
        left -= len(text)
    beyond = max(0, -left)
    if beyond:
        what = f"{beyond} characters, beyond the first {MAX_CHARACTERS}, of texts made at run time were built unread"
        finding = Finding("hidden_source", Severity.SUSPECT, what, checker="judge")
        return SourceFacts(embedded=tuple(embedded), unread=what), (finding,)
    if not hidden:
        unread = "kernels that the source shows were not looked for again" if embedded else ""
        return SourceFacts(embedded=tuple(embedded), unread=unread), ()
    facts = call_facts(source, built, language)
    other = _OTHER_WAYS.search(source)
    unread = facts.unread or (f"kernels may be made through {other.group()}" if other else "")
    return SourceFacts(facts.kernels, tuple(embedded), unread), ()


def _call(order: bytes) -> InlineCall:
    asked: dict[str, Any] = json.loads(order)
    return InlineCall(
        name=asked["name"],
        cpp_sources=tuple(SourceText(text, 1) for text in asked["cpp_sources"]),
        cuda_sources=tuple(SourceText(text, 1) for text in asked["device_sources"]),
        functions=tuple((name, text) for name, text in asked["functions"]),
        cflags=tuple(asked["cflags"]),
        device_flags=tuple(asked["device_flags"]),
        ldflags=(),
        include_paths=(),
    )


def _beside(call: InlineCall) -> str:
    """What a build gets of C++ beside its sources, as C++: macros in flags, and functions of other namespaces."""
    flags = " ".join((*call.cflags, *call.device_flags))
    macros = [f"#define {name} {value}" for name, value in _MACRO.findall(flags)]
    functions = [f"auto bound = {name};" for name, _ in call.functions or () if "::" in name]
    return "".join(f"{line}\n" for line in dict.fromkeys((*macros, *functions)))


def _content(call: InlineCall) -> tuple[tuple[str, ...], ...]:
    return (
        tuple(piece.text for piece in call.cpp_sources),
        tuple(piece.text for piece in call.cuda_sources),
        tuple(name for name, _ in call.functions or ()),
    )
