"""Cleaning of error text for prompts: short, identical on every machine, with position and cause."""

from __future__ import annotations

import re

__all__ = ["clean_error"]

_MAX_READ_CHARACTERS = 200_000
"""Of longer text, only the first and the last half of this number of characters are processed."""

_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-_])")
_CONTROLS = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\x80-\x9f\ud800-\udfff]")
_PATH = re.compile(r"(?<![\w/:.<])/(?:[\w.+@~-]+/)+([\w.+@~-]+)")
_ADDRESS = re.compile(r"\b0x[0-9a-fA-F]{6,16}\b")
_FRAME = re.compile(r'^ *(?:[|+] *)*File "([^"]*)", line \d+')
_HEADER = "Traceback (most recent call last):"


def clean_error(text: str, *, max_characters: int, keep_frames_of: str) -> str:
    """Error text reduced to the parts that help the author of the code.

    Removes escape sequences and directories of paths, replaces addresses by `0x…`, keeps only traceback frames of the
    author's file (the last frame if there is none), and merges equal adjacent lines. Longer text is cut in the middle,
    because position and cause are at its ends. Idempotent.

    Args:
        text: any text, of any length.
        max_characters: maximum length of the result.
        keep_frames_of: name of the author's file, such as `candidate.py`.
    """
    if len(text) > _MAX_READ_CHARACTERS:
        half = _MAX_READ_CHARACTERS // 2
        text = f"{text[:half]}\n{text[-half:]}"
    text = _CONTROLS.sub("", _ESCAPES.sub("", text.replace("\r\n", "\n").replace("\r", "\n")))
    text = _cut_frames(text, keep_frames_of)
    text = _ADDRESS.sub("0x…", _PATH.sub(r"\1", text))
    return _keep_both_ends(_without_repeats(text).strip(), max_characters)


def _cut_frames(text: str, keep: str) -> str:
    """Remove the frames of other files from every traceback."""
    kept: list[str] = []
    frames: list[tuple[bool, list[str]]] = []
    reading = False

    def flush() -> None:
        chosen = [lines for own, lines in frames if own] or [lines for _, lines in frames[-1:]]
        kept.extend(line for lines in chosen for line in lines)
        frames.clear()

    for line in text.split("\n"):
        frame = _FRAME.match(line)
        if line.strip(" |+") == _HEADER:
            flush()
            reading = True
            kept.append(line)
        elif reading and frame is not None:
            frames.append((frame[1].replace("\\", "/").rsplit("/", 1)[-1] == keep, [line]))
        elif reading and frames and line.startswith("  "):
            frames[-1][1].append(line)
        else:
            flush()
            reading = False
            kept.append(line)
    flush()
    return "\n".join(kept)


def _without_repeats(text: str) -> str:
    lines: list[str] = []
    for line in text.split("\n"):
        line = line.rstrip()
        if not lines or line != lines[-1]:
            lines.append(line)
    return "\n".join(lines)


def _keep_both_ends(text: str, limit: int) -> str:
    if len(text) <= limit:
        return text
    mark = "\n[…]\n"
    room = max(0, limit - len(mark))
    head = room // 3
    tail = room - head
    return (text[:head].rstrip() + mark + text[len(text) - tail :].lstrip())[:limit]
