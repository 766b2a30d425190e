"""Interpreted kernels: access to values as on a GPU, detection of races, and independence of execution order."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

HEAD = """
import importlib, io, json, sys, torch, triton, triton.language as tl
from kernelrl_judge import provenance
from kernelrl_judge.reordering import reordered
from kernelrl_plugin_triton import interpreted

def told(k):
    x, y = torch.arange(4.0), torch.empty(4)
    kept, sys.stdout = sys.stdout, io.StringIO()
    watch = provenance.Watch()
    watch.begin()
    try:
        k[(1,)](x, y, 4, B=4)
        right = y.clone().tolist() == [0.0, 2.0, 4.0, 6.0]
        return [right, sys.stdout.getvalue().strip(), watch.strange]
    except (AttributeError, TypeError) as error:
        return str(error)
    finally:
        watch.end()
        sys.stdout = kept

found = {}
"""
KERNEL = """
@triton.jit
def k(x_ptr, y_ptr, n, B: tl.constexpr):
    x = tl.load(x_ptr + tl.arange(0, B))
    LINE
    tl.store(y_ptr + tl.arange(0, B), x * 2.0)

found[NAME] = told(k)
"""
RACES = """
FUNCTIONS = '''
@triton.jit
def add(a, b):
    return a + b

@triton.jit
def step(a, b):
    return 2.0 * a + b

@triton.jit
def later(a, n, b, m):
    return tl.where(m > n, b, a), tl.maximum(n, m)

'''

def made(body):
    name = f"r{len(found)}"
    source = f"@triton.jit\\ndef {name}(x_ptr, y_ptr, done_ptr, B: tl.constexpr):\\n    p = tl.program_id(0)\\n"
    source += "    at = tl.arange(0, B)\\n" + "".join(f"    {line}\\n" for line in body.split("; "))
    open(f"{name}.py", "w").write("import triton, triton.language as tl\\n" + FUNCTIONS + source)
    return getattr(importlib.import_module(name), name)

def raced(body, programs=4):
    kernel = made(body)
    watch = provenance.Watch()
    watch.begin()
    y = torch.zeros(32)
    given = y.data_ptr() if "pointer_type" in body else y
    kernel[(programs,)](torch.arange(32.0), given, torch.zeros(1, dtype=torch.int32), B=8)
    watch.end()
    return watch.raced

def ordered(body, programs=8):
    kernel = made(body)
    y = torch.zeros(32)
    with reordered(threads=False):
        kernel[(programs,)](torch.arange(32.0), y, torch.zeros(1, dtype=torch.int32), B=8)
    return y[:programs].tolist()

"""
RIGHT = [True, "", 0]
LINES = {
    "assert str(x) == f'{x!r}' == f'{x}' == 'fp32[constexpr[4]]'": RIGHT,
    "tl.device_print('x', x)": RIGHT,
    "int(tl.sum(x))": "fp32 cannot be used as an index; compute with triton.language",
    "range(tl.max(x))": "fp32 cannot be used as an index; compute with triton.language",
    "x.handle.data": "a kernel cannot read a tensor's values from Python; compute with triton.language",
    "assert not hasattr(x.handle, '_kept')": RIGHT,
    "x += 0.0 * len(range(n))": RIGHT,
    "x = x if tl.sum(x) > 0.0 else -x": RIGHT,
}


BODIES = {
    "every program its own": ("y = y_ptr + p * B + at; tl.store(y, 1.0 + at); tl.store(y, 2.0 * tl.load(y))", 0),
    # The first of four programs changes 7 of 8 elements, the second and the third change all 8. So 7 + 8 + 8 elements
    # are read after another program's write, and as many are overwritten. The first three programs also read 8 elements
    # each before their successor writes them.
    "adding in the same place": ("tl.store(y_ptr + at, tl.load(y_ptr + at) + tl.load(x_ptr + p * B + at))", 70),
    "adding in the same place by its address": (
        "y = y_ptr.to(tl.int64).to(tl.pointer_type(tl.float32)) + at; "
        "tl.store(y, tl.load(y) + tl.load(x_ptr + p * B + at))",
        70,
    ),
    "every program its own by its address": (
        "y = y_ptr.to(tl.int64).to(tl.pointer_type(tl.float32)) + p * B + at; "
        "tl.store(y, 1.0 + at); tl.store(y, 2.0 * tl.load(y))",
        0,
    ),
    "adding with atomics": ("tl.atomic_add(y_ptr + at, tl.load(x_ptr + p * B + at))", 0),
    "after the one before": ("tl.store(y_ptr + p + 1, tl.load(y_ptr + p) + 1.0)", 3),
    # Each program but the last reads the element that the next one changes.
    "before the next one": ("tl.store(x_ptr + p, tl.load(x_ptr + p + 1) + 1.0)", 3),
    "after an atomic operation without acquire": (
        "tl.atomic_add(done_ptr, 1); tl.store(y_ptr + p + 1, tl.load(y_ptr + p) + 1.0)",
        3,
    ),
    "after operations on other memory": (
        "tl.atomic_add(x_ptr + p, 1.0); tl.store(y_ptr + p + 1, tl.load(y_ptr + p) + 1.0); "
        "tl.atomic_add(x_ptr + p, 1.0)",
        3,
    ),
    "under a lock": (
        "tl.atomic_cas(done_ptr, 0, 1); tl.store(y_ptr + at, tl.load(y_ptr + at) + 1.0); tl.atomic_xchg(done_ptr, 0)",
        0,
    ),
    # Each of four programs reads 8 elements.
    "backwards": (
        "y = y_ptr + p * B; tl.store(y + at, 1.0 + at); tl.store(x_ptr + p * B + at, tl.load(y + 7 - at))",
        32,
    ),
    "backwards behind a barrier": (
        "y = y_ptr + p * B; tl.store(y + at, 1.0 + at); tl.debug_barrier(); "
        "tl.store(x_ptr + p * B + at, tl.load(y + 7 - at))",
        0,
    ),
    "backwards behind a sum": (
        "y = y_ptr + p * B; tl.store(y + at, 1.0 + at); s = tl.sum(at); "
        "tl.store(x_ptr + p * B + at, tl.load(y + s - 21 - at))",
        0,
    ),
    "a number again and again": (
        "for i in range(3):;     tl.store(y_ptr + p, tl.load(y_ptr + p) + 1.0)",
        0,
    ),
    "the same by everyone": ("tl.store(y_ptr + at, 1.0 + at); tl.store(x_ptr + p * B + at, tl.load(y_ptr + at))", 0),
    # The last program reads the elements that the three others stored, and stores nothing.
    "the last of them by a relaxed counter": (
        'tl.store(y_ptr + p, 1.0); if tl.atomic_add(done_ptr, 1, sem="relaxed") == 3:; '
        "    tl.store(x_ptr, tl.sum(tl.load(y_ptr + at)))",
        3,
    ),
    "the last of them by a counter of one block": (
        'tl.store(y_ptr + p, 1.0); if tl.atomic_add(done_ptr, 1, scope="cta") == 3:; '
        "    tl.store(x_ptr, tl.sum(tl.load(y_ptr + at)))",
        3,
    ),
    # Each program but the first stores another value than the one before.
    "something else in the same place": ("tl.store(y_ptr, 1.0 + p)", 3),
    "something else under a lock": (
        "tl.atomic_cas(done_ptr, 0, 1); tl.store(y_ptr, 1.0 + p); tl.atomic_xchg(done_ptr, 0)",
        0,
    ),
    "something else by one store": ("tl.store(y_ptr + p + 0 * at, 1.0 + at)", 28),
    "the same by one store": ("tl.store(y_ptr + p + 0 * at, 1.0 + 0 * at)", 0),
    "the last of them": (
        "tl.store(y_ptr + p, 1.0); if tl.atomic_add(done_ptr, 1) == 3:; "
        "    tl.store(x_ptr, tl.sum(tl.load(y_ptr + at)))",
        0,
    ),
}


NUMBERED = [float(number) for number in range(1, 9)]
ORDERED = {
    "by their own numbers": ("tl.store(y_ptr + p, 1.0 + p)", True),
    "in the order of tickets": ("tl.store(y_ptr + tl.atomic_add(done_ptr, 1), 1.0 + p)", False),
    "in the order of programs, by waiting": (
        "while tl.atomic_add(done_ptr, 0) != p:;     pass; tl.store(y_ptr + p, 1.0 + p); tl.atomic_add(done_ptr, 1)",
        True,
    ),
    "by an associative scan": ("tl.store(y_ptr + at, tl.associative_scan(1.0 + 0.0 * at, 0, add))", True),
    "by a scan of columns": (
        "x = 1.0 + 0.0 * (at[:, None] + at[None, :]); x = tl.associative_scan(x, 0, add); "
        "tl.store(y_ptr + at, tl.sum(x, 1) / B)",
        True,
    ),
    "by a scan from the end": (
        "x = tl.associative_scan(1.0 + 0.0 * at, 0, add, reverse=True); tl.store(y_ptr + 7 - at, x)",
        True,
    ),
    "by sums": (
        "x = tl.where(at[None, :] <= at[:, None], 1.0, 0.0); tl.store(y_ptr + at, tl.reduce(x, 1, add))",
        True,
    ),
    "by a sum of everything": ("tl.store(y_ptr + p, (p + 1.0) * tl.reduce(1.0 + 0.0 * at, None, add) / B)", True),
    "by pairs": (
        "x, n = tl.reduce((1.0 + at, at), 0, later); tl.store(y_ptr + p, x + p - 7.0)",
        True,
    ),
    "by a scan of steps": (
        "x = tl.associative_scan(tl.where(at == 0, 1.0, 1.0 - at), 0, step); tl.store(y_ptr + at, x)",
        False,
    ),
    "by reductions of steps": (
        "x = tl.reduce(tl.where(at == 0, 1.0, 1.0 - at), 0, step); tl.store(y_ptr + p, x - 7.0 + p)",
        False,
    ),
    "in the order of programs, by polling": (
        "tl.atomic_poll(done_ptr, p); tl.store(y_ptr + tl.atomic_add(done_ptr, 1), 1.0 + p)",
        True,
    ),
    "in the order of programs, by atomic loads": (
        "while tl.atomic_load(done_ptr) != p:;     pass; tl.store(y_ptr + tl.atomic_add(done_ptr, 1), 1.0 + p)",
        True,
    ),
}


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, object]:
    script = tmp_path_factory.mktemp("interpreted") / "kernels.py"
    kernels = "".join(KERNEL.replace("LINE", line).replace("NAME", repr(line)) for line in LINES)
    bodies = "".join(f"found[{name!r}] = raced({body!r})\n" for name, (body, _) in BODIES.items())
    bodies += "".join(f"found[{name!r}] = ordered({body!r})\n" for name, (body, _) in ORDERED.items())
    script.write_text(f"{HEAD}{kernels}{RACES}{bodies}\nprint(json.dumps(found))\n")
    done = subprocess.run(
        [sys.executable, script],
        cwd=script.parent,
        env={**os.environ, "TRITON_INTERPRET": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    last: dict[str, object] = json.loads(done.stdout.splitlines()[-1])
    return last


@pytest.mark.parametrize("line", LINES)
def test_kernel_can_read_types_conditions_and_integers(found: dict[str, object], line: str) -> None:
    assert found[line] == LINES[line]


@pytest.mark.parametrize("name", BODIES)
def test_races_between_programs_are_counted(found: dict[str, object], name: str) -> None:
    assert found[name] == BODIES[name][1]


@pytest.mark.parametrize("name", ORDERED)
def test_execution_order_is_random_unless_a_program_waits(found: dict[str, object], name: str) -> None:
    assert (found[name] == NUMBERED) is ORDERED[name][1]
