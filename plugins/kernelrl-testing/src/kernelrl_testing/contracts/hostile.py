"""Candidates that strain a reader: each is valid Python with the class `ModelNew`, as extraction accepts it."""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["HOSTILE_SOURCES"]

_LONG = 190_000
"""Characters, below the longest source that is read."""
_SIZE = 40_000
"""Characters of a source of many parts, as long as long replies are."""
_MODEL = "class ModelNew:\n    def forward(self, x):\n        return x\n"
_DEPTH = 40


def _filled(line: str) -> str:
    return _MODEL + line * ((_SIZE - len(_MODEL)) // len(line))


HOSTILE_SOURCES: Mapping[str, str] = {
    "null bytes": _MODEL + "CODE = '\\0\\0__global__ void f(\\0) {}'\nMORE = b'\\0' * 9\n",
    "deep nesting": _MODEL
    + f"x = {'(' * _DEPTH}1{')' * _DEPTH}\ny = {'[' * _DEPTH}{']' * _DEPTH}\nz = {'-' * 150}1\nw = a{'.a' * 150}\n"
    + "".join(f"{' ' * depth}if x:\n" for depth in range(_DEPTH))
    + " " * _DEPTH
    + "pass\n",
    "huge literals": f"{_MODEL}TEXT = '{'a' * (_LONG // 2)}'\nNUMBER = 0x{'f' * (_LONG // 3)}\n",
    "many lines": _filled("a = 1\n"),
    "many calls": _filled("f(a)(b)[c].d(e)\n"),
    "many strings": _filled("s = '''__global__ void k(float* x) { x[0] = 1; }'''\n"),
    "unusual text": f"{_MODEL}# \u202e\ufeff\u2028\nπ = 'ünïcödé \\ud800 \U0001f680'\n\f\n",
    "no line end": _MODEL + "x = 1; y = 2 \\\n + 3  # \r",
}
"""Name -> source."""
