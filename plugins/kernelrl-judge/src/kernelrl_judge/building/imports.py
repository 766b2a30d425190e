"""What a shared object asks of libraries that compute: the linker's names, which no spelling of a source can hide."""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from pathlib import Path

__all__ = ["library_imports"]

_OF_TORCH = re.compile(r"_ZN2at(?:4_ops|3cpu|4cuda|6native(?:7cpublas)?)(\d+)(\w+)")
_VENDOR = re.compile(
    r"(?:cblas_|cublas|hipblas|rocblas_)?[sdczhSDCZH](?:gemm|gemv|symm|symv|syrk|trsm|trmm|ger|dot|axpy|nrm2|asum|scal)\w*"
    r"|(?:cblas_|cublas|hipblas)\w*(?:[Gg]emm|GEMM|Matmul)\w*|(?:mkl_|mkldnn_|dnnl_|xnn_)\w+|_ZN(?:4dnnl|5ideep)\w+"
    r"|(?:cudnn|miopen)\w*(?:Forward|Execute|Backward)\w*|(?:cuf|hipf)ftExec\w+|v[msd]{1,2}[A-Z]\w+"
)
_BY_NAME = frozenset({"dlsym", "dlvsym"})
_DYNAMIC_SYMBOLS = 11


def library_imports(path: str | Path, language: str) -> list[str]:
    """Functions of libraries that compute, and of the loader that finds any, among what a shared object imports.

    Args:
        language: of the extension. Device code is looked up by name for good reasons, C++ for the processor is not.

    Returns:
        Operators of torch as `aten::NAME`, others as they are; empty for what is no 64-bit ELF file.
    """
    found = set()
    for name in _undefined(Path(path).read_bytes()):
        operator = _OF_TORCH.match(name)
        if operator is not None:
            found.add(f"aten::{operator[2][: int(operator[1])]}")
        elif _VENDOR.fullmatch(name) or (language == "cpp" and name in _BY_NAME):
            found.add(name)
    return sorted(found)


def _undefined(content: bytes) -> Iterator[str]:
    if content[:6] != b"\x7fELF\x02\x01":
        return
    try:
        (sections,) = struct.unpack_from("<Q", content, 0x28)
        size, count = struct.unpack_from("<HH", content, 0x3A)
        headers = [struct.unpack_from("<IIQQQQIIQQ", content, sections + size * index) for index in range(count)]
        for _, kind, _, _, offset, length, link, _, _, _ in headers:
            if kind != _DYNAMIC_SYMBOLS:
                continue
            names = headers[link][4]
            for at in range(offset, offset + length, 24):
                name, _, _, section = struct.unpack_from("<IBBH", content, at)
                if section == 0 and name:
                    begin = names + name
                    yield content[begin : content.index(b"\0", begin)].decode("ascii", "replace")
    except (struct.error, ValueError, IndexError):
        # The linker's output is whole; what is none has no imports.
        return
