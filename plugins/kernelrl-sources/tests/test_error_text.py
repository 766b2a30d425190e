"""Cleaned error text keeps the cause, drops irrelevant parts, and has a bounded length."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelrl_sources.error_text import clean_error

TRACEBACK = """Traceback (most recent call last):
  File "/opt/venv/lib/python3.11/site-packages/kernelrl_judge/runner.py", line 88, in call
    return model(*inputs)
           ^^^^^^^^^^^^^^
  File "/tmp/run-8f2a/candidate.py", line 21, in forward
    return scale(x)
           ^^^^^^^^
  File "/opt/venv/lib/python3.11/site-packages/triton/runtime/jit.py", line 347, in run
    kernel = self.compile(src)
"""

TRITON = (
    TRACEBACK
    + """triton.compiler.errors.CompilationError: at 47:22:
    offsets = start + tl.arange(0, BLOCK)
"""
    + "    x = tl.load(pointer + offsets)\n"
    + "".join(f"    y{i} = x * {i}\n" for i in range(200))
    + "                      ^\nNameError('y is not defined')"
)

# name: (text, parts that must remain, parts that must be removed)
ERRORS = {
    "bias exists": ("KeyError: \"attribute 'bias' already exists\"", ["attribute 'bias' already exists"], []),
    "illegal access": (
        TRACEBACK + "RuntimeError: CUDA error: an illegal memory access was encountered\nErrors might be late",
        ["illegal memory access", 'File "candidate.py", line 21, in forward', "return scale(x)"],
        ["runner.py", "jit.py", "/tmp", "/opt"],
    ),
    "shared memory": (
        "OutOfResources: out of resource: shared memory, Required: 262144, Hardware limit: 232448.",
        ["Required: 262144", "Hardware limit: 232448"],
        [],
    ),
    "block in nvcc text": (
        '/tmp/build/k.cu(12): error: identifier "blockIdxx" is undefined\n\n1 error detected in "/tmp/build/k.cu".',
        ['k.cu(12): error: identifier "blockIdxx" is undefined'],
        ["/tmp"],
    ),
    "triton position": (TRITON, ["at 47:22", "candidate.py", "NameError('y is not defined')"], ["jit.py", "y100"]),
    "import": (
        'Traceback (most recent call last):\n  File "/tmp/a/candidate.py", line 3, in <module>\n    import tritom\n'
        "ModuleNotFoundError: No module named 'tritom'",
        ["line 3", "No module named 'tritom'"],
        ["/tmp"],
    ),
    "no frame of the author": (
        'Traceback (most recent call last):\n  File "/a/one.py", line 1, in f\n    g()\n'
        '  File "/a/two.py", line 2, in g\n'
        "    h()\nValueError: bad",
        ["two.py", "ValueError: bad"],
        ["one.py"],
    ),
    "deep recursion": (
        "Traceback (most recent call last):\n"
        + '  File "/tmp/b/candidate.py", line 5, in forward\n    return self.forward(x)\n' * 900
        + "RecursionError: maximum recursion depth exceeded",
        ["line 5, in forward", "RecursionError: maximum recursion depth exceeded"],
        ["/tmp"],
    ),
    "chained": (
        TRACEBACK + "KeyError: 1\n\nDuring handling of the above exception, another exception occurred:\n\n"
        'Traceback (most recent call last):\n  File "/tmp/run-8f2a/candidate.py", line 30, in g\n    f()\n'
        "TypeError: two",
        ["KeyError: 1", "During handling", "line 30", "TypeError: two"],
        ["runner.py"],
    ),
    "colour": (
        "\x1b[1m\x1b[31merror:\x1b[0m no \x1b]8;;http://x\x07link\x1b]8;;\x07\x07",
        ["error: no link"],
        ["\x1b", "\x07"],
    ),
    "log of a megabyte": (
        "first line\n" + "ninja: progress\r" * 60_000 + "\nfatal error: end",
        ["first line", "fatal error: end"],
        ["\r", "ninja: progress\n" * 3],
    ),
    "address": ("<Tensor object at 0x7f3a9c0012d0> of 0x10", ["at 0x…>", "0x10"], ["7f3a"]),
    "surrogate and null": ("bad \ud800\x00 text", ["bad  text"], ["\x00", "\ud800"]),
    "division is no path": ("x = a/b/c and 1 / 2 // 3", ["a/b/c", "1 / 2 // 3"], []),
}


@pytest.mark.parametrize("name", ERRORS)
def test_the_cause_remains_and_other_parts_are_removed(name):
    text, stay, go = ERRORS[name]
    cleaned = clean_error(text, max_characters=600, keep_frames_of="candidate.py")
    assert len(cleaned) <= 600
    assert [part for part in stay if part not in cleaned] == []
    assert [part for part in go if part in cleaned] == []


@pytest.mark.parametrize("limit", [0, 1, 5, 6, 40])
def test_the_result_is_within_any_limit(limit):
    assert len(clean_error("word " * 100, max_characters=limit, keep_frames_of="x.py")) <= limit


LINES = st.sampled_from(
    ["Traceback (most recent call last):", '  File "/tmp/x/candidate.py", line 1, in f', '  File "/u/o.py", line 2',
     "    f()", "ValueError: /tmp/a/b", "", "\x1b[31mred\x1b[0m", "0xdeadbeef", "text", "[…]"]
)  # fmt: skip


@given(st.lists(st.one_of(LINES, st.text(max_size=20)), max_size=20).map("\n".join), st.integers(0, 300))
def test_any_text_is_bounded_and_cleaning_is_idempotent(text, limit):
    cleaned = clean_error(text, max_characters=limit, keep_frames_of="candidate.py")
    assert len(cleaned) <= limit
    assert "\x1b[31m" not in cleaned
    cleaned = clean_error(text, max_characters=10_000, keep_frames_of="candidate.py")
    assert clean_error(cleaned, max_characters=10_000, keep_frames_of="candidate.py") == cleaned
