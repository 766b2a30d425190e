"""Kernels that misbehave: each has its outcome within its time limit, and the next correct kernel is correct."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator

import pytest
from shared_evaluations import KERNEL, Evaluations, kernel_with

from kernelrl_core.api.evaluators import Outcome
from kernelrl_testing.waiting import DEADLINE_S

LIMIT_S = 4.0
SHORT_LIMIT_S = 2.0
SHORT_BUILD_S = 2.0

MISBEHAVIOUR: dict[str, tuple[str, set[Outcome]]] = {
    "hangs": ("while True: pass", {Outcome.TIMEOUT}),
    "sleeps": ("import time; time.sleep(1000)", {Outcome.TIMEOUT}),
    "forks without end": (
        "import os\nwhile True:\n    try: os.fork()\n    except OSError: pass",
        {Outcome.TIMEOUT, Outcome.RUNTIME_ERROR, Outcome.OUT_OF_MEMORY},
    ),
    "allocates without end": (
        "kept = []\nwhile True: kept.append(bytearray(1 << 25))",
        {Outcome.OUT_OF_MEMORY},
    ),
    "allocates a huge tensor": ("torch.ones(1 << 40)", {Outcome.OUT_OF_MEMORY}),
    "leaves with status 0": ("import os; os._exit(0)", {Outcome.RUNTIME_ERROR}),
    "leaves politely": ("raise SystemExit(0)", {Outcome.RUNTIME_ERROR}),
    "faults": ("import ctypes; ctypes.string_at(0)", {Outcome.RUNTIME_ERROR}),
    "closes every descriptor": ("import os; os.closerange(0, 64)", {Outcome.RUNTIME_ERROR}),
    "writes garbage to every descriptor": (
        "import os\nfor f in range(3, 64):\n    try: os.write(f, b'KRL1 garbage' * 50)\n    except OSError: pass",
        {Outcome.HACKED, Outcome.RUNTIME_ERROR},
    ),
    "raises an exception without a description": (
        "class E(Exception):\n    def __str__(self): raise E()\n    __repr__ = __str__\nraise E()",
        {Outcome.RUNTIME_ERROR},
    ),
    "raises an endless message": (
        "raise RuntimeError('x' * (1 << 28))",
        {Outcome.RUNTIME_ERROR, Outcome.OUT_OF_MEMORY},
    ),
}
"""Lines at the beginning of `forward`, and the possible outcomes."""

HARMLESS = {
    "kills its parent and its group": "import os, signal\nos.kill(os.getppid(), 9)\nos.killpg(0, 9)",
    "prints without measure": "import sys\nfor _ in range(128): sys.stdout.write('x' * (1 << 20))",
    "leaves a process behind": "import os, time\nif os.fork() == 0:\n    os.setsid()\n    time.sleep(1000)",
    "leaves a thread behind": "import threading, time\nthreading.Thread(target=time.sleep, args=(1000,)).start()",
    "leaves a handler behind": "import atexit, time\natexit.register(time.sleep, 1000)",
    "patches comparison and clock": (
        "import time\ntorch.allclose = lambda *a, **k: True\ntime.time = time.monotonic = lambda: 0.0"
    ),
    "empties the modules": "import sys\nsys.modules.pop('kernelrl_judge.protocol.frames', None)",
}
"""Lines that have no effect on the outcome."""

IN_FORWARD = {
    "a thread that ends the process": (
        "import os, threading, time\nthreading.Thread(target=os._exit, args=(3,)).start()\ntime.sleep(1)"
    ),
    "a signal to every process": "import os\nos.kill(-1, 9)",
    "a signal to process 1": "import os\nos.kill(1, 9)",
    "a stop of its own process": "import os, signal\nos.kill(os.getpid(), signal.SIGSTOP)",
    "an abort": "import os\nos.abort()",
    "no standard streams": "import os\nos.closerange(0, 3)",
    "other files in the place of all": (
        "import os\nnull = os.open('/dev/null', os.O_RDWR)\nfor f in range(3, 64):\n    if f != null: os.dup2(null, f)"
    ),
    "files cut off": "import os\nfor f in range(3, 64):\n    try: os.ftruncate(f, 0)\n    except OSError: pass",
    "files that grow": "import os\nfor f in range(3, 64):\n    try: os.ftruncate(f, 1 << 40)\n    except OSError: pass",
    "output without end": "import os\nwhile True: os.write(1, b'x' * 65536)",
    "recursion": "def f(): return f()\nf()",
    "recursion beyond the stack": "import sys\nsys.setrecursionlimit(10**9)\ndef f(): return f()\nf()",
    "a BaseException": "class E(BaseException): pass\nraise E('x')",
    "an interrupt": "raise KeyboardInterrupt",
    "a message that cannot be encoded": "raise RuntimeError('\\ud800 \\x00 \\x1b[31m')",
    "a class that cannot be named": "raise type('\\ud800', (Exception,), {})('x')",
    "causes in a circle": "a, b = RuntimeError('a'), RuntimeError('b')\na.__context__, b.__context__ = b, a\nraise a",
    "a removed directory": "import os, shutil\nshutil.rmtree(os.getcwd(), ignore_errors=True)\nos.chdir('/')",
    "no files of its own": "import shutil\nshutil.rmtree('/tmp', True)\nshutil.rmtree('/dev/shm', True)",
    "every limit at zero": (
        "import resource\nfor r in range(16):\n    try: resource.setrlimit(r, (0, 0))\n"
        "    except (ValueError, OSError): pass"
    ),
    "no more files": "import resource\nresource.setrlimit(resource.RLIMIT_NOFILE, (0, 0))",
    "no more memory": "import resource\nresource.setrlimit(resource.RLIMIT_AS, (1, 1))",
    "signals that are blocked": (
        "import signal, time\nsignal.pthread_sigmask(signal.SIG_BLOCK, range(1, 65))\ntime.sleep(100)"
    ),
    "all descriptors in use": (
        "import os\nself.kept = []\ntry:\n    while True: self.kept.append(os.open('/dev/null', 0))\n"
        "except OSError: pass"
    ),
    "as many threads as there may be": (
        "import threading, time\ntry:\n"
        "    while True: threading.Thread(target=time.sleep, args=(99,), daemon=True).start()"
        "\nexcept RuntimeError: pass"
    ),
    "no modules": "import sys\nsys.modules.clear()",
    "no built-in functions": (
        "import builtins\nfor n in list(vars(builtins)):\n    if n[0] != '_': setattr(builtins, n, None)"
    ),
    "no torch": "for n in list(vars(torch)):\n    try: setattr(torch, n, None)\n    except Exception: pass",
    "tensors whose methods end the process": (
        "import sys\nfor n in dir(torch.Tensor):\n    try: setattr(torch.Tensor, n, sys.exit)\n"
        "    except Exception: pass"
    ),
    "a socket that sends nothing": "import socket\nsocket.socket.sendall = socket.socket.send = lambda *a: None",
    "traces that fail": "import sys\nsys.settrace(lambda *a: 1 / 0)\nsys.setprofile(lambda *a: 1 / 0)",
    "an audit hook that ends the process": "import sys\nsys.addaudithook(lambda *a: sys.exit())",
    "an alarm": "import signal\nsignal.setitimer(signal.ITIMER_REAL, 0.001)",
    "tensors without storage by default": "torch.set_default_device('meta')",
    "an input without storage": "x.untyped_storage().resize_(0)",
    "an input of another class": (
        "x.__class__ = type('X', (torch.Tensor,), {'__torch_function__': classmethod(lambda *a, **k: 1 / 0)})"
    ),
    "headers of the protocol with a wrong length": (
        "import os, time\nfrom kernelrl_judge.protocol.frames import HEADER, MAGIC\nfor f in range(3, 32):\n"
        "    try: os.write(f, HEADER.pack(MAGIC, 5, 1 << 20))\n    except OSError: pass\ntime.sleep(100)"
    ),
    "messages of the judge that it reads": (
        "import os\nfor f in range(3, 32):\n    try: os.set_blocking(f, False); os.read(f, 1 << 20)\n"
        "    except OSError: pass"
    ),
    "a device lease that it gives up": (
        "import socket\nfrom kernelrl_judge.protocol.frames import FrameKind, send\nfor f in range(3, 32):\n"
        "    try: send(socket.socket(fileno=f), FrameKind.COMPILING)\n    except OSError: pass"
    ),
    "a request for a build that is not needed": (
        "import json, socket\nfrom kernelrl_judge.protocol.frames import FrameKind, send\n"
        "lists = ('cpp_sources', 'device_sources', 'cflags', 'device_flags', 'ldflags', 'include_paths', 'functions')\n"
        "order = json.dumps({'name': 'x', **{name: [] for name in lists}}).encode()\nfor f in range(3, 32):\n"
        "    try: send(socket.socket(fileno=f), FrameKind.BUILD, order)\n    except OSError: pass"
    ),
    "a stop of every process": "import os, signal\nos.kill(os.getppid(), signal.SIGSTOP)\nos.kill(-1, signal.SIGSTOP)",
    "a debugger on every process": (
        "import ctypes\nlibc = ctypes.CDLL(None)\nfor pid in range(1, 300): libc.ptrace(16, pid, 0, 0)"
    ),
    "shared memory without end": (
        "f = open('/dev/shm/x', 'wb')\ntry:\n    while True: f.write(bytes(1 << 24))\nexcept OSError: f = None"
    ),
    "files without end": (
        "import os\ntry:\n    for n in range(10**9): open(os.environ['HOME'] + f'/{n}', 'wb').write(bytes(1 << 20))\n"
        "except OSError: pass"
    ),
    "a lack of memory that it reports": "raise MemoryError('\\0' * 99)",
    "an exception that cannot be read": (
        "class E(Exception):\n    def __getattribute__(self, n): raise SystemExit\n"
        "    __str__ = __repr__ = __reduce__ = __class_getitem__ = lambda *a: exit()\nraise E()"
    ),
    "an exception with a long name": "raise type('E' * (1 << 24), (Exception,), {})('x')",
    "exceptions in exceptions": ("e = ValueError('x')\nfor _ in range(20000): e = ExceptionGroup('x', [e])\nraise e"),
    "notes that are no text": "e = ValueError('x')\ne.__notes__ = [None, '\\udc80', object()] * 9999\nraise e",
    "a traceback without end": (
        "import sys\nsys.setrecursionlimit(20000)\ndef f(n): return f(n - 1) if n else 1 / 0\nf(9000)"
    ),
    "hooks that end the process": (
        "import sys\nsys.excepthook = sys.unraisablehook = sys.displayhook = lambda *a: exit()\nraise ValueError('x')"
    ),
    "streams that are nothing": "import sys\nsys.stdout = sys.stderr = sys.stdin = None",
    "another default dtype": (
        "torch.set_default_dtype(torch.float64)\ntorch.set_default_tensor_type('torch.DoubleTensor')"
    ),
    "thousands of threads of torch": "torch.set_num_threads(100000)",
    "a mode that ends the process": (
        "from torch.utils._python_dispatch import TorchDispatchMode\nclass M(TorchDispatchMode):\n"
        "    def __torch_dispatch__(self, *a): raise SystemExit\nM().__enter__()"
    ),
    "a CUDA that is not there": "torch.cuda.init()",
    "a library that is closed": (
        "import ctypes, torch\nl = ctypes.CDLL(torch._C.__file__)\nctypes.CDLL(None).dlclose(l._handle)"
    ),
    "a collector that is off and a heap that is freed": (
        "import ctypes, gc\ngc.disable()\nctypes.CDLL(None).free(ctypes.c_void_p(id(x)))"
    ),
    "another program": "import os\nos.execv('/bin/true', ['true'])",
}
"""Lines at the beginning of `forward`."""

RETURNED = {
    "nothing": "None",
    "an integer without end": "10 ** 400",
    "text that cannot be encoded": "'\\ud800'",
    "a thousand outputs": "[y] * 1000",
    "a list in itself": "(lambda l: (l.append(l), l)[1])([])",
    "more elements than memory": "torch.zeros(1).expand(1 << 31, 1 << 31)",
    "a tensor without storage": "torch.empty(300, device='meta')",
    "a sparse tensor": "y.to_sparse()",
    "an uncommon dtype": "y.to(torch.float8_e4m3fn)",
    "NaN everywhere": "y * float('nan')",
    "a nested tensor": "torch.nested.nested_tensor([y])",
    "a class that claims to be a tensor": (
        "type('H', (), {'__class__': torch.Tensor, '__getattr__': lambda s, n: exit()})()"
    ),
    "an object that ends the process when it is deleted": (
        "type('H', (), {'__del__': lambda s: __import__('os')._exit(1), '__reduce__': lambda s: exit()})()"
    ),
    "a list that ends the process": (
        "type('L', (list,), {'__iter__': lambda s: exit(), '__len__': lambda s: exit()})([y])"
    ),
    "values without end": "__import__('itertools').repeat(y)",
    "a complex tensor": "y.to(torch.complex64).conj()",
    "a tensor of 64 dimensions": "y.reshape((1,) * 63 + (300,))",
    "an empty tensor of a huge shape": "torch.empty(0, 1 << 40)",
    "a list that is deep": "__import__('functools').reduce(lambda l, _: [l], range(100000), y)",
    "a mapping whose keys cannot be compared": "{float('nan'): y, (): y, None: y}",
    "a tensor of another library": "y.to_mkldnn()",
    "a tensor that is quantized": "torch.quantize_per_tensor(y, 0.1, 0, torch.qint8)",
    "a fake tensor": "__import__('torch._subclasses', fromlist=['x']).FakeTensorMode().from_tensor(y)",
    "a subclass that computes": (
        "y.as_subclass(type('S', (torch.Tensor,), {'__torch_function__': classmethod(lambda *a, **k: exit())}))"
    ),
    "a view beyond its memory": "torch.as_strided(y, (300,), (0,))[None].expand(1 << 40, 300)",
    "memory that is freed": "(y.untyped_storage().resize_(0), y)[1]",
}
"""Result of `forward`."""

LOADED = {
    "ends at import": "import os; os._exit(0)\n",
    "exits at import": "import sys; sys.exit(0)\n",
    "is killed at import": "import os; os.kill(1, 9); os.abort()\n",
    "forks at import": "import os\nwhile True:\n    try: os.fork()\n    except OSError: pass\n",
    "never ends at import": "while True: pass\n",
    "loads itself": "import importlib.util as u\ns = u.spec_from_file_location('m', __file__)\n"
    "s.loader.exec_module(u.module_from_spec(s))\n",
    "computes at import": "x = 2 ** (10 ** 9)\n",
    "nests deeply": "x = " + "-" * 3000 + "1\n",
    "removes itself": "import os; os.remove(__file__)\n",
    "registers an end": "import atexit, os; atexit.register(os._exit, 1)\n",
}
"""Lines of the module before its class."""

REPLACED = {
    "declares another encoding": ("import torch\n", "# -*- coding: utf-7 -*-\nimport torch\n"),
    "is no class": ("class ModelNew(torch.nn.Module):", "ModelNew = 5\nclass Other(torch.nn.Module):"),
    "has no class": ("class ModelNew(torch.nn.Module):", "class Other(torch.nn.Module):"),
    "ends in the constructor": (
        "    def forward",
        "    def __init__(self): import os; os._exit(0)\n    def forward",
    ),
    "has a class that cannot be called": (
        "class ModelNew(torch.nn.Module):",
        "class M(type):\n    def __call__(cls, *a): raise SystemExit\nclass ModelNew(torch.nn.Module, metaclass=M):",
    ),
    "never ends in the constructor": (
        "    def forward",
        "    def __init__(self):\n        while True: pass\n    def forward",
    ),
    "never ends in the destructor": (
        "    def forward",
        "    def __del__(self):\n        while True: pass\n    def forward",
    ),
    "begins with a mark of the order of bytes": ("import torch\n", "\ufeffimport torch\n"),
    "contains half of a character": ("# HERE", "'\udc80'"),
    "is nested deeply": ("# HERE", "(" * 100_000),
    "has a literal of five megabytes": ("# HERE", f"'{'x' * 5_000_000}'"),
    "has a number of five megabytes": ("# HERE", "1" * 5_000_000),
    "hides its state": (
        "    def forward",
        "    def state_dict(self, *a): raise SystemExit\n    parameters = named_parameters = buffers = named_buffers = "
        "named_modules = eval = train = to = state_dict\n    def forward",
    ),
    "contains a zero byte": ("# HERE", "'\0'"),
}
"""Text of the correct kernel, and its replacement."""

ON_CPU = """\
#include <torch/extension.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>
#include <thread>
torch::Tensor f(torch::Tensor x, int64_t number) {
    auto y = torch::relu(x) * 2.0;
    auto impl = y.unsafeGetTensorImpl();
    volatile char *nowhere = nullptr;
    std::vector<int64_t> large{1L << 40}, negative{-5}, one{1};
    switch (number) {
        case 1: *nowhere = 1; break;
        case 2: exit(0);
        case 3: _exit(0);
        case 4: throw 5;
        case 5: throw std::runtime_error(std::string("\\xff\\xfe\\0", 3));
        case 6: __builtin_trap();
        case 7: kill(getppid(), 9); kill(-1, 9); break;
        case 8: return torch::Tensor();
        case 9: impl->set_sizes_and_strides(large, one); break;
        case 10: impl->set_sizes_and_strides(negative, one); break;
        case 11: impl->set_storage_offset(1L << 50); break;
        case 12: { char *p = (char *)malloc(16); for (int i = -64; i < 1 << 16; i++) p[i] = 65; free(p); break; }
        case 13: x.resize_({0}); break;
        case 14: for (;;) pause();
        case 15: abort();
        case 16: std::terminate();
        case 17: return f(x, number) + f(x, number);
        case 18: for (int i = 0; i < 1024; i++) close(i); break;
        case 19: raise(SIGSTOP);
        case 20: for (;;) if (fork() < 0) sleep(1);
        case 21: for (;;) memset(malloc(1 << 24), 1, 1 << 24);
        case 22: execl("/bin/true", "true", nullptr); break;
        case 23: std::thread([] { for (;;) pause(); }).detach(); break;
        case 24: std::thread([] { throw 5; }).detach(); sleep(1); break;
        case 25: atexit([] { for (;;) pause(); }); break;
        case 26: for (;;) putchar('x');
    }
    return y;
}
"""
IN_CPP = {
    "nothing": 0,
    "an access outside": 1,
    "an exit": 2,
    "an end": 3,
    "a number as an exception": 4,
    "a message that is no text": 5,
    "a trap": 6,
    "signals": 7,
    "an undefined tensor": 8,
    "a tensor beyond its memory": 9,
    "a negative size": 10,
    "an offset beyond its memory": 11,
    "a corrupt heap": 12,
    "an input of another size": 13,
    "a wait without end": 14,
    "an abort": 15,
    "a termination": 16,
    "a recursion without end": 17,
    "files that are closed": 18,
    "a stop": 19,
    "forks without end": 20,
    "memory without end": 21,
    "another program": 22,
    "a thread without end": 23,
    "an exception in a thread": 24,
    "an end that does not end": 25,
    "output without end": 26,
}
"""Action of the extension -> its number in the source."""

BUILT = {
    "a flag that is longer than a command": "extra_cflags=['-DX=' + 'A' * 300_000]",
    "a flag with a zero byte": "extra_cflags=['-DX=\\0']",
    "a flag that cannot be encoded": "extra_cflags=['-DX=' + chr(0xd800)]",
    "a function that cannot be encoded": "functions=[chr(0xd800)]",
    "brackets without end": "cpp_sources=['int x = ' + '(' * 30_000 + ';']",
    "an include of a device": "cpp_sources=['#include \"/dev/zero\"']",
    "an include of its input": "cpp_sources=['#include \"/dev/stdin\"']",
    "an include of a descriptor": "cpp_sources=['#include <fd/0>']",
    "an include of itself": "cpp_sources=['#include \"unit_main.cpp\"']",
    "an assembly that reads a device": 'cpp_sources=[\'asm(".incbin \\\\"/dev/zero\\\\"");\']',
    "an assembly without end": "cpp_sources=['asm(\".rept 2000000000\\\\nnop\\\\n.endr\");']",
    "an error about the disk": "cpp_sources=['#error No space left on device']",
    "an error about memory": "cpp_sources=['#error virtual memory exhausted: Cannot allocate memory']",
    "an array of a terabyte": "cpp_sources=['char a[1L << 40] = {1};']",
    "a macro that doubles": (
        "cpp_sources=['#define A0 1+1\\n' + ''.join(f'#define A{i + 1} A{i}+A{i}\\n' for i in range(40))"
        " + 'int a = A40;']"
    ),
    "templates without end": (
        "cpp_sources=['template <int A, int B, int C> struct U { static const long v = U<A - 1, B, C>::v"
        " + U<A, B - 1, C>::v + U<A, B, C - 1>::v; };"
        " template <int B, int C> struct U<0, B, C> { static const long v = 1; };"
        " template <int A, int C> struct U<A, 0, C> { static const long v = 1; }; template <int A, int B>"
        " struct U<A, B, 0> { static const long v = 1; }; long a = U<250, 250, 250>::v;']"
    ),
    "a crash of the compiler": "cpp_sources=['#pragma GCC optimize(\"no-such\")\\n' + 'a' * 1_000_000]",
    "a source with a zero byte": "cpp_sources=['int a; ' + chr(0)]",
    "a source beyond a message": "cpp_sources=['//' + 'x' * (1 << 21)]",
}
"""Arguments of `load_inline`."""


def cpp_candidate(build: str, result: str) -> str:
    """A candidate with a C++ extension.

    Args:
        build: arguments of `load_inline`.
        result: the expression that `forward` returns.
    """
    return f"""\
import torch
from torch.utils.cpp_extension import load_inline
SOURCE = r'''{ON_CPU}'''
extension = load_inline({build})


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return {result}
"""


CPP_EXTENSION = "name='e', cpp_sources=[SOURCE], functions=['f']"
HOSTILE_SOURCES = {
    **{f"forward: {name}": ("triton", kernel_with(lines)) for name, lines in IN_FORWARD.items()},
    **{
        f"returns {name}": ("triton", KERNEL.replace("return y", f"return {result}"))
        for name, result in RETURNED.items()
    },
    **{f"module: {name}": ("triton", kernel_with("pass", before=lines)) for name, lines in LOADED.items()},
    **{f"module {name}": ("triton", KERNEL.replace(*texts)) for name, texts in REPLACED.items()},
    **{
        f"C++: {name}": ("cpp", cpp_candidate(CPP_EXTENSION, f"extension.f(x, {number})"))
        for name, number in IN_CPP.items()
    },
    **{
        f"build: {name}": ("cpp", cpp_candidate(f"**{{**dict({CPP_EXTENSION}), **dict({arguments})}}", "x"))
        for name, arguments in BUILT.items()
    },
}
"""Backend and source by name."""


@pytest.mark.parametrize("name", MISBEHAVIOUR)
def test_a_kernel_that_misbehaves_has_its_outcome_and_the_next_is_correct(evaluations: Evaluations, name: str) -> None:
    lines, allowed = MISBEHAVIOUR[name]
    begin = time.monotonic()
    # A kernel that does not wait for the limit may take the time that a busy machine needs.
    limit_s = LIMIT_S if Outcome.TIMEOUT in allowed else DEADLINE_S
    evaluation = evaluations.evaluate(kernel_with(lines), timeout_s=limit_s, memory_mib=1024)
    assert evaluation.outcome in allowed, evaluation
    assert time.monotonic() - begin < LIMIT_S + DEADLINE_S
    assert len(evaluation.message) < 5000
    assert evaluations.evaluate(KERNEL).outcome is Outcome.CORRECT


@pytest.mark.parametrize("name", HARMLESS)
def test_misbehaviour_without_effect_does_not_change_the_outcome(
    evaluations_before_a_correct_one: Evaluations, name: str
) -> None:
    evaluations = evaluations_before_a_correct_one
    source = kernel_with(HARMLESS[name])
    allowed = {Outcome.CORRECT, Outcome.RUNTIME_ERROR} if name.startswith("kills") else {Outcome.CORRECT}
    assert evaluations.evaluate(source).outcome in allowed
    assert evaluations.evaluate(source.replace("* 2.0", "* 3.0")).outcome is not Outcome.CORRECT


@pytest.fixture(scope="module")
def evaluations_before_a_correct_one(evaluations: Evaluations) -> Iterator[Evaluations]:
    """The shared pool; after all tests that use it, a correct kernel is evaluated as correct."""
    yield evaluations
    assert evaluations.evaluate(KERNEL).outcome is Outcome.CORRECT


@pytest.mark.parametrize("name", HOSTILE_SOURCES)
def test_no_kernel_causes_an_infrastructure_error(evaluations_before_a_correct_one: Evaluations, name: str) -> None:
    backend, source = HOSTILE_SOURCES[name]
    if backend == "cpp" and shutil.which("g++") is None:
        pytest.skip("no C++ compiler")
    evaluation = evaluations_before_a_correct_one.evaluate(
        source,
        backend=backend,
        timeout_s=DEADLINE_S if name == "C++: nothing" else SHORT_LIMIT_S,
        memory_mib=1024,
        build_timeout_s=SHORT_BUILD_S if name.startswith("build:") else DEADLINE_S,
        build_memory_mib=1024,
    )
    assert evaluation.outcome is not Outcome.INFRA_ERROR
    if name == "build: templates without end":
        assert (evaluation.outcome, evaluation.final) == (Outcome.COMPILE_ERROR, False), evaluation
    # Without it the other extensions might have failed to build.
    assert evaluation.outcome is Outcome.CORRECT or name != "C++: nothing", evaluation
    assert "ended twice" not in evaluation.message


def test_the_environment_of_a_candidate_has_no_variables_of_kernelrl_or_the_user(evaluations: Evaluations) -> None:
    lines = "import os, sys\nraise RuntimeError(repr((sorted(os.environ), sys.argv, os.getcwd())))"
    message = evaluations.evaluate(kernel_with(lines)).detail
    for word in ("KERNELRL", "TOKEN", "SECRET", "KEY", "USER", "pytest"):
        assert word not in message


def test_a_wrong_kernel_that_replaces_the_comparison_is_incorrect(evaluations: Evaluations) -> None:
    source = kernel_with("torch.allclose = torch.equal = lambda *a, **k: True").replace("* 2.0", "* 2.5")
    assert evaluations.evaluate(source).outcome is Outcome.INCORRECT
