"""Out-of-bounds loads, stores and gathers of interpreted launches, and masked lanes."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

HEAD = """
import importlib, json, torch
from kernelrl_plugin_triton import interpreted

def kernel(name, body):
    name = f"launch_{name}"
    source = f"@triton.jit\\ndef {name}(x_ptr, y_ptr, done_ptr, B: tl.constexpr):\\n    p = tl.program_id(0)\\n"
    source += "    at = tl.arange(0, B)\\n" + "".join(f"    {line}\\n" for line in body.split("; "))
    open(f"{name}.py", "w").write("import triton, triton.language as tl\\n" + source)
    return getattr(importlib.import_module(name), name)

def loaded(name, body, dtype):
    x, y = torch.ones(6, dtype=getattr(torch, dtype)), torch.zeros(8)
    try:
        kernel(name, body)[(1,)](x, y, torch.zeros(1, dtype=torch.int32), B=8)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return [str(number) for number in y.tolist()]

found = {}
"""
STORE = "tl.store(y_ptr + at, v.to(tl.float32))"
LOADS = {
    "fractions": (f"v = tl.load(x_ptr + at); {STORE}", "float32", [*["1.0"] * 6, "nan", "nan"]),
    "halves": (f"v = tl.load(x_ptr + at); {STORE}", "float16", [*["1.0"] * 6, "nan", "nan"]),
    "whole_numbers": (f"v = tl.load(x_ptr + at); {STORE}", "int32", [*["1.0"] * 6, "-1.0", "-1.0"]),
    "truths": (f"v = 1 - tl.load(x_ptr + at).to(tl.int32); {STORE}", "bool", ["0.0"] * 8),
    "one": (f"v = tl.load(x_ptr + 6) + at; {STORE}", "float32", ["nan"] * 8),
    "masked": (f"v = tl.load(x_ptr + at, mask=at < 6, other=2.0); {STORE}", "float32", [*["1.0"] * 6, "2.0", "2.0"]),
    "not_used": (
        f"v = tl.where(at < 6, tl.load(x_ptr + at), 3.0); {STORE}",
        "float32",
        [*["1.0"] * 6, "3.0", "3.0"],
    ),
    "left_out": (f"v = tl.load(x_ptr + at, mask=at < 5); {STORE}", "float32", [*["1.0"] * 5, "0.0", "0.0", "0.0"]),
    "left_out_twice": (
        "v = tl.load(x_ptr + at, mask=at < 6); tl.store(y_ptr + at, v * v, mask=at < 6)",
        "float32",
        [*["1.0"] * 6, "0.0", "0.0"],
    ),
    "times_zero": (f"v = tl.load(x_ptr + at) * (at < 6); {STORE}", "float32", [*["1.0"] * 6, "nan", "nan"]),
}

REFUSED = {
    "stored_outside": ("tl.store(y_ptr + at + 4, 1.0)", "IndexError: 4 of 8 elements are stored out of bounds"),
    "added_outside": ("tl.atomic_add(y_ptr + at - 1, 1.0)", "IndexError: 1 of 8 elements are stored out of bounds"),
    "stored_outside_but_masked": ("tl.store(y_ptr + at + 4, 1.0, mask=at < 4)", "['0.0', '0.0', '0.0', '0.0', '1.0'"),
}
GATHERS = {
    "neighbours": (f"v = tl.gather(at, (at + 7) % 8, 0); {STORE}", ["7.0", *(f"{n}.0" for n in range(7))]),
    "before_the_first": (
        f"v = tl.gather(at, at - 1, 0); {STORE}",
        "IndexError: 1 of 8 indices of tl.gather are out of bounds for an axis of 8 elements",
    ),
}


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, object]:
    script = tmp_path_factory.mktemp("launches") / "launches.py"
    loads = "".join(
        f"found[{name!r}] = loaded({name!r}, {body!r}, {dtype!r})\n" for name, (body, dtype, _) in LOADS.items()
    )
    loads += "".join(
        f"found[{name!r}] = loaded({name!r}, {body!r}, 'int32')\n"
        for name, (body, _) in (*GATHERS.items(), *REFUSED.items())
    )
    script.write_text(f"{HEAD}{loads}\nprint(json.dumps(found))\n")
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


@pytest.mark.parametrize("name", LOADS)
def test_out_of_bounds_loads_are_poisoned_and_masked_lanes_are_zero(found: dict[str, object], name: str) -> None:
    assert found[name] == LOADS[name][2]


@pytest.mark.parametrize("name", GATHERS)
def test_gather_index_must_be_within_the_axis(found: dict[str, object], name: str) -> None:
    assert found[name] == GATHERS[name][1]


@pytest.mark.parametrize("name", REFUSED)
def test_a_store_must_be_within_the_tensors_of_the_launch(found: dict[str, object], name: str) -> None:
    assert str(found[name]).startswith(REFUSED[name][1])
