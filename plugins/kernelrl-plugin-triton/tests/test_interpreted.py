"""Interpreted kernels have the results of compiled ones, in any order of their programs."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

HEAD = """
import importlib, json, torch
import triton.language as tl
from kernelrl_judge.runner.reordering import reordered
from kernelrl_plugin_triton import interpreted

FUNCTIONS = '''
import triton, triton.language as tl
from triton.language.extra import libdevice

LOG2E = tl.constexpr(1.5)
convert = tl.cast

@triton.jit
def least(kind: tl.constexpr):
    return -1.0 if kind.value.is_fp32() else 0.0

'''

def made(body):
    name = f"r{len(found)}"
    source = f"@triton.jit\\ndef {name}(x_ptr, y_ptr, done_ptr, scale, B: 'tl.constexpr'):\\n"
    source += "    p = tl.program_id(0)\\n"
    source += "    at = tl.arange(0, B)\\n" + "".join(f"    {line}\\n" for line in body.split("; "))
    open(f"{name}.py", "w").write(FUNCTIONS + source)
    return getattr(importlib.import_module(name), name)

def launched(body, programs):
    y = torch.zeros(32)
    arguments = torch.arange(32.0), y, torch.zeros(1, dtype=torch.int32), 0.1
    made(body)[(programs,)](*arguments, B=8)
    return [str(number) for number in y[:8].tolist()]

def ordered(body):
    with reordered(threads=0):
        return launched(body, 8)

found = {}
"""
NUMBERS = "x = tl.load(x_ptr + at); "
STORE = "; tl.store(y_ptr + at, y)"
RESULTS = {
    "and is bitwise": ("y = ((x > 1.0) and (x < 6.0)).to(tl.float32)", [0, 0, 1, 1, 1, 1, 0, 0]),
    "or is bitwise": ("y = (x < 2.0 or x > 5.0).to(tl.float32)", [1, 1, 0, 0, 0, 0, 1, 1]),
    "not is bitwise": ("y = (not (x < 2.0)).to(tl.float32)", [0, 0, 1, 1, 1, 1, 1, 1]),
    "a constant decides": ("y = x if B == 4 and x else 2.0 * x", [2 * n for n in range(8)]),
    "a scalar is float32": (
        "y = x * 0.0 + (scale.to(tl.float64) - 0.1).to(tl.float32) * 1e9",
        [1.4901161193847656] * 8,
    ),
    "a constant times a block": ("y = tl.abs(LOG2E * x) - LOG2E", [1.5 * n - 1.5 for n in range(8)]),
    "a block and a scalar": (
        "y = tl.where((at < 6) & (p < 8), 1.0, 0.0) + tl.load(x_ptr + at, (at < 6) & (p < 8))",
        [1, 2, 3],
    ),
    "a function of the language under another name": ("y = convert(x * 0.5, tl.int32).to(tl.float32)", [0, 0, 1, 1]),
    "the value of a constant": ("y = x + least(x_ptr.dtype.element_ty)", [-1, 0, 1, 2]),
    "a masked load": ("y = tl.load(x_ptr + at, mask=at < 5) + 1.0", [1, 2, 3, 4, 5, 1, 1, 1]),
    "libdevice": ("y = libdevice.floor(libdevice.pow(x, 2.0) + libdevice.erf(x))", [0, 1, 4, 9, 17, 26, 37, 50]),
    "libdevice of integers and of named roundings": (
        "y = libdevice.div_rn(libdevice.pow(x, 2), 2.0) + libdevice.saturatef(x) + libdevice.llrint(x / 8) * 0.0",
        [0, 1.5, 3, 5.5, 9, 13.5, 19, 25.5],
    ),
    "tf32": (
        "y = tl.sum(tl.dot(tl.full((16, 16), 1.0 + 0.0001, tl.float32), tl.full((16, 16), 1.0, tl.float32)))",
        [4096.0],
    ),
    "products of bfloat16": (
        "a = tl.full((16, 16), 1.0078125, tl.bfloat16); y = tl.max(tl.dot(a, tl.full((16, 16), 1.0, tl.bfloat16)))",
        [16.125],
    ),
    "rounding to bfloat16": (
        "y = (x + 0.99).to(tl.bfloat16).to(tl.float32)",
        [0.98828125, 1.9921875, 2.984375, 3.984375],
    ),
    "a bound of the launch": ("for i in range(p + 2):;     x += 1.0; y = x", [2, 3, 4, 5, 6, 7, 8, 9]),
    "hints of range": ("for i in range(0, 2, flatten=True):;     x += 1.0; y = x", [2, 3, 4, 5, 6, 7, 8, 9]),
    "a function of constants": ("for i in tl.static_range(triton.cdiv(B, 4)):;     x += 1.0; y = x", [2, 3, 4, 5]),
    "ieee": (
        "a = tl.full((16, 16), 1.0 + 0.125 / 1024, tl.float32); "
        "y = tl.max(tl.dot(a, a * 0.0 + 1.0, input_precision='ieee'))",
        [16.001953125],
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
    "in the order of programs, by atomic loads": (
        "while tl.atomic_load(done_ptr) != p:;     pass; tl.store(y_ptr + tl.atomic_add(done_ptr, 1), 1.0 + p)",
        True,
    ),
    "a value that the program stored itself": (
        "tl.store(y_ptr + p, 1.0); tl.store(y_ptr + p, tl.load(y_ptr + p) + p)",
        True,
    ),
    "a value that another program stored": (
        "tl.store(x_ptr + p, 1.0 + p); tl.store(y_ptr + p, tl.load(x_ptr + (p + 1) % 8) * 0.0 + 1.0 + p)",
        False,
    ),
    "a value that all programs stored": (
        "tl.store(x_ptr + at, 1.0 + at); tl.store(y_ptr + p, tl.load(x_ptr + p))",
        True,
    ),
    "a sum in one place": ("tl.store(y_ptr, tl.load(y_ptr) + 1.0); tl.store(y_ptr + 1 + p, 2.0 + p)", False),
    "a sum in one place, under a lock": (
        "while tl.atomic_cas(done_ptr, 0, 1) == 1:;     pass; "
        "s = tl.load(x_ptr); tl.store(x_ptr, s + 0.0); tl.atomic_xchg(done_ptr, 0); tl.store(y_ptr + p, 1.0 + p)",
        True,
    ),
    "values that the last program collects": (
        "tl.store(x_ptr + p, 1.0 + p); s = tl.atomic_add(done_ptr, 1); if s == 7:; "
        "    tl.store(y_ptr + at, tl.load(x_ptr + at))",
        True,
    ),
}


PROPERTIES = """
from triton.runtime import driver
with torch.cuda.device(torch.zeros(1).device):
    found["a GPU"] = [
        str(torch.cuda.get_device_properties(0).multi_processor_count > 1),
        str(torch.cuda.get_device_capability()[0] >= 8),
        driver.active.get_current_target().backend,
        str(driver.active.utils.get_device_properties(torch.cuda.current_device())["max_shared_mem"] > 1024),
        str(torch.nn.Parameter(torch.zeros(1)).is_cuda),
    ]
"""


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    script = tmp_path_factory.mktemp("interpreted") / "kernels.py"
    calls = "".join(
        f"found[{name!r}] = launched({NUMBERS + body + STORE!r}, 1)\n" for name, (body, _) in RESULTS.items()
    )
    for name, (body, _) in ORDERED.items():
        calls += "if hasattr(tl, 'atomic_load'):\n    " if "atomic_load" in body else ""
        calls += f"found[{name!r}] = ordered({body!r})\n"
    script.write_text(f"{HEAD}{calls}{PROPERTIES}\nprint(json.dumps(found))\n")
    done = subprocess.run(
        [sys.executable, script],
        cwd=script.parent,
        env={**os.environ, "TRITON_INTERPRET": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    last: dict[str, list[str]] = json.loads(done.stdout.splitlines()[-1])
    return last


@pytest.mark.parametrize("name", RESULTS)
def test_result_is_that_of_compiled_code(found: dict[str, list[str]], name: str) -> None:
    expected = RESULTS[name][1]
    assert [float(number) for number in found[name]][: len(expected)] == expected


def test_code_that_reads_properties_of_a_gpu_finds_some(found: dict[str, list[str]]) -> None:
    assert found["a GPU"] == ["True", "True", "cuda", "True", "True"]


@pytest.mark.parametrize("name", ORDERED)
def test_output_must_not_depend_on_the_order_of_programs(found: dict[str, list[str]], name: str) -> None:
    if name not in found:
        pytest.skip("this version of Triton has no atomic loads")
    assert ([float(number) for number in found[name]] == NUMBERED) is ORDERED[name][1]
