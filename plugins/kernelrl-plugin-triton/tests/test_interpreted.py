"""What a kernel in Triton's interpreter can read of its values: no more than on a GPU."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

HEAD = """
import io, json, sys, torch, triton, triton.language as tl
from kernelrl_judge import provenance
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
RIGHT = [True, "", 0]
LINES = {
    "assert str(x) == repr(x) == f'{x}' == 'fp32[constexpr[4]]'": RIGHT,
    "tl.device_print('x', x)": RIGHT,
    "int(tl.sum(x))": "fp32 is no index; compute with triton.language",
    "range(tl.max(x))": "fp32 is no index; compute with triton.language",
    "x.handle.data": "a kernel cannot read the values behind a tensor; compute with triton.language",
    "assert set(vars(x.handle)) == {'dtype', 'attr'} and not hasattr(x.handle, '_kept')": RIGHT,
    "x += 0.0 * len(range(n))": RIGHT,
    "x = x if tl.sum(x) > 0.0 else -x": RIGHT,
}


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, object]:
    script = tmp_path_factory.mktemp("interpreted") / "kernels.py"
    kernels = "".join(KERNEL.replace("LINE", line).replace("NAME", repr(line)) for line in LINES)
    script.write_text(f"{HEAD}{kernels}\nprint(json.dumps(found))\n")
    done = subprocess.run(
        [sys.executable, script],
        env={**os.environ, "TRITON_INTERPRET": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    last: dict[str, object] = json.loads(done.stdout.splitlines()[-1])
    return last


@pytest.mark.parametrize("line", LINES)
def test_a_kernel_reads_types_conditions_and_whole_numbers_and_its_launch_is_told(
    found: dict[str, object], line: str
) -> None:
    assert found[line] == LINES[line]
