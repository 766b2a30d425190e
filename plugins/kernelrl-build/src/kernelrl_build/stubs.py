"""The host side of kernels: a stub for each and the registration of their machine code. Also reads the report of ptxas.

The host side that a device compiler generates for a kernel is short: a function with the name of the kernel, which
fetches the launch configuration and launches itself; and its registration with the runtime, under the name of the
machine code. This module generates it instead, so the device compiler need not compile the source a second time for the
host, which is more than half of its work.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from kernelrl_build.kernel_syntax import function_name, named, parameters, pieces
from kernelrl_build.lexing import Item

__all__ = ["assembly", "prelude", "read_resources", "stub_body"]

_FRAME = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
_USED = re.compile(r"Used (\d+) registers(?:.*?(\d+) bytes smem)?")
_PRELUDE = """\
extern "C" {
void** __cudaRegisterFatBinary(void*);
void __cudaRegisterFatBinaryEnd(void**);
void __cudaUnregisterFatBinary(void**);
void __cudaRegisterFunction(void**, const char*, char*, const char*, int, void*, void*, void*, void*, int*);
cudaError_t __cudaPopCallConfiguration(dim3*, dim3*, size_t*, void*);
struct kernelrl_kernel_INDEX { const char* stub; char* name; };
extern kernelrl_kernel_INDEX kernelrl_kernels_INDEX[] __attribute__((visibility("hidden")));
extern char kernelrl_binary_INDEX[] __attribute__((visibility("hidden")));
}
namespace kernelrl {
namespace {
struct Registration_INDEX {
  void** handle;
  Registration_INDEX() : handle(__cudaRegisterFatBinary(kernelrl_binary_INDEX)) {
    for (kernelrl_kernel_INDEX* kernel = kernelrl_kernels_INDEX; kernel->stub; ++kernel)
      __cudaRegisterFunction(handle, kernel->stub, kernel->name, kernel->name, -1, 0, 0, 0, 0, 0);
    __cudaRegisterFatBinaryEnd(handle);
  }
  ~Registration_INDEX() { __cudaUnregisterFatBinary(handle); }
} registration_INDEX;
}
template <typename... A> inline void launch(void (*kernel)(A...), void** arguments) {
  dim3 grid, block;
  size_t shared;
  cudaStream_t stream;
  if (__cudaPopCallConfiguration(&grid, &block, &shared, &stream) == cudaSuccess)
    ::cudaLaunchKernel(reinterpret_cast<const void*>(kernel), grid, block, arguments, shared, stream);
}
}
"""


def prelude(index: int) -> str:
    """The first lines of a host unit with stubs; `index` is the number of its device source."""
    return _PRELUDE.replace("INDEX", str(index))


def stub_body(kernel: Item) -> str | None:
    """Body of a kernel's stub, or None if its parameters are not understood."""
    words, address = kernel.words, f"&{function_name(kernel)}"
    given = parameters(kernel)
    if given is None or "requires" in words:
        return None
    names = [named(piece) for piece in given]
    if words[0] == "template":
        instance = [named(piece, of_template=True) for piece in pieces(words[2:], ">") or [[]]]
        if not all(instance) or words.count("template") > 1:
            return None
        address += f"<{', '.join(instance)}>"
    if not all(names):
        return None
    pointers = "".join(f"(void*)&{name}, " for name in names)
    launch = f"::kernelrl::launch({address}, kernelrl_arguments);"
    return f" {{ void* kernelrl_arguments[] = {{ {pointers}nullptr }}; {launch} }}"


def assembly(index: int, file: str, kernels: Iterable[str]) -> str:
    """The machine code in `file` and the table of its kernels, as source for the assembler."""
    names = sorted(kernels)
    table = "".join(f"\t.quad {name}\n\t.quad .Lname{number}\n" for number, name in enumerate(names))
    texts = "".join(f'.Lname{number}:\n\t.asciz "{name}"\n' for number, name in enumerate(names))
    return f"""\
\t.section .nv_fatbin,"a"
\t.balign 8
.Lmachine_code:
\t.incbin "{file}"
\t.section .nvFatBinSegment,"aw"
\t.balign 8
\t.globl kernelrl_binary_{index}
\t.hidden kernelrl_binary_{index}
kernelrl_binary_{index}:
\t.long 0x466243b1
\t.long 1
\t.quad .Lmachine_code
\t.quad 0
\t.data
\t.balign 8
\t.globl kernelrl_kernels_{index}
\t.hidden kernelrl_kernels_{index}
kernelrl_kernels_{index}:
{table}\t.quad 0
\t.quad 0
\t.section .rodata
{texts}\t.section .note.GNU-stack,"",@progbits
"""


def read_resources(log: str) -> dict[str, dict[str, Any]]:
    """Registers, spills, stack and static shared memory of each kernel by its symbol, from the report of ptxas.

    Names are shortened to those in the source.
    """
    found = {}
    for report in log.split("Compiling entry function '")[1:]:
        symbol = report.partition("'")[0]
        _, _, properties = report.partition(f"Function properties for {symbol}\n")
        frame, used = _FRAME.match(properties.lstrip()), _USED.search(report)
        kernel: dict[str, Any] = {"name": _short(symbol)}
        if frame:
            names = ("stack_bytes", "spill_stores_bytes", "spill_loads_bytes")
            kernel |= dict(zip(names, map(int, frame.groups()), strict=True))
        if used:
            kernel |= {"registers": int(used[1]), "shared_bytes": int(used[2] or 0)}
        found[symbol] = kernel
    return found


def _short(symbol: str) -> str:
    """The name that a mangled symbol carries: `_Z9addKernelPKf` is `addKernel`."""
    nested = symbol.startswith("_ZN")
    rest, name = symbol.removeprefix("_ZN" if nested else "_Z"), ""
    while (digits := re.match(r"\d+", rest)) and (nested or not name):
        end = digits.end() + int(digits[0])
        name, rest = rest[digits.end() : end], rest[end:]
    return name or symbol
