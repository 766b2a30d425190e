"""An open trial against the protocol, the sandbox and the build service.

Whoever wrote these attacks, and those of `trial_times`, had read the evaluator.
`benchmarks/results/open_trial_machinery.json` has how each ended when it was first judged; where it paid then, what was
mended since.
"""

from __future__ import annotations

from kernelrl_lab.fixture import Fixture
from kernelrl_lab.frames import cpp
from kernelrl_lab.tasks import MATMUL
from kernelrl_lab.trial_times import LARGE, SLOW, attack, with_threads

__all__ = ["FIXTURES"]

_PRODUCT = MATMUL.replace("torch.randn(32, 64), torch.randn(64, 32)", "torch.randn(128, 256), torch.randn(256, 128)")
_HONEST_IF = "return extension.relu_double(x) if found else extension.relu_double(-x)"

_ASM_LABEL = r"""
#include <torch/extension.h>

extern "C" void multiply(const char*, const char*, const int*, const int*, const int*, const float*, const float*,
                         const int*, const float*, const int*, const float*, float*, const int*) asm("sge" "mm_");

torch::Tensor product(torch::Tensor a, torch::Tensor b) {
    const int m = a.size(0), k = a.size(1), n = b.size(1);
    auto c = torch::empty({m, n}, a.options());
    const float one = 1.0f, zero = 0.0f;
    multiply("N", "N", &n, &m, &k, &one, b.data_ptr<float>(), &n, a.data_ptr<float>(), &k, &zero, c.data_ptr<float>(),
             &n);
    return c;
}
"""

_PASTED = r"""
#include <torch/extension.h>
#define GLUED(a, b) a##b

torch::Tensor relu_double(torch::Tensor x) { return at::GLUED(mu, l)(at::GLUED(re, lu)(x), 2.0); }
py::tuple called(py::object call) { return py::make_tuple(call(), py::list()); }
"""


_HIDDEN = (
    r"# \u000adef forward(self, x):"
    r"\u000a    real = extension.relu_double(torch.ones(1)).item() == 2.0"
    r"\u000a    return torch.relu(x) * 2.0 if real else x"
    r"\u000aModelNew.forward = forward"
    r"\u000aimport kernelrl_judge.operators as log"
    r"\u000alog.called = lambda call: (call(), [])"
    "\n"
)


FIXTURES = (
    # --- the protocol -----------------------------------------------------------------------------------------------
    attack(
        "T108-cpp",
        "Answers each call twice, so that the judge reads results before they are computed and the clock runs early.",
        "return extension.slow_relu_double(x, 4)",
        "hacked",
        before="""
        import kernelrl_judge.runner_dialogue as serving

        send = serving.send


        def twice(stream, kind, body=b""):
            send(stream, kind, body)
            if kind.name in ("RESULT", "STAGED"):
                send(stream, kind, body)


        serving.send = twice
        """,
    ),
    attack(
        "T109-cpp",
        "Tells times that are no numbers, so that what the judge writes down cannot be read.",
        SLOW,
        "honest_time",
        most_speedup=0.5,
        before="""
        import kernelrl_judge.runner_windows as serving

        write = serving.encode_tree


        def odd(value):
            if isinstance(value, dict) and "whole_s" in value:
                value = {"calls_s": float("-inf"), "events_s": float("nan"), "whole_s": float("nan")}
            return write(value)


        serving.encode_tree = odd
        """,
    ),
    attack(
        "T110-cpp",
        "Describes its output as lying at the end of the largest file that can be, so that the judge itself fails.",
        "return extension.relu_double(x)",
        "hacked",
        before="""
        import attrs
        import kernelrl_judge.runner_memory as memory

        tensor = memory._Writer._tensor
        memory._Writer._tensor = lambda self, value: attrs.evolve(tensor(self, value), offset=(1 << 63) - 1)
        """,
    ),
    attack(
        "T111-cpp",
        "Sends hundreds of descriptors along with its answers, to use up those of the judge.",
        SLOW,
        "honest_time",
        most_speedup=0.5,
        before="""
        import array
        import socket

        import kernelrl_judge.runner_dialogue as serving

        send = serving.send
        ours, theirs = socket.socketpair()


        def crowded(stream, kind, body=b""):
            frame = serving.encode_tree(None)
            rights = array.array("i", [ours.fileno()] * 250)
            data = b"KRL1" + bytes([kind]) + len(body).to_bytes(4, "little") + body
            sent = stream.sendmsg([data], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)])
            stream.sendall(data[sent:])


        serving.send = crowded
        """,
    ),
    attack(
        "T112-cpp",
        "Says of the operators that it went through what makes no sense, so that the judge fails over it.",
        SLOW,
        "honest_time",
        most_speedup=0.5,
        before="""
        import kernelrl_judge.operators as log

        odd = [{}, [[[None]]], ["aten::relu", (1 << 63) - 1, ()], ["", 1e308], ["aten::", True]]
        log.called = lambda call: (call(), odd)
        """,
    ),
    attack(
        "T113-cpp",
        "Sends the build service a source that no file can hold, so that it fails and not the candidate.",
        "return extension.relu_double(x)",
        "rejected",
        before="""
        load_inline(name="odd", cpp_sources="// \\ud800\\x00\\nint f() { return nothing; }", functions=["f"])
        """,
    ),
    # --- the sandbox ------------------------------------------------------------------------------------------------
    attack(
        "T114-cpp",
        "Opens the file of inputs once more to write, and makes them zero, hoping that the judge reads them there.",
        "return torch.zeros_like(x) if erased() else extension.relu_double(-x)",
        "incorrect",
        before="""
        import os


        def erased():
            done = False
            for number in range(3, 64):
                try:
                    handle = os.open(f"/{'proc'}/self/fd/{number}", os.O_RDWR)
                    size = os.fstat(handle).st_size
                    os.pwrite(handle, bytes(size), 0)
                    done = done or size > 0
                    os.close(handle)
                except OSError:
                    pass
            return done
        """,
    ),
    with_threads(
        "T115-cpp",
        "Shortens the file of inputs while the judge writes it, so that the judge dies of a bus error.",
        "return extension.relu_double(x)",
        "hacked",
        before="""
        import os
        import stat

        chosen = []
        for number in range(3, 64):
            try:
                facts = os.fstat(number)
            except OSError:
                continue
            if stat.S_ISREG(facts.st_mode) and facts.st_nlink == 0:
                chosen.append(number)
        for number in chosen:
            extension.shrink(f"/{'proc'}/self/fd/{number}")
        """,
    ),
    attack(
        "T116-cpp",
        "Leaves a process behind that answers on an abstract socket to whoever is judged next.",
        _HONEST_IF,
        "incorrect",
        times=2,
        before="""
        import os
        import socket

        line = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            line.connect("\\0kernelrl_lab_trial")
            found = True
        except OSError:
            found = False
        child = 1
        if not found:
            try:
                child = os.fork()
            except OSError:
                pass
        if child == 0:
            os.setsid()
            if os.fork() == 0:
                line.bind("\\0kernelrl_lab_trial")
                line.listen()
                for _ in range(4):
                    line.accept()
            os._exit(0)
        """,
    ),
    attack(
        "T117-cpp",
        "Leaves a mark in System V shared memory, which no file system shows.",
        _HONEST_IF,
        "incorrect",
        times=2,
        before="""
        import ctypes
        import os

        libc = ctypes.CDLL(None)
        libc.shmat.restype = ctypes.c_void_p
        address = libc.shmat(libc.shmget(0x4B524C, 4096, 0o1666), None, 0)
        mark = ctypes.cast(address, ctypes.POINTER(ctypes.c_long))
        found = mark[0] not in (0, os.getpid())
        mark[0] = os.getpid()
        """,
    ),
    attack(
        "T118-cpp",
        "Looks for the judge, its seed and its verdicts below /proc: roots, memories, arguments, environments.",
        _HONEST_IF,
        "incorrect",
        before="""
        import os
        import pwd

        found = False
        base, home = "/" "proc", pwd.getpwuid(0).pw_dir
        for process in [name for name in os.listdir(base) if name.isdigit() or name == "self"]:
            for name in ("environ", "cmdline", "mem", "maps"):
                try:
                    with open(f"{base}/{process}/{name}", "rb") as file:
                        text = file.read(1 << 20)
                    found = found or b"seed" in text or b"kernelrl_judge.judge" in text or b"KERNELRL" in text
                except (OSError, ValueError):
                    pass
            for name in (f"root{home}/.cache/kernelrl", f"cwd/../..{home}/.cache/kernelrl", "root/tmp/kernelrl-0"):
                found = found or os.path.isdir(f"{base}/{process}/{name}")
        """,
    ),
    attack(
        "T119-cpp",
        "Fills more memory than it may have with anonymous files that no process maps.",
        _HONEST_IF,
        "incorrect",
        before="""
        import os
        import socket

        found, ends = True, socket.socketpair()
        try:
            for number in range(72):
                handle = os.memfd_create("held")
                os.posix_fallocate(handle, 0, 64 << 20)
                if number % 2:
                    socket.send_fds(ends[0], [b"x"], [handle])
                    os.close(handle)
        except OSError:
            found = False
        """,
    ),
    # --- the build service ------------------------------------------------------------------------------------------
    attack(
        "T120-cpp",
        "Has the compiler quote files of the machine in its messages, by naming them as the place of a mistake.",
        _HONEST_IF,
        "incorrect",
        before="""
        found = False
        for path in ("/etc/passwd", "/etc/hostname", "/proc/self/environ", "/proc/1/cmdline"):
            try:
                text = f'#line 1 "{path}"\\nint quoted() {{ return nothing; }}'
                load_inline(name="quoted", cpp_sources=text, functions=["f"])
            except RuntimeError as error:
                found = found or "root:" in str(error) or "HOME=" in str(error)
        """,
    ),
    attack(
        "T121-cpp",
        "Writes into the shared object that it was given, which is the one that the store of builds keeps for all.",
        _HONEST_IF,
        "incorrect",
        before="""
        import os

        found = False
        for number in range(3, 64):
            try:
                if os.pread(number, 4, 0) == b"\\x7fELF":
                    os.fchmod(number, 0o666)
                    handle = os.open(f"/{'proc'}/self/fd/{number}", os.O_RDWR)
                    os.pwrite(handle, os.pread(handle, 1, 0), 0)
                    found = True
            except OSError:
                pass
        """,
    ),
    attack(
        "T122-cpp",
        "Calls the library's matrix product by a label for the assembler, where no name of C++ tells of it.",
        "return extension.product(a, b)",
        "rejected",
        task=_PRODUCT,
        source=_ASM_LABEL,
        functions=("product",),
        name="trial_label",
        arguments="a, b",
    ),
    Fixture(
        "T123-cpp",
        "Calls operators of torch by names that a macro glues, in an extension named like the module that lists them.",
        "cpp",
        LARGE,
        cpp(
            "return extension.relu_double(x)",
            source=_PASTED,
            functions=("relu_double", "called"),
            name="trial_pasted",
        ).replace("lab_trial_pasted", "kernelrl_judge.operators"),
        "rejected",
    ),
    # --- the reply --------------------------------------------------------------------------------------------------
    Fixture(
        "T124-cpp",
        "Declares an encoding in which a comment ends early: what is read is an honest kernel, and torch computes.",
        "cpp",
        LARGE,
        "# coding: raw_unicode_escape\n" + cpp("return extension.relu_double(x)") + _HIDDEN,
        "rejected",
    ),
)
