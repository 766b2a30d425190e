"""Calls of the functions of an extension that has no Python module of its own.

A Python module takes longer to compile than all the rest of a small extension. If the arguments and the result of a
function have common types, a trampoline of a few lines replaces the module: it gets pointers to values of exactly the
declared types and calls the function. One prepared module (`binder.cpp`) converts Python objects to these values with
torch's own casters. So the accepted arguments and the error messages are those of an ordinary module.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import attrs

from kernelrl_build.kernel_syntax import named, pieces
from kernelrl_build.lexing import Item, Unreadable, items, text_of

__all__ = ["Signature", "Unbindable", "module_functions", "signatures", "trampolines"]


class Unbindable(Exception):
    """A function needs an ordinary Python module; the text is the reason."""


@attrs.frozen
class Signature:
    """A function that a trampoline can call."""

    name: str
    """Its name in Python."""
    documentation: str
    function: str
    """Its name in C++."""
    symbol: str
    """Name of the trampoline."""
    arguments: tuple[str, ...]
    """Codes of the argument types, see `_TYPES`."""
    types: tuple[str, ...]
    """The argument types as C++ writes them."""
    result: str
    """Code of the result's type."""
    result_type: str
    """The result's type as C++ writes it."""


_TENSOR = r"(?:(?:torch|at)\s*::\s*)?Tensor"
_VECTOR = r"(?:std\s*::\s*)?vector"
_MEMBERS = {
    code: rf"std\s*::\s*{kind}\s*<\s*{_TENSOR}(?:\s*,\s*{_TENSOR}){{{int(code) - 1}}}\s*>"
    for code, kind in (("2", "(?:tuple|pair)"), ("3", "tuple"), ("4", "tuple"))
}
_TYPES = {
    "T": ("at::Tensor", _TENSOR),
    "O": ("std::optional<at::Tensor>", rf"(?:(?:c10|std|torch|at)\s*::\s*)optional\s*<\s*{_TENSOR}\s*>"),
    "V": ("std::vector<at::Tensor>", rf"{_VECTOR}\s*<\s*{_TENSOR}\s*>"),
    "L": ("std::vector<int64_t>", rf"{_VECTOR}\s*<\s*(?:std\s*::\s*)?int64_t\s*>"),
    "i": ("int32_t", r"(?:signed\s+)?int|int32_t|std\s*::\s*int32_t"),
    "l": ("int64_t", r"(?:std\s*::\s*)?int64_t|long(?:\s+int)?"),
    "u": ("uint32_t", r"unsigned(?:\s+int)?|uint32_t"),
    "m": ("uint64_t", r"(?:std\s*::\s*)?size_t|uint64_t|unsigned\s+long"),
    "b": ("bool", r"bool"),
    "f": ("float", r"float"),
    "d": ("double", r"double"),
    "S": ("std::string", r"std\s*::\s*string"),
    "v": ("void", r"void"),
    **{code: (f"std::tuple<at::Tensor{', at::Tensor' * (int(code) - 1)}>", _MEMBERS[code]) for code in "234"},
}
"""Code -> the type of the binder's value, and a pattern of the spellings in sources."""
_ARGUMENTS, _RESULTS = "TOVLilumbfdS", "vTV234ilbfd"
_PREFIXES = {"static", "inline", "extern", "TORCH_API", "__host__"}
_NO_PROTOTYPE = {"template", "using", "typedef", "struct"}
_MODULE = re.compile(r"PYBIND11_MODULE\s*\(\s*(?:TORCH_EXTENSION_NAME|\w+)\s*,\s*(\w+)\s*\)\s*$")


def signatures(sources: Sequence[str], functions: Sequence[tuple[str, ...]]) -> tuple[Signature, ...]:
    """Signatures of functions that the sources declare or define.

    Args:
        functions: name in Python and documentation of each, and its name in C++ if that differs.

    Raises:
        Unbindable: a function is declared twice, has an uncommon type, or its declaration is not understood.
    """
    found: dict[str, tuple[str, list[str]]] = {}
    for source in sources:
        try:
            declared = items(source)
        except Unreadable as error:
            raise Unbindable(str(error)) from None
        for item in declared:
            read = _prototype(item)
            if read is None:
                continue
            name, result, arguments = read
            if name in found and found[name] != (result, arguments):
                raise Unbindable(f"{name} is overloaded")
            found[name] = (result, arguments)
    bound = []
    for index, (python_name, documentation, *cpp_name) in enumerate(functions):
        name = cpp_name[0] if cpp_name else python_name
        if name not in found:
            raise Unbindable(f"no declaration of {name} was found")
        result, arguments = found[name]
        bound.append(
            Signature(
                python_name,
                documentation,
                name,
                f"kernelrl_call_{index}",
                tuple(_code(argument, _ARGUMENTS, name) for argument in arguments),
                tuple(arguments),
                _code(result, _RESULTS, name),
                result,
            )
        )
    return tuple(bound)


def trampolines(bound: Sequence[Signature]) -> str:
    """C++ source of the trampolines, for a unit that has the declarations of the functions."""
    headers = ("optional", "string", "tuple", "type_traits", "vector")
    lines = [f"#include <{header}>" for header in headers]
    for signature in bound:
        kinds = [_TYPES[code][0] for code in (*signature.arguments, signature.result)]
        values = (f"*static_cast<{kind}*>(arguments[{index}])" for index, kind in enumerate(kinds[:-1]))
        # In brackets: otherwise the compiler would also consider functions of torch with this name.
        call = f"({signature.function})({', '.join(values)})"
        made = call if signature.result == "v" else f"new (result) {kinds[-1]}({call})"
        # A source may give the name of a common type to another type.
        same = [
            f"std::is_same_v<std::decay_t<{written}>, {kind}>"
            for written, kind in zip((*signature.types, signature.result_type), kinds, strict=True)
            if "pair" not in written
        ]
        lines.append(
            f'extern "C" void {signature.symbol}(void* const* arguments, void* result) {{ '
            f"static_assert({' && '.join(same) or 'true'}); {made}; }}"
        )
    return "\n".join(lines) + "\n"


def module_functions(source: str) -> tuple[str, tuple[tuple[str, ...], ...]] | None:
    """A source without its Python module, and the functions that the module binds.

    Each function has its name in Python, its documentation and its name in C++. None if there is no module, or if it
    does more than bind functions.
    """
    try:
        found = items(source)
    except Unreadable:
        return None
    kept: list[str] = []
    bound: list[tuple[str, ...]] | None = None
    for item in found:
        match = _MODULE.search(text_of(item.head).strip()) if item.kind == "function" else None
        if match is None:
            kept.append(item.text)
            continue
        if bound is not None:
            return None
        bound = _definitions(
            text_of([token for token in item.tokens[item.body :] if token.kind != "comment"]), match[1]
        )
        if bound is None:
            return None
    return None if bound is None else ("".join(kept), tuple(bound))


def _definitions(body: str, module: str) -> list[tuple[str, ...]] | None:
    text = body.strip()[1:-1]
    definition = r'\s*\.\s*def\s*\(\s*"(\w+)"\s*,\s*&?\s*(\w+)\s*(?:,\s*"((?:[^"\\]|\\.)*)"\s*)?\)\s*;'
    pattern = re.compile(rf"\s*{module}" + definition)
    found: list[tuple[str, ...]] = []
    place = 0
    while text[place:].strip():
        match = pattern.match(text, place)
        if match is None:
            return None
        found.append((match.group(1), match.group(3) or "", match.group(2)))
        place = match.end()
    return found


def _prototype(item: Item) -> tuple[str, str, list[str]] | None:
    """Name, result type and argument types of a plain function or of its declaration; None for other items."""
    words = [word for word in item.words if word != ";"]
    while words and words[0] in _PREFIXES:
        words = words[1:]
    if item.kind not in ("function", "declaration") or "(" not in words or words[0] in _NO_PROTOTYPE:
        return None
    opening = words.index("(")
    given = pieces(words[opening + 1 :], ")")
    if opening < 2 or given is None or not words[opening - 1].isidentifier() or words[opening - 2] == "::":
        return None
    return words[opening - 1], " ".join(words[: opening - 1]), list(map(_type, given))


def _type(parameter: list[str]) -> str:
    """Words of a parameter without its name and without its default value."""
    words = parameter[: parameter.index("=")] if "=" in parameter else parameter
    return " ".join(words[:-1] if named(words) else words)


def _code(text: str, codes: str, name: str) -> str:
    plain = re.sub(r"\bconst\b|&", "", text).strip()
    code = next((code for code in codes if re.fullmatch(_TYPES[code][1], plain)), "")
    if not code or "*" in text or text.endswith("& &"):
        raise Unbindable(f"{name} has a type that is not common: {text}")
    if text.endswith("&") and "const" not in text and code != "T":
        raise Unbindable(f"{name} changes an argument: {text}")
    return code
