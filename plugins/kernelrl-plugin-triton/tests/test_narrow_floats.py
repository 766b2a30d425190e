"""Interpreted operators of bfloat16 and float8 have the results of a device: each rounds once, to the nearest even."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import pytest

HEAD = """
import importlib, json, torch
import triton.language as tl
from kernelrl_plugin_triton import interpreted

bf16, fp8 = torch.bfloat16, {"e4m3": torch.float8_e4m3fn, "e5m2": torch.float8_e5m2}
torch.manual_seed(0)
codes = torch.arange(1 << 16).to(torch.uint16)
every_bf16, every_fp16 = codes.view(bf16), codes.view(torch.float16)
every_fp8 = {name: torch.arange(256).to(torch.uint8).view(kind) for name, kind in fp8.items()}
# Each value of bfloat16, and its neighbours in float32: below, at and above the middle to the next one.
near_bf16 = torch.cat([
    ((codes.to(torch.int64) << 16) + low).to(torch.uint32).view(torch.float32)
    for low in (1, 0x7FFF, 0x8000, 0x8001)
])
wide = every_bf16[torch.randperm(1 << 16)]
others, more = wide.roll(1), wide.roll(2)
few = torch.randn(256).to(bf16)
integers = torch.arange(-(1 << 15), 1 << 15, dtype=torch.int32)

HELPERS = '''
import triton, triton.language as tl

@triton.jit
def product(a, b):
    return a * b

@triton.jit
def recurrence(a1, b1, a2, b2):
    return a1 * a2, a2 * b1 + b2

@triton.jit
def larger(a, b):
    if a > b:
        r = a
    else:
        r = b
    return r

'''

def made(body):
    name = f"narrow_{made.count}"
    made.count += 1
    source = f"@triton.jit\\ndef {name}(x_ptr, y_ptr, z_ptr, out_ptr, B: tl.constexpr):\\n"
    source += "    at = tl.arange(0, B)\\n" + "".join(f"    {line}\\n" for line in body.split("; "))
    open(f"{name}.py", "w").write(HELPERS + source)
    return getattr(importlib.import_module(name), name)

made.count = 0

def launched(body, out, x, y=None, z=None, block=None):
    y, z = x if y is None else y, x if z is None else z
    made(body)[(1,)](x, y, z, out, B=block or x.numel())
    return out

def differing(found, expected):
    assert found.dtype == expected.dtype and found.shape == expected.shape
    found, expected = found.double(), expected.double()
    same = (found == expected) & (torch.signbit(found) == torch.signbit(expected))
    return int((~(same | (found.isnan() & expected.isnan()))).sum())

def elementwise(body, expected, x=wide, y=others, z=more):
    x, y, z = x.clone(), y.clone(), z.clone()
    expected = expected(x, y, z)
    load = "; ".join(f"{name} = tl.load({name}_ptr + at)" for name in "xyz")
    body = f"{load}; {body}; tl.store(out_ptr + at, r)"
    return differing(launched(body, torch.zeros_like(expected), x, y, z), expected)

def in_pairs(combine, x, dim=0):
    x = x.movedim(dim, 0)
    while len(x) > 1:
        x = combine(x[0::2], x[1::2])
    return x[0]

def doubling(combine, x):
    x, distance = x.clone(), 1
    while distance < len(x):
        x[distance:] = combine(x[distance:], x[:-distance].clone())
        distance *= 2
    return x

def refused(body, x):
    launched("x = tl.load(x_ptr + at); y = tl.load(y_ptr + at); " + body, torch.zeros(256), x)
    return "accepted"

def toward_zero():
    body = "tl.store(out_ptr + at, tl.load(x_ptr + at).to(tl.float8e5, fp_downcast_rounding='rtz'))"
    found = launched(body, torch.zeros(1 << 16).to(fp8["e5m2"]), every_fp16.float())
    high_byte = (codes.to(torch.int32) >> 8).to(torch.uint8).view(fp8["e5m2"]).float()
    return differing(found, high_byte.where(~every_fp16.isnan(), torch.nan).to(fp8["e5m2"]))

def matrices(kind):
    x = torch.randn(1024).to(fp8[kind])
    body = "x = tl.reshape(tl.load(x_ptr + at), (32, 32)); tl.store(out_ptr + at, tl.ravel(tl.dot(x, x)))"
    square = x.double().view(32, 32) @ x.double().view(32, 32)
    return differing(launched(body, torch.zeros(1024), x), square.float().view(-1))

def in_turn(values):
    totals = torch.zeros(2).to(bf16)
    for n, value in enumerate(values):
        totals[n % 2] += value
    return totals

def checked(name, check):
    try:
        found[name] = check()
    except Exception as error:
        found[name] = f"{type(error).__name__}: {error}"

found = {}
"""

OPERATORS = {
    "sum": ("r = x + y", "x + y"),
    "difference": ("r = x - y", "x - y"),
    "product": ("r = x * y", "x * y"),
    "quotient": ("r = (x / y).to(tl.bfloat16)", "x / y"),
    "negation": ("r = -x", "-x", "few"),
    "a constant": ("r = x * 2 + 1.7", "x * 2 + torch.tensor(1.7).to(bf16)"),
    "each operator rounds": ("r = x * y; r = r + z; r = r * y - x", "(x * y + z) * y - x", "few"),
    "absolute value": ("r = tl.abs(x)", "x.abs()"),
    "less": ("r = (x < y).to(tl.bfloat16)", "(x < y).to(bf16)"),
    "at most": ("r = (x <= y).to(tl.int8)", "(x <= y).to(torch.int8)"),
    "greater": ("r = (x > y).to(tl.int8)", "(x > y).to(torch.int8)"),
    "equal": ("r = (x == tl.abs(x)).to(tl.int8)", "(x == x.abs()).to(torch.int8)"),
    "unequal": ("r = (x != y).to(tl.int8)", "(x != y).to(torch.int8)"),
    "larger": ("r = tl.maximum(x, y).to(tl.bfloat16)", "torch.maximum(x, y)", "few"),
    "smaller": ("r = tl.minimum(x, y).to(tl.bfloat16)", "torch.minimum(x, y)", "few"),
    "clamp": ("r = tl.clamp(x, -tl.abs(y), tl.abs(y)).to(tl.bfloat16)", "x.clamp(-y.abs(), y.abs())", "few"),
    "selection": ("r = tl.where(x > y, x, z)", "torch.where(x > y, x, z)"),
    "fma": ("r = tl.fma(x, y, z)", "(x.double() * y.double() + z.double()).to(bf16)", "few"),
    "remainder": ("r = (x % y).to(tl.bfloat16)", "torch.fmod(x, y)", "few"),
    "float32 and back": ("r = (x.to(tl.float32) * y.to(tl.float32)).to(tl.bfloat16)", "x * y"),
    "to float16": ("r = x.to(tl.float16)", "x.half()"),
    "to float64": ("r = x.to(tl.float64)", "x.double()"),
    "to integers": ("r = (x * 100).to(tl.int32)", "(x * 100).int()", "few"),
    "bits": ("r = x.to(tl.int16, bitcast=True)", "x.view(torch.int16)"),
    "from bits": ("r = x.to(tl.bfloat16, bitcast=True)", "x.view(bf16)", "codes.view(torch.int16)"),
    "from float16": ("r = x.to(tl.bfloat16)", "x.to(bf16)", "every_fp16"),
    "from float32": ("r = x.to(tl.bfloat16)", "x.to(bf16)", "near_bf16"),
    "from float32, toward zero": (
        "r = x.to(tl.bfloat16, fp_downcast_rounding='rtz')",
        "(x.view(torch.int32) >> 16 << 16).view(torch.float32).to(bf16)",
        "every_bf16.float() * 1.003",
    ),
    "from float64, rounded once": (
        "r = x.to(tl.bfloat16)",
        "torch.full_like(x, 1 + 2.0 ** -7, dtype=bf16)",
        "torch.full((8,), 1 + 2.0 ** -8 + 2.0 ** -40, dtype=torch.float64)",
    ),
    "from integers": ("r = x.to(tl.bfloat16)", "x.to(bf16)", "integers"),
    "from truth values": ("r = (x > 0).to(tl.bfloat16)", "(x > 0).to(bf16)"),
    "sorted": ("r = tl.sort(x)", "x.sort().values", "few"),
    "running sum": ("r = tl.cumsum(x, 0, dtype=tl.bfloat16)", "doubling(torch.add, x)", "few"),
    "running sum, reversed": (
        "r = tl.cumsum(x, 0, reverse=True, dtype=tl.bfloat16)",
        "doubling(torch.add, x.flip(0)).flip(0)",
        "few",
    ),
    "running product": (
        "r = tl.associative_scan(x, 0, tl.standard._prod_combine)",
        "doubling(torch.mul, x)",
        "1 + few / 16",
    ),
    "recurrence": (
        "_, r = tl.associative_scan((x, y), 0, recurrence)",
        "torch.stack([total := y[0], *(total := a * total + b for a, b in zip(x[1:], y[1:]))])",
        "few",
    ),
    "gather": ("r = tl.gather(x, 255 - at, 0)", "x.flip(0)", "few"),
    "reshape": ("r = tl.ravel(tl.trans(tl.reshape(x, (16, 16))))", "x.view(16, 16).T.reshape(-1)", "few"),
    "join": ("a, b = tl.split(tl.join(x, y)); r = a - b", "x - y", "few"),
}
REDUCTIONS = {
    "sum of a block": ("tl.sum(x)", "in_pairs(torch.add, x)"),
    "sum in float32": ("tl.sum(x.to(tl.float32)).to(tl.bfloat16)", "x.double().sum().to(bf16)"),
    "sum of columns": (
        "tl.sum(tl.sum(tl.reshape(x, (8, 32)), 0), 0)",
        "in_pairs(torch.add, in_pairs(torch.add, x.view(8, 32)))",
    ),
    "sum of rows": (
        "tl.max(tl.sum(tl.reshape(x, (8, 32)), axis=1), 0).to(tl.bfloat16)",
        "in_pairs(torch.add, x.view(8, 32), 1).max()",
    ),
    "sum of all axes": (
        "tl.max(tl.sum(tl.reshape(x, (8, 32)), keep_dims=True)).to(tl.bfloat16)",
        "in_pairs(torch.add, in_pairs(torch.add, x.view(8, 32)))",
    ),
    "product": ("tl.reduce(x * 0.25 + 1, 0, product)", "in_pairs(torch.mul, x * 0.25 + 1)"),
    "own maximum": ("tl.reduce(x, 0, larger)", "x.max()"),
    "maximum": ("tl.max(x).to(tl.bfloat16)", "x.max()"),
    "minimum": ("tl.min(x, 0).to(tl.bfloat16)", "x.min()"),
    "place of the maximum": ("tl.argmax(x, 0).to(tl.bfloat16)", "x.argmax().to(bf16)"),
    "place of the minimum": ("tl.argmin(x, 0).to(tl.bfloat16)", "x.argmin().to(bf16)"),
    "maximum and place": ("tl.max(x, 0, return_indices=True)[0]", "x.max()"),
}
MEMORY = {
    "copy": "differing(launched('tl.store(out_ptr + at, tl.load(x_ptr + at))', torch.zeros_like(codes).view(bf16), "
    "every_bf16).view(torch.uint16), codes)",
    "masked": "differing(launched('tl.store(out_ptr + at, tl.load(x_ptr + at, mask=at < 9, other=1.7), mask=at < 99)', "
    "torch.zeros(256).to(bf16), few), torch.cat([few[:9], torch.full((90,), 1.7), torch.zeros(157)]).to(bf16))",
    "scalar": "differing(launched('tl.store(out_ptr, tl.load(x_ptr + 3) * 3 + tl.load(x_ptr + 4))', "
    "torch.zeros(1).to(bf16), few), few[3:4] * 3 + few[4:5])",
    "atomic addition": "differing(launched('tl.store(out_ptr + at, tl.atomic_add(y_ptr + at, tl.load(x_ptr + at)))', "
    "torch.zeros(256).to(bf16), few, sums := few.flip(0).clone()), few.flip(0)) + differing(sums, few + few.flip(0))",
    "atomic additions to one place": "differing(launched("
    "'tl.atomic_add(out_ptr + at % 2, tl.load(x_ptr + at), mask=at < 200)', "
    "torch.zeros(2).to(bf16), few), in_turn(few[:200]))",
    "atomic exchange": "differing(launched("
    "'tl.store(out_ptr, tl.atomic_cas(y_ptr, tl.load(x_ptr), tl.load(x_ptr + 1)))', "
    "torch.zeros(1).to(bf16), few, held := few[:1].clone()), few[:1]) + differing(held, few[1:2])",
    "descriptor": "differing(launched('d = tl.make_tensor_descriptor(x_ptr, [16, 16], [16, 1], [16, 16]); "
    "e = tl.make_tensor_descriptor(out_ptr, [16, 16], [16, 1], [16, 16]); e.store([0, 0], d.load([0, 0]) * 3)', "
    "torch.zeros(256).to(bf16), few), few * 3)",
    "outside": "int(launched('tl.store(out_ptr + at, tl.load(x_ptr + at))', torch.zeros(8).to(bf16), "
    "torch.ones(6).to(bf16), block=8).isnan().sum()) - 2",
    "product of matrices": "differing(launched('a = tl.reshape(tl.load(x_ptr + at), (16, 16)); "
    "tl.store(out_ptr + at, tl.ravel(tl.dot(a, a)).to(tl.bfloat16))', torch.zeros(256).to(bf16), few), "
    "(few.view(16, 16).double() @ few.view(16, 16).double()).float().to(bf16).view(-1))",
}
FLOAT8 = {
    "to float32": ("r = x.to(tl.float32)", "x.float()"),
    "to float16": ("r = x.to(tl.float16)", "x.half()"),
    "to bfloat16": ("r = x.to(tl.bfloat16)", "x.to(bf16)"),
    "from float16": ("r = x.to(y.dtype)", "x.clamp(-HIGH, HIGH).to(fp8[KIND])", "every_fp16"),
    "from bfloat16": ("r = x.to(y.dtype)", "x.float().clamp(-HIGH, HIGH).to(fp8[KIND])", "every_bf16"),
    "from float32": ("r = x.to(y.dtype)", "x.clamp(-HIGH, HIGH).to(fp8[KIND])", "near_bf16"),
    "bits": (
        "r = x.to(tl.uint8, bitcast=True)",
        "x.view(torch.uint8)",
        "torch.cat([every_fp8[KIND][:64], every_fp8[KIND][128:192]])",
    ),
    "absolute value": ("r = tl.abs(x)", "x.float().abs().to(fp8[KIND])"),
    "selection": (
        "r = tl.where(at < 9, x, 0.0)",
        "torch.where(torch.arange(256) < 9, x.float(), 0).to(fp8[KIND])",
    ),
    "zeros": ("r = tl.zeros((B,), x.dtype)", "torch.zeros(256).to(fp8[KIND])"),
    "arithmetic in float16": (
        "r = (x.to(tl.float16) * 3).to(y.dtype)",
        "(x.half() * 3).clamp(-HIGH, HIGH).to(fp8[KIND])",
    ),
}
OPERATOR = "CompilationError: Triton compiles no arithmetic and no comparison of fp8"
REFUSED = {
    "r = x + x": OPERATOR,
    "r = x * y": OPERATOR,
    "r = -x": OPERATOR,
    "r = x > y": OPERATOR,
    "r = tl.fma(x, y, x)": OPERATOR,
    "r = tl.clamp(x, x, y)": OPERATOR,
    "r = tl.sum(x)": OPERATOR,
    "r = tl.argmax(x, 0)": OPERATOR,
    "r = tl.cumsum(x, 0)": OPERATOR,
    "r = tl.sort(x)": OPERATOR,
    "r = tl.reduce(x, 0, product)": OPERATOR,
    "r = x.to(tl.float64)": "CompilationError: Triton compiles no cast of fp8",
    "r = x.to(tl.float32).to(x.dtype, fp_downcast_rounding='rtz').to(tl.float32)": {
        "e4m3": "CompilationError: Triton compiles no cast of fp32 to fp8e4nv with rounding toward zero",
        "e5m2": "accepted",
    },
    "r = x.to(tl.float32).to(tl.float8e4b15)": "NotImplementedError: float8e4b15 is not interpreted",
    "r = x.to(tl.float32).to(tl.float8e4b8)": "CompilationError: at ",
}
MORE = {
    "e5m2 toward zero": "toward_zero()",
    "e4m3 matrices": "matrices('e4m3')",
    "e5m2 matrices": "matrices('e5m2')",
}
HIGH = {"e4m3": "448.0", "e5m2": "57344.0"}
CHECKS = [*OPERATORS, *REDUCTIONS, *MEMORY, *(f"{kind} {name}" for kind in HIGH for name in FLOAT8), *MORE]


def checked(name: str, check: str) -> str:
    return f"checked({name!r}, lambda: {check})\n"


def of_operator(name: str, body: str, expected: str, data: str = "") -> str:
    given = ", few, few.roll(1), few.roll(2)" if data == "few" else f", *({data},) * 3" if data else ""
    return checked(name, f"elementwise({body!r}, lambda x, y, z: {expected}{given})")


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    script = tmp_path_factory.mktemp("narrow") / "narrow.py"
    calls = "".join(of_operator(name, *given) for name, given in OPERATORS.items())
    for name, (body, expected) in REDUCTIONS.items():
        launch = f"launched('x = tl.load(x_ptr + at); tl.store(out_ptr, {body})', torch.zeros(1).to(bf16), few)"
        calls += checked(name, f"differing({launch}, (lambda x: {expected})(few).reshape(1))")
    calls += "".join(checked(name, check) for name, check in MEMORY.items())
    for kind, high in HIGH.items():
        for name, (body, *texts) in FLOAT8.items():
            expected, data = (
                text.replace("KIND", repr(kind)).replace("HIGH", high) for text in [*texts, "every_fp8[KIND]"][:2]
            )
            y = f"torch.zeros(len({data})).to(fp8[{kind!r}])"
            calls += checked(f"{kind} {name}", f"elementwise({body!r}, lambda x, y, z: {expected}, {data}, {y}, {y})")
        for line in REFUSED:
            calls += checked(f"{kind} {line}", f"refused({line!r}, every_fp8[{kind!r}])")
    calls += "".join(checked(name, check) for name, check in MORE.items())
    script.write_text(f"{HEAD}{calls}\nprint(json.dumps(found))\n")
    done = subprocess.run(
        [sys.executable, script],
        cwd=script.parent,
        env={**os.environ, "TRITON_INTERPRET": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    last: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return last


@pytest.mark.parametrize("name", CHECKS)
def test_no_element_differs_from_the_result_of_a_device(found: dict[str, Any], name: str) -> None:
    assert found[name] == 0


@pytest.mark.parametrize("kind", HIGH)
@pytest.mark.parametrize("line", REFUSED)
def test_what_triton_does_not_compile_for_float8_is_refused(found: dict[str, Any], line: str, kind: str) -> None:
    reason = REFUSED[line]
    assert str(found[f"{kind} {line}"]).startswith(reason[kind] if isinstance(reason, dict) else reason)
