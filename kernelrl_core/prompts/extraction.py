"""Extraction of the candidate from a reply, or of the reason why there is none.

All users of a candidate (checkers, evaluator, journal, `kernelrl check`) get its source from here, so checkers analyse
exactly the source that is executed. Steps:

1. Remove thinking, as `kernelrl_core.sources.thinking` defines it: `<think>…</think>` and the markers of other models,
   all text before a closing marker without an opening one, all text after an opening marker without a closing one, and
   thinking that the policy's renderer separated. Drafts in thinking are never extracted.
2. Collect complete candidates from fenced blocks (any number of backticks or tildes from three on, with a language tag
   of `TAGS` or of the backend) and from `<KERNEL>` tags with or without a fence inside. Complete means: closed, valid
   Python, and defines the class `ModelNew` at module level.
3. Select the last complete candidate inside `<KERNEL>` tags, or else the last one.

An end-of-turn token can follow a closing fence on its line.

The source is unchanged except for white space at its end (see `canonical_source`) and the indentation of a fence that
is itself indented.
"""

from __future__ import annotations

import ast
import re
import warnings
from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, Literal

import attrs

from kernelrl_core.sources.chat_formats import END_OF_TURN
from kernelrl_core.sources.thinking import cut_thinking
from kernelrl_core.types import Candidate, Extraction
from kernelrl_sources.syntax import MAX_DEPTH, MAX_SOURCE_CHARACTERS, parse

__all__ = [
    "MAX_REPLY_CHARACTERS",
    "TAGS",
    "canonical_source",
    "extract",
    "extract_file",
]

MAX_REPLY_CHARACTERS = 2_000_000
"""Longer replies have no candidate."""
TAGS = frozenset({"", "python", "python3", "py", "triton", "cuda", "cu", "c++", "cpp", "hip"})
"""Language tags (lower case) of fences that may contain a candidate, in addition to those of the backend."""

_MAX_READ_CHARACTERS = 4_000_000
"""Characters of a reply that are parsed as code in total: limits the time spent on adversarial text."""
_MAX_CLOSINGS = 64
"""Closing fences or tags tried for one opening."""
_MAX_INDENT = 64
"""Maximum indentation of a fence, in characters."""
_COST_OF_PARSING = 500
"""Fixed cost of one parse, in characters."""

_KERNEL = re.compile(r"<(/?)KERNEL>", re.IGNORECASE | re.ASCII)
_SUMMARY = re.compile(r"<(/?)SUMMARY>", re.IGNORECASE | re.ASCII)
# The bounds limit the time spent on many fences in one line.
_OPENING = re.compile(r"((?<!`)`{3,}+|(?<!~)~{3,}+)[ \t]*+([^\s`~{]*+)([^\n`]{0,200}+)(?:\n|\Z)")
_CLOSING = re.compile(
    rf"^([ \t]{{0,64}})(`{{3,}}|~{{3,}})[ \t]*(?=\r?$|</KERNEL>|{END_OF_TURN})", re.MULTILINE | re.IGNORECASE
)
_END_OF_TURN = re.compile(END_OF_TURN)
_FENCED = re.compile(r"\s*(?:`{3}|~{3})")
_NAMES_MODEL = re.compile(r"\bclass[ \t]+ModelNew\b")
_WHITE = " \t\r\n\f"

Problem = Literal["no_code", "truncated", "syntax", "no_model"]


def extract(
    reply: str | Sequence[Mapping[str, Any]],
    *,
    stop_reason: str = "stop",
    fences: Sequence[str] = (),
    backend: str,
    thinking: str | None = None,
) -> Extraction:
    """Extract the candidate of a reply. Raises for no text; the limits of this module bound its time.

    Args:
        reply: raw text, or a list of parts with `type` `text` (and key `text`) or `thinking` (and key `thinking`).
        stop_reason: `length` if the reply ended at its token limit.
        fences: language tags of fences that may contain a candidate, in addition to `TAGS`.
        backend: name of the backend, stored in the candidate.
        thinking: thinking that the renderer separated; removed from `reply` if it still contains it.

    Returns:
        The candidate without source facts, or a problem with a message for the model.
    """
    text, thoughts = _join(reply)
    if len(text) > MAX_REPLY_CHARACTERS:
        return Extraction(
            None, "no_code", f"The reply has {len(text)} characters; at most {MAX_REPLY_CHARACTERS} are read."
        )
    text, cut = cut_thinking(text, thinking or "", ended=bool(thoughts))
    thoughts = "\n\n".join(part for part in (thoughts, cut.thinking) if part)
    reading = _Reading(text, TAGS | {fence.lower() for fence in fences})
    reading.scan()
    summary = _summary(text, reading.complete)
    winner = reading.winner()
    if winner is not None:
        return Extraction(Candidate(winner.source, backend, thoughts, summary), "", "", thoughts, summary)
    problem, message = _problem(reading, truncated=stop_reason == "length", open_thinking=cut.unclosed)
    return Extraction(None, problem, message, thoughts, summary)


def extract_file(text: str, *, fences: Sequence[str] = (), backend: str) -> Extraction:
    """Extract the candidate of a kernel file: Python source that defines `ModelNew`, or a saved reply.

    Args:
        text: content of the file.
        fences: see `extract`.
        backend: see `extract`.
    """
    text = text.removeprefix("\ufeff")
    source = canonical_source(text)
    plain = _parse(source)
    if plain.complete:
        return Extraction(Candidate(source, backend))
    extraction = extract(text, fences=fences, backend=backend)
    if extraction.problem != "no_code":
        return extraction
    if not plain.message:
        return Extraction(None, "no_model", "The file defines no class `ModelNew`.")
    if _NAMES_MODEL.search(text) is not None:
        return Extraction(None, "syntax", f"The file is not valid Python. {plain.message}")
    message = f"The file is neither Python nor a saved reply with a code block. As Python: {plain.message}"
    return Extraction(None, "no_code", message)


def canonical_source(source: str) -> str:
    """The source with trailing white space replaced by one newline. This changes no Python program."""
    return source.rstrip(_WHITE) + "\n"


# --- thinking -------------------------------------------------------------------------------------------------------


def _join(reply: str | Sequence[Mapping[str, Any]]) -> tuple[str, str]:
    if isinstance(reply, str):
        return reply, ""
    text, thoughts = [], []
    for part in reply:
        if part.get("type") == "thinking":
            thoughts.append(str(part.get("thinking") or ""))
        elif part.get("type") == "text":
            text.append(str(part.get("text") or ""))
    return "".join(text), "\n\n".join(thoughts)


# --- candidates -----------------------------------------------------------------------------------------------------


@attrs.frozen
class _Parsed:
    complete: bool = False
    """Parses and defines `ModelNew`."""
    message: str = ""
    """Reason why it does not parse; empty if it does."""


@attrs.frozen
class _Block:
    start: int
    end: int
    source: str
    tag: str
    tagged: bool
    """Inside `<KERNEL>` tags."""
    parsed: _Parsed


class _Reading:
    """Collects the blocks of a reply without thinking."""

    def __init__(self, text: str, tags: frozenset[str]) -> None:
        self.text = text
        self.tags = tags
        self.blocks: list[_Block] = []
        self.complete = _Spans()
        """Spans of the complete candidates."""
        self.unclosed = False
        """A fence or tag that may contain a candidate is not closed."""
        self._budget = _MAX_READ_CHARACTERS
        self._openings = [match for match in _OPENING.finditer(text) if self._opens(match)]
        self._opening_starts = [match.start() for match in self._openings]
        self._tagged_starts = [match.start() for match in self._openings if match[2]]
        self._fence_lines = list(_CLOSING.finditer(text))
        self._fence_starts = [line.start() for line in self._fence_lines]
        self._kernel_tags = list(_KERNEL.finditer(text))
        self._kernel_starts = [tag.start() for tag in self._kernel_tags]

    def scan(self) -> None:
        position = 0
        tags = [tag for tag in self._kernel_tags if not tag[1]]
        tag_starts = [tag.start() for tag in tags]
        tried: list[re.Match[str]] = []
        while True:
            fence = bisect_left(self._opening_starts, position)
            tag = bisect_left(tag_starts, position)
            if tag < len(tags) and (fence == len(self._openings) or tag_starts[tag] < self._opening_starts[fence]):
                position = self._read_bare_tag(tags[tag])
                if not self.complete.ends_at(position):
                    tried.append(tags[tag])
            elif fence < len(self._openings):
                position = self._read_fence(self._openings[fence])
            else:
                break
        self._note_failed_tags(tried)

    def winner(self) -> _Block | None:
        complete = [block for block in self.blocks if block.parsed.complete]
        return max(complete, key=lambda block: (block.tagged, block.start), default=None)

    def _opens(self, fence: re.Match[str]) -> bool:
        """Whether a fence opens a block: it starts its line, follows `<KERNEL>`, or follows prose and has a known
        language tag. A fence before an end-of-turn token only closes."""
        if _END_OF_TURN.match(fence[2]):
            return False
        start = max(0, fence.start() - _MAX_INDENT)
        line_start = self.text.rfind("\n", start, fence.start())
        line = self.text[max(start, line_start + 1) : fence.start()].strip(" \t")
        known = bool(fence[2]) and fence[2].lower() in self.tags and not fence[3].strip()
        at_start = not line and (line_start >= 0 or start == 0)
        return at_start or line[-8:].upper() == "<KERNEL>" or known

    def _read_fence(self, opening: re.Match[str]) -> int:
        """Record the block that `opening` opens; return the position after it."""
        start, body = opening.start(), opening.end()
        tag, tagged = opening[2].lower(), self._inside_tag(start)
        closings = self._closings(opening, tagged)
        for end, after in closings:
            if tag not in self.tags or not self._afford(end - body):
                break
            source = self._body(opening, end)
            # In valid Python, a line that consists of a fence can only be part of a string, and no prefix of a program
            # that ends inside a string parses. So the first closing fence that gives a valid program is the right one.
            if _NAMES_MODEL.search(source) and (parsed := _parse(source)).complete:
                self.blocks.append(_Block(start, after, source, tag, tagged, parsed))
                self.complete.add(start, after)
                return after
        end, after = closings[0] if closings else (len(self.text), len(self.text))
        index = bisect_left(self._tagged_starts, body)
        if index < len(self._tagged_starts) and self._tagged_starts[index] < end:
            # The model started a new block without closing this one.
            return self._tagged_starts[index]
        if tag in self.tags:
            if not closings:
                self.unclosed = True
            elif self._afford(end - body):
                source = self._body(opening, end)
                self.blocks.append(_Block(start, after, source, tag, tagged, _parse(source)))
        return after

    def _closings(self, opening: re.Match[str], tagged: bool) -> list[tuple[int, int]]:
        """Possible ends of the block, nearest first: (end of the body, position after the block)."""
        fence = opening[1]
        first = bisect_left(self._fence_starts, opening.end())
        lines = self._fence_lines[first : first + _MAX_CLOSINGS]
        found = [(line.start(), line.end()) for line in lines if line[2].startswith(fence)]
        if tagged:
            # Models may close the tag and forget the fence.
            first = bisect_left(self._kernel_starts, opening.end())
            for tag in self._kernel_tags[first : first + _MAX_CLOSINGS]:
                if tag[1] and self.text[tag.start() - 1] == "\n":
                    found.append((tag.start(), tag.start()))
            found.sort()
        return found

    def _body(self, opening: re.Match[str], end: int) -> str:
        body = self.text[opening.end() : end]
        start = max(0, opening.start() - _MAX_INDENT)
        indent = self.text[max(start, self.text.rfind("\n", start, opening.start()) + 1) : opening.start()]
        if indent and not indent.strip(" \t"):
            body = re.sub(rf"^[ \t]{{1,{len(indent)}}}", "", body, flags=re.MULTILINE)
        return canonical_source(body if opening[2] else self._without_language_line(body))

    def _without_language_line(self, body: str) -> str:
        first, newline, rest = body.partition("\n")
        return rest if newline and first.strip() and first.strip().lower() in self.tags else body

    def _read_bare_tag(self, opening: re.Match[str]) -> int:
        """Record the candidate in `<KERNEL>` tags without a fence, if any; return the position after it."""
        if _FENCED.match(self.text, opening.end()):
            # `~~~python`, a line of code and `~~~ [EOS]` would be valid Python.
            return opening.end()
        for tag in self._tag_closings(opening):
            source = self._bare_body(opening, tag)
            if not self._afford(len(source)):
                break
            if _NAMES_MODEL.search(source) and (parsed := _parse(source)).complete:
                self.blocks.append(_Block(opening.start(), tag.end(), source, "", True, parsed))
                self.complete.add(opening.start(), tag.end())
                return tag.end()
        return opening.end()

    def _note_failed_tags(self, openings: Sequence[re.Match[str]]) -> None:
        """Record tags that contain neither a candidate nor a fence, to explain a reply without a candidate."""
        fenced = sorted(block.start for block in self.blocks)
        for opening in openings:
            closings = self._tag_closings(opening)
            end = closings[-1].start() if closings else len(self.text)
            index = bisect_left(fenced, opening.end())
            if index < len(fenced) and fenced[index] < end:
                continue
            if not closings:
                self.unclosed = True
            elif self._afford(end - opening.end()) and (source := self._bare_body(opening, closings[-1])).strip():
                self.blocks.append(_Block(opening.start(), end, source, "", True, _parse(source)))

    def _tag_closings(self, opening: re.Match[str]) -> list[re.Match[str]]:
        """Closing tags to try: those at the start of a line, which code contains only inside strings, then the nearest
        one."""
        first = bisect_left(self._kernel_starts, opening.end())
        closings = [tag for tag in self._kernel_tags[first : first + _MAX_CLOSINGS] if tag[1]]
        return [tag for tag in closings if self.text[tag.start() - 1] == "\n"] + closings[:1]

    def _bare_body(self, opening: re.Match[str], closing: re.Match[str]) -> str:
        body = self.text[opening.end() : closing.start()]
        body = body[1:] if body.startswith("\n") else body.removeprefix("\r\n")
        return canonical_source(self._without_language_line(body))

    def _inside_tag(self, position: int) -> bool:
        for tag in reversed(self._kernel_tags[: bisect_left(self._kernel_starts, position)][-_MAX_CLOSINGS:]):
            if tag.start() not in self.complete:
                return not tag[1]
        return False

    def _afford(self, characters: int) -> bool:
        self._budget -= characters + _COST_OF_PARSING
        return self._budget > 0


class _Spans:
    """Non-overlapping spans of text, added in order."""

    def __init__(self) -> None:
        self._spans: list[tuple[int, int]] = []

    def add(self, start: int, end: int) -> None:
        self._spans.append((start, end))

    def ends_at(self, position: int) -> bool:
        return bool(self._spans) and self._spans[-1][1] == position

    def __contains__(self, position: int) -> bool:
        index = bisect_right(self._spans, position, key=lambda span: span[0])
        return index > 0 and position < self._spans[index - 1][1]


def _parse(source: str) -> _Parsed:
    """Parse untrusted text without executing it, in bounded time."""
    if len(source) > MAX_SOURCE_CHARACTERS:
        return _Parsed(message=f"The code has {len(source)} characters; at most {MAX_SOURCE_CHARACTERS} are accepted.")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = parse(source)
    except SyntaxError as error:
        return _Parsed(message=_syntax_message(source, error))
    except (RecursionError, MemoryError):
        return _Parsed(message="The code is nested too deeply to be parsed.")
    except (ValueError, OverflowError) as error:
        return _Parsed(message=f"The code cannot be parsed: {error}.")
    if _deeper_than(tree, MAX_DEPTH):
        return _Parsed(message=f"The code is nested too deeply: more than {MAX_DEPTH} levels.")
    return _Parsed(complete=_defines_model(tree.body))


def _syntax_message(source: str, error: SyntaxError) -> str:
    lines = source.split("\n")
    line = error.lineno or 0
    excerpt = lines[line - 1].strip()[:120] if 0 < line <= len(lines) else ""
    return (f"Line {line}: " if line else "") + f"{error.msg}" + (f": {excerpt}" if excerpt else "")


def _deeper_than(tree: ast.AST, limit: int) -> bool:
    level: list[ast.AST] = [tree]
    for _ in range(limit):
        level = [child for node in level for child in ast.iter_child_nodes(node)]
        if not level:
            return False
    return True


def _bound_names(statement: ast.stmt) -> list[str]:
    """The name of a class, or those of `Name = value`. An import is not one: examples of use import `ModelNew`."""
    if isinstance(statement, ast.ClassDef):
        return [statement.name]
    targets = statement.targets if isinstance(statement, ast.Assign) else []
    return [target.id for target in targets if isinstance(target, ast.Name)]


def _defines_model(body: Sequence[ast.stmt]) -> bool:
    for statement in body:
        if "ModelNew" in _bound_names(statement):
            return True
        if isinstance(statement, ast.If | ast.Try | ast.With):
            branches = [statement.body, getattr(statement, "orelse", []), getattr(statement, "finalbody", [])]
            branches += [handler.body for handler in getattr(statement, "handlers", [])]
            if any(_defines_model(branch) for branch in branches):
                return True
    return False


# --- summary and problem --------------------------------------------------------------------------------------------


def _summary(text: str, code: _Spans) -> str:
    """The last `<SUMMARY>…</SUMMARY>` outside code."""
    tags = [tag for tag in _SUMMARY.finditer(text) if tag.start() not in code]
    for opening, closing in reversed(list(pairwise(tags))):
        if not opening[1] and closing[1]:
            return text[opening.end() : closing.start()].strip()
    return ""


def _problem(reading: _Reading, *, truncated: bool, open_thinking: bool) -> tuple[Problem, str]:
    if truncated:
        return "truncated", "The reply was cut off at its token limit before the code was complete."
    if open_thinking:
        return "truncated", "The thinking did not end, so the reply has no code."
    if reading.unclosed:
        return "truncated", "The code block is not closed, so the code is incomplete."
    blocks = sorted(reading.blocks, key=lambda block: (block.tagged, block.start), reverse=True)
    for block in blocks:
        if block.parsed.message and _NAMES_MODEL.search(block.source):
            return "syntax", f"The code is not valid Python. {block.parsed.message}"
    for block in blocks:
        if not block.parsed.message:
            return "no_model", "The code defines no class `ModelNew` at module level."
        if block.tagged or block.tag in {"python", "python3", "py", "triton"}:
            return "syntax", f"The code is not valid Python. {block.parsed.message}"
        if block.tag:
            return "no_model", "No code block is a Python file that defines the class `ModelNew`."
    if _NAMES_MODEL.search(reading.text):
        return "no_code", "The reply mentions the class `ModelNew` but has no code block that holds it."
    return "no_code", "The reply has no code block."
