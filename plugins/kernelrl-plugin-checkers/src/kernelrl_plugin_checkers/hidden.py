"""Rules on what a candidate had built that its source does not show: C++ that it puts together while it runs."""

from __future__ import annotations

from collections.abc import Iterator

from kernelrl_core.api.checkers import Candidate, Evaluation, Outcome
from kernelrl_core.api.sources import parse_source
from kernelrl_plugin_checkers.cpp_names import Defined
from kernelrl_plugin_checkers.cpp_rules import CppText, cpp_breaches, cpp_texts, unread_cpp
from kernelrl_plugin_checkers.embedded import Embedded, embedded_texts
from kernelrl_plugin_checkers.python_patterns import waits_for_streams
from kernelrl_plugin_checkers.reading import Breach, Reading, TooMuch

__all__ = ["hidden_breaches"]

_MAX_EXCERPT = 120
_CALLED = (Outcome.CORRECT, Outcome.INCORRECT, Outcome.HACKED)
"""Outcomes of candidates whose `forward` has come to its end, so that all that it builds is built."""


def hidden_breaches(candidate: Candidate, evaluation: Evaluation) -> Iterator[Breach]:
    """Breaches by what was built; none has a line, for what is hidden has no place in the source.

    A breach that the source shows as well is told of where it stands there, and not again.
    """
    hidden = evaluation.hidden
    if not hidden.embedded and not hidden.kernels:
        return
    kernels = (*candidate.facts.kernels, *hidden.kernels)
    if evaluation.outcome in _CALLED and not hidden.unread and not any(kernel.reached for kernel in kernels):
        yield "no_kernel", None, "nothing that was built has a kernel which ModelNew.forward launches"
    sources = [piece.source.split("\n") for piece in hidden.embedded]
    pieces = [Embedded("\n".join(lines), 1, len(lines), lines) for lines in sources]
    texts = cpp_texts(pieces)
    yield from unread_cpp(texts)
    shown, waits, copies = _shown(candidate)
    waits = waits or any(text.waits for text in texts)
    copies = copies or any(text.copies for text in texts)
    defined = Defined([text.defined for text in (*shown, *texts)])
    known = {
        (rule, _seen(note))
        for text in shown
        for rule, _, note in cpp_breaches(text, defined=defined, waits=waits, copies=copies)
    }
    for lines, text in zip(sources, texts, strict=True):
        for rule, line, note in cpp_breaches(text, defined=defined, waits=waits, copies=copies):
            if (rule, _seen(note)) not in known:
                excerpt = lines[line - 1].strip()[:_MAX_EXCERPT] if line else ""
                yield rule, None, f"in what was built, line {line}: {excerpt} ({note})"


def _shown(candidate: Candidate) -> tuple[list[CppText], bool, bool]:
    """Texts that the source shows, whether its Python waits for streams, and whether it copies."""
    tree = parse_source(candidate.source)
    if tree is None:
        return [], False, False
    reading = Reading(tree)
    lines = candidate.source.split("\n")
    texts = cpp_texts(embedded_texts(reading.nodes, candidate.facts, lines))
    try:
        waits = waits_for_streams(reading)
    except (TooMuch, RecursionError):
        waits = False
    copies = any(getattr(node, "attr", "") == "copy_" for node in reading.nodes)
    return texts, waits or any(text.waits for text in texts), copies or any(text.copies for text in texts)


def _seen(note: str) -> str:
    """What a breach is by, without its place."""
    return note.partition(", in '")[0].partition(', in "')[0]
