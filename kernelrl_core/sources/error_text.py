"""Makes error text fit for a prompt: short, the same on every machine, and with its cause."""

from __future__ import annotations

import re

__all__ = ["clean_error"]

_MAX_READ_CHARACTERS = 200_000
"""Of longer text only the first and the last half of this are looked at."""

_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-_])")
_CONTROLS = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\x80-\x9f\ud800-\udfff]")
_PATH = re.compile(r"(?<![\w/:.<])/(?:[\w.+@~-]+/)+([\w.+@~-]+)")
_ADDRESS = re.compile(r"\b0x[0-9a-fA-F]{6,16}\b")
_FRAME = re.compile(r'^ *(?:[|+] *)*File "([^"]*)", line \d+')
_HEADER = "Traceback (most recent call last):"


def clean_error(text: str, *, max_characters: int, keep_frames_of: str) -> str:
    """An error as the author of the code can use it.

    Escape sequences go, paths keep only their file name, addresses become `0x…`, tracebacks keep the frames of the
    author's file (the last frame if there is none), and equal neighbouring lines are written once. What is still too
    long keeps its beginning and its end, where position and cause stand. The same text gives the same answer, and a
    cleaned text stays as it is.

    Args:
        text: any text, of any length.
        max_characters: longest answer.
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
    """Leave out the frames of other files from every traceback."""
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
