"""Generates the host side of kernels: a stub for each, and the registration of their machine code.

What a device compiler makes of a kernel for the host is short: a function of the kernel's name that fetches the launch
configuration and launches itself, and the registration of each such function with the runtime under the name that its
machine code has. Made here, the device compiler need not compile the source a second time for the host, which is more
than half of what it does.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from kernelrl_judge.build.lexing import Token

__all__ = ["assembly", "entries", "prelude", "stub_body"]

_TYPE_WORDS = {
    *("void", "bool", "char", "short", "int", "long", "signed", "unsigned", "float", "double", "const", "volatile"),
    *("struct", "class", "enum", "typename", "__restrict__", "__restrict", "restrict", "auto"),
}
_BRACKETS = {"(": 1, "[": 1, "{": 1, ")": -1, "]": -1, "}": -1}
_ENTRY = re.compile(r"Compiling entry function '([^']+)'")

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
    """What a host unit with stubs begins with; `index` is that of its device source."""
    return _PRELUDE.replace("INDEX", str(index))


def stub_body(head: Sequence[Token], name: str) -> str | None:
    """Body of a kernel's stub, or None where its parameters are not certain to be understood.

    Args:
        head: what stands before the kernel's own body.
    """
    words = [token for token in head if not token.blank]
    texts = [token.text for token in words]
    place = next((i for i, text in enumerate(texts[:-1]) if text == name and texts[i + 1] == "("), None)
    if place is None or "requires" in texts:
        return None
    parameters = _names(_pieces(texts[place + 2 :], ")"))
    if parameters is None:
        return None
    address = f"&{name}"
    if texts[0] == "template":
        given = _names(_pieces(texts[2:], ">"), of_template=True)
        if given is None or not given or texts.count("template") > 1:
            return None
        address += f"<{', '.join(given)}>"
    pointers = "".join(f"(void*)&{parameter}, " for parameter in parameters)
    launch = f"::kernelrl::launch({address}, kernelrl_arguments);"
    return f" {{ void* kernelrl_arguments[] = {{ {pointers}nullptr }}; {launch} }}"


def entries(log: str) -> frozenset[str]:
    """Names of the kernels that there is machine code for, by the compiler's report."""
    return frozenset(_ENTRY.findall(log))


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


def _pieces(texts: Sequence[str], end: str) -> list[list[str]] | None:
    """The parts between commas up to the bracket that ends the list, or None where brackets are doubtful."""
    pieces: list[list[str]] = [[]]
    depth = angles = 0
    for text in texts:
        if depth == 0 and angles == 0 and text == end:
            return pieces
        if text in _BRACKETS:
            depth += _BRACKETS[text]
        elif depth == 0 and text in "<>" and text:
            angles += 1 if text == "<" else -1
        if depth < 0 or angles < 0:
            return None
        if text == "," and depth == 0 and angles == 0:
            pieces.append([])
        else:
            pieces[-1].append(text)
    return None


def _names(pieces: list[list[str]] | None, *, of_template: bool = False) -> list[str] | None:
    """What each part declares, or None where that is not certain."""
    if pieces is None:
        return None
    if pieces in ([[]], [["void"]]):
        return []
    found = []
    for piece in pieces:
        declared = piece[: piece.index("=")] if "=" in piece else piece
        if "<" in piece[len(declared) :] or "." in declared or "..." in declared or "(" in declared:
            return None
        while declared and declared[-1] == "]":
            declared = declared[: len(declared) - 1 - declared[::-1].index("[")]
        words = [word for word in declared if re.fullmatch(r"[A-Za-z_]\w*", word)]
        name = declared[-1] if declared else ""
        before = declared[-2] if len(declared) > 1 else ""
        # A type without a name has nothing that its address could be taken of.
        named = words and name == words[-1] and name not in _TYPE_WORDS and before != "::"
        plain = [word for word in words if word not in ("const", "volatile", "struct", "enum", "class", "__restrict__")]
        enough = len(plain) > 1 or before in ("*", "&", ">") or (of_template and words[0] in ("typename", "class"))
        if not named or not enough:
            return None
        found.append(name)
    return found
