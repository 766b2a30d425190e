"""What a candidate has had built that its source does not show: texts that it made while it ran."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

from kernelrl_core.values import EmbeddedSource, Finding, Severity, SourceFacts
from kernelrl_judge.building.calls import InlineCall, SourceText, find_inline_calls
from kernelrl_judge.building.kernel_facts import call_facts

__all__ = ["MAX_CHARACTERS", "hidden_facts"]

MAX_CHARACTERS = 1 << 18
"""Of all hidden texts of a candidate together that are kept and read."""
_OTHER_WAYS = re.compile(
    r"\b(?:_?compile_kernel|RawKernel|RawModule|triton|ctypes|cffi|numba|\w*(?:nvrtc|hiprtc)\w*)\b", re.IGNORECASE
)


def hidden_facts(source: str, orders: Sequence[bytes], language: str) -> tuple[SourceFacts, tuple[Finding, ...]]:
    """Kernels and texts of the builds that cannot be read off the source, and what is wrong with them as such.

    Lines of what is found are those of its own text.

    Args:
        orders: what `runner_builds` sent, as the build service has accepted it.
        language: of the device code: `cuda`, `hip` or `cpp`.
    """
    calls = find_inline_calls(source)
    shown = {_content(call) for call in calls if not call.unread}
    texts = {piece.text for call in calls for piece in (*call.cpp_sources, *call.cuda_sources)}
    hidden = [call for call in map(_call, orders) if _content(call) not in shown]
    embedded: list[EmbeddedSource] = []
    left = MAX_CHARACTERS
    beyond = 0
    for call in hidden:
        for kind, pieces in (("cpp", call.cpp_sources), (language, call.cuda_sources)):
            for piece in pieces:
                if piece.text in texts:
                    continue
                texts.add(piece.text)
                if kept := piece.text[:left]:
                    embedded.append(EmbeddedSource(kind, kept, 1))
                left -= len(kept)
                beyond += len(piece.text) - len(kept)
    if beyond:
        what = f"{beyond} characters, beyond the first {MAX_CHARACTERS}, of texts made at run time were built unread"
        finding = Finding("hidden_source", Severity.SUSPECT, what, checker="judge")
        return SourceFacts(embedded=tuple(embedded), unread=what), (finding,)
    if not hidden:
        return SourceFacts(), ()
    facts = call_facts(source, hidden, language)
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
        cflags=(),
        device_flags=(),
        ldflags=(),
        include_paths=(),
        line=1,
        target="",
        complete=True,
    )


def _content(call: InlineCall) -> tuple[tuple[str, ...], ...]:
    return (
        tuple(piece.text for piece in call.cpp_sources),
        tuple(piece.text for piece in call.cuda_sources),
        tuple(name for name, _ in call.functions or ()),
    )
