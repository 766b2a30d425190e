"""A runner finds nothing of the reference, the input seed, an expected output or the user's keys."""

from __future__ import annotations

import ast
import struct
from pathlib import Path

from shared_evaluations import Evaluations, kernel_with

import kernelrl_judge

MARK = "reference_marker_7f3a"
NUMBER = 48151.62342
SEED = "5eed" * 8

REFERENCE = f"""\
import torch
import torch.nn as nn


class Model(nn.Module):
    {MARK} = "{MARK}"

    def forward(self, x):
        return torch.zeros_like(x) + {NUMBER}


def get_inputs():
    return [torch.randn(300)]


def get_init_inputs():
    return []
"""

SEARCH = """\
import ctypes, gc, os, sys
# PR_SET_DUMPABLE: the process may read its own memory and environment.
ctypes.CDLL(None).prctl(4, 1, 0, 0, 0)
words = ["_".join(["reference", "marker", "7f3a"]).encode(), b"".join([b"5e", b"ed"] * 5)]
number = bytes.fromhex("NUMBER")
found = []
def look(data, where):
    for word in words:
        if word in data: found.append((where, word))
    if number in data: found.append((where, "number"))
for name, module in list(sys.modules.items()):
    if name.startswith("kernelrl_task"): found.append((name, "module"))
for thing in gc.get_objects():
    if type(thing) is dict:
        for value in list(thing.values()):
            if type(value) is str: look(value.encode("utf-8", "replace"), "dict")
    if isinstance(thing, torch.Tensor) and thing.dtype == torch.float32 and thing.numel():
        look(thing.detach().reshape(-1)[:64].numpy().tobytes(), "tensor")
frame = sys._getframe().f_back
while frame is not None:
    look(repr(list(frame.f_locals.values()))[:100000].encode("utf-8", "replace"), "frame")
    frame = frame.f_back
look(repr((sys.argv, dict(os.environ))).encode(), "argv and environment")
for pid in os.listdir("/proc"):
    if pid.isdigit():
        if int(pid) > 500: found.append((pid, "a process of another namespace"))
        look(open(f"/proc/{pid}/cmdline", "rb").read(), "cmdline")
        look(open(f"/proc/{pid}/environ", "rb").read(), "environ")
for name in os.listdir("/proc/self/fd"):
    try:
        if os.readlink(f"/proc/self/fd/{name}").startswith("/memfd"):
            size = os.fstat(int(name)).st_size
            look(os.pread(int(name), min(size, 1 << 22), 0), "shared file")
    except OSError:
        pass
for folder, _, files in os.walk(os.environ["HOME"]):
    for name in files:
        if not name.startswith("candidate."): look(open(os.path.join(folder, name), "rb").read(), name)
total = 0
for line in open("/proc/self/maps"):
    area, rights = line.split()[:2]
    start, end = (int(part, 16) for part in area.split("-"))
    if rights.startswith("rw") and (total < 64 << 20 or "[stack" in line) and "[vvar" not in line:
        try:
            with open("/proc/self/mem", "rb", 0) as memory:
                memory.seek(start)
                data = memory.read(min(end - start, 8 << 20))
            total += len(data)
            # The two halves are never joined here, so that the search does not find itself.
            place = data.find(b"value-of-a-")
            while place >= 0:
                if data[place + 11 : place + 15] == b"key-": found.append((area, "key of the user"))
                place = data.find(b"value-of-a-", place + 1)
            place = data.find(b"class Model(nn.Mod")
            while place >= 0:
                if data[place + 18 : place + 24] == b"ule):" + bytes([10]): found.append((area, "source"))
                place = data.find(b"class Model(nn.Mod", place + 1)
        except (OSError, OverflowError, ValueError):
            pass
raise RuntimeError(f"found {found} in {total >> 20} MiB")
"""


def test_a_searching_kernel_finds_nothing(evaluations: Evaluations) -> None:
    number = struct.pack("<f", NUMBER).hex()
    evaluation = evaluations.evaluate(
        kernel_with(SEARCH.replace("NUMBER", number)), REFERENCE, seed=SEED, timeout_s=60.0
    )
    assert "found [] in" in evaluation.detail, evaluation.detail


def test_a_candidate_sees_only_its_own_processes(evaluations: Evaluations) -> None:
    lines = "import os\nraise RuntimeError(sorted(int(p) for p in os.listdir('/proc') if p.isdigit()))"
    evaluation = evaluations.evaluate(kernel_with(lines))
    if "pid_namespace" not in evaluation.isolation.missing and "mount_namespace" not in evaluation.isolation.missing:
        assert "RuntimeError: [1]" in evaluation.detail


def test_the_judge_unpickles_nothing_and_executes_only_the_source_of_a_task() -> None:
    package = Path(kernelrl_judge.__file__).parent
    modules = sorted(package.rglob("*.py"))
    assert len(modules) > 50
    for path in modules:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import | ast.ImportFrom):
                names = {alias.name for alias in node.names} | {getattr(node, "module", "") or ""}
                assert not names & {"pickle", "marshal", "shelve", "dill", "cloudpickle"}, path
            if isinstance(node, ast.Call):
                called = ast.unparse(node.func)
                assert called not in ("torch.load", "eval", "pickle.loads", "marshal.loads"), path
                if called == "exec":
                    # The second one runs in the sandbox, with references of others.
                    assert path in (package / "task/source.py", package / "runner/reference_calls.py")
