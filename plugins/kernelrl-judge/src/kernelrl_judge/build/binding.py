"""Calling a function of an extension without a Python module of its own.

A Python module costs more to compile than all the rest of a small extension. Where the arguments and the result of a
function are of common types, a trampoline of a few lines takes its place: it gets pointers to values of exactly the
declared types and calls the function. One prepared module (`binder.cpp`) converts Python objects to these values with
torch's own casters, so what is accepted, and what an error says, is what the ordinary module does.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import attrs

from kernelrl_judge.build.lexing import Item, Token, Unreadable, items, text_of

__all__ = ["Signature", "Unbindable", "module_functions", "signatures", "trampolines"]


class Unbindable(Exception):
    """A function needs the ordinary way; the text is why."""


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
    """Codes of the argument types, see `_ARGUMENTS`."""
    types: tuple[str, ...]
    """The argument types as C++ writes them."""
    result: str
    """Code of the result's type, see `_RESULTS`."""


_TENSOR = r"(?:(?:torch|at)\s*::\s*)?Tensor"
_OPTIONAL = r"(?:(?:c10|std|torch|at)\s*::\s*)optional"
_VECTOR = r"(?:std\s*::\s*)?vector"
_ARGUMENTS = {
    "T": _TENSOR,
    "O": rf"{_OPTIONAL}\s*<\s*{_TENSOR}\s*>",
    "V": rf"{_VECTOR}\s*<\s*{_TENSOR}\s*>",
    "L": rf"{_VECTOR}\s*<\s*(?:std\s*::\s*)?int64_t\s*>",
    "i": r"(?:signed\s+)?int|int32_t|std\s*::\s*int32_t",
    "l": r"(?:std\s*::\s*)?int64_t|long(?:\s+int)?",
    "u": r"unsigned(?:\s+int)?|uint32_t",
    "m": r"(?:std\s*::\s*)?size_t|uint64_t|unsigned\s+long",
    "b": r"bool",
    "f": r"float",
    "d": r"double",
    "S": r"std\s*::\s*string",
}
_RESULTS = {
    "v": r"void",
    "T": _TENSOR,
    "V": rf"{_VECTOR}\s*<\s*{_TENSOR}\s*>",
    "2": rf"std\s*::\s*(?:tuple|pair)\s*<\s*{_TENSOR}\s*,\s*{_TENSOR}\s*>",
    "3": rf"std\s*::\s*tuple\s*<\s*{_TENSOR}(?:\s*,\s*{_TENSOR}){{2}}\s*>",
    "4": rf"std\s*::\s*tuple\s*<\s*{_TENSOR}(?:\s*,\s*{_TENSOR}){{3}}\s*>",
    "i": _ARGUMENTS["i"],
    "l": _ARGUMENTS["l"],
    "b": r"bool",
    "f": r"float",
    "d": r"double",
}
_GUARD = "kernelrl: a type is not what it seemed"
_PREFIXES = {"static", "inline", "extern", "TORCH_API", "__host__"}
_MODULE = re.compile(r"PYBIND11_MODULE\s*\(\s*(?:TORCH_EXTENSION_NAME|\w+)\s*,\s*(\w+)\s*\)\s*$")


def signatures(sources: Sequence[str], functions: Sequence[tuple[str, ...]]) -> tuple[Signature, ...]:
    """Signatures of functions that the sources declare or define.

    Args:
        functions: name in Python and documentation of each, and its name in C++ where that is another.

    Raises:
        Unbindable: one is not declared in a way that is understood, is declared twice, or has an uncommon type.
    """
    found: dict[str, tuple[str, list[str]]] = {}
    for source in sources:
        try:
            pieces = items(source)
        except Unreadable as error:
            raise Unbindable(str(error)) from None
        for item in pieces:
            read = _prototype(item)
            if read is None:
                continue
            name, result, arguments = read
            if name in found and found[name] != (result, arguments):
                raise Unbindable(f"{name} is overloaded")
            found[name] = (result, arguments)
    bound = []
    for index, (python_name, documentation, *other) in enumerate(functions):
        name = other[0] if other else python_name
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
            )
        )
    return tuple(bound)


def trampolines(bound: Sequence[Signature]) -> str:
    """C++ source of the trampolines, for a unit that has the declarations of the functions."""
    lines = [_TRAMPOLINE]
    for signature in bound:
        codes = "".join(signature.arguments)
        checked = f'kernelrl_trampoline::agrees(&{signature.function}, "{codes}", "{signature.result}")'
        lines.append(
            f'extern "C" void {signature.symbol}(void* const* arguments, void* result) {{ '
            f'static_assert({checked}, "{_GUARD}"); '
            f"kernelrl_trampoline::call<&{signature.function}>(arguments, result); }}"
        )
    return "\n".join(lines) + "\n"


def module_functions(source: str) -> tuple[str, tuple[tuple[str, ...], ...]] | None:
    """A source without its Python module, and the functions that the module binds.

    Of each its name in Python, its documentation and its name in C++. None when there is no module, or when it does
    more than to bind functions.
    """
    try:
        pieces = items(source)
    except Unreadable:
        return None
    kept: list[str] = []
    bound: list[tuple[str, ...]] | None = None
    for item in pieces:
        head = text_of(item.tokens[: item.body]).strip() if item.kind == "function" else ""
        match = _MODULE.search(head)
        if match is None:
            kept.append(_whole(item))
            continue
        if bound is not None:
            return None
        body = [token for token in item.tokens[item.body :] if token.kind != "comment"]
        bound = _definitions(text_of(body), match.group(1))
        if bound is None:
            return None
    return None if bound is None else ("".join(kept), tuple(bound))


def _definitions(body: str, module: str) -> list[tuple[str, ...]] | None:
    text = body.strip()[1:-1]
    definition = r'\s*\.\s*def\s*\(\s*"(\w+)"\s*,\s*&?\s*(\w+)\s*(?:,\s*"((?:[^"\\]|\\.)*)"\s*)?\)\s*;'
    pattern = re.compile(rf"\s*{module}" + definition)
    found, place = [], 0
    while text[place:].strip():
        match = pattern.match(text, place)
        if match is None:
            return None
        found.append((match.group(1), match.group(3) or "", match.group(2)))
        place = match.end()
    return found


def _whole(item: Item) -> str:
    if item.kind != "scope":
        return text_of(item.tokens)
    return text_of(item.tokens) + "{" + "".join(map(_whole, item.children)) + "\n}"


def _words(parts: Sequence[Token]) -> list[str]:
    return [token.text for token in parts if not token.blank]


def _prototype(item: Item) -> tuple[str, str, list[str]] | None:
    """Name, result type and argument types, where an item is a plain function or its declaration."""
    if item.kind not in ("function", "declaration"):
        return None
    head = item.tokens[: item.body] if item.kind == "function" else item.tokens
    words = [word for word in _words(head) if word not in (";", "")]
    while words and words[0] in _PREFIXES:
        words = words[1:]
    if "(" not in words or not words or words[0] in ("template", "using", "typedef", "struct"):
        return None
    opening = words.index("(")
    if opening < 2 or words[-1] != ")" or not re.fullmatch(r"[A-Za-z_]\w*", words[opening - 1]):
        return None
    if words[opening - 2] == "::":
        return None
    result = " ".join(words[: opening - 1])
    return words[opening - 1], result, _split_arguments(words[opening + 1 : -1])


def _split_arguments(words: list[str]) -> list[str]:
    arguments: list[list[str]] = [[]]
    depth = 0
    for word in words:
        depth += (word in "(<[{") - (word in ")>]}")
        if word == "," and depth == 0:
            arguments.append([])
        else:
            arguments[-1].append(word)
    if arguments == [[]] or arguments == [["void"]]:
        return []
    return [" ".join(_without_name(argument)) for argument in arguments]


def _without_name(words: list[str]) -> list[str]:
    if "=" in words:
        words = words[: words.index("=")]
    bare = [word for word in words if word not in ("const", "&", "*")]
    # The last word is the argument's name unless it is part of the type.
    named = len(bare) > 1 and re.fullmatch(r"[A-Za-z_]\w*", words[-1]) and bare[-2:-1] != ["::"]
    if named and words[-1] not in ("int", "long", "unsigned", "float", "double", "bool", "char", "short"):
        words = words[:-1]
    return words


def _code(text: str, codes: dict[str, str], name: str) -> str:
    if "*" in text or text.endswith("& &"):
        raise Unbindable(f"{name} has a type that is not common: {text}")
    plain = re.sub(r"\bconst\b|&", "", text).strip()
    for code, pattern in codes.items():
        if re.fullmatch(pattern, plain):
            if text.rstrip().endswith("&") and "const" not in text and code != "T":
                raise Unbindable(f"{name} changes an argument: {text}")
            return code
    raise Unbindable(f"{name} has a type that is not common: {text}")


_TRAMPOLINE = """\
#include <optional>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>
namespace kernelrl_trampoline {
template <typename T> constexpr char code() {
  if constexpr (std::is_void_v<T>) return 'v';
  else if constexpr (std::is_same_v<T, at::Tensor>) return 'T';
  else if constexpr (std::is_same_v<T, std::optional<at::Tensor>>) return 'O';
  else if constexpr (std::is_same_v<T, std::vector<at::Tensor>>) return 'V';
  else if constexpr (std::is_same_v<T, std::vector<int64_t>>) return 'L';
  else if constexpr (std::is_same_v<T, bool>) return 'b';
  else if constexpr (std::is_same_v<T, float>) return 'f';
  else if constexpr (std::is_same_v<T, double>) return 'd';
  else if constexpr (std::is_same_v<T, std::string>) return 'S';
  else if constexpr (std::is_same_v<T, std::pair<at::Tensor, at::Tensor>>) return '2';
  else if constexpr (std::is_same_v<T, std::tuple<at::Tensor, at::Tensor>>) return '2';
  else if constexpr (std::is_same_v<T, std::tuple<at::Tensor, at::Tensor, at::Tensor>>) return '3';
  else if constexpr (std::is_same_v<T, std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor>>) return '4';
  else if constexpr (std::is_integral_v<T> && std::is_signed_v<T> && sizeof(T) == 4) return 'i';
  else if constexpr (std::is_integral_v<T> && std::is_signed_v<T> && sizeof(T) == 8) return 'l';
  else if constexpr (std::is_integral_v<T> && sizeof(T) == 4) return 'u';
  else if constexpr (std::is_integral_v<T> && sizeof(T) == 8) return 'm';
  else return '?';
}
template <typename R, typename... A, size_t... I>
void invoke(R (*function)(A...), void* const* arguments, void* result, std::index_sequence<I...>) {
  if constexpr (std::is_void_v<R>) {
    function(static_cast<A>(*static_cast<std::remove_reference_t<A>*>(arguments[I]))...);
  } else if constexpr (std::is_same_v<R, std::pair<at::Tensor, at::Tensor>>) {
    auto pair = function(static_cast<A>(*static_cast<std::remove_reference_t<A>*>(arguments[I]))...);
    new (result) std::tuple<at::Tensor, at::Tensor>(std::move(pair.first), std::move(pair.second));
  } else {
    new (result) R(function(static_cast<A>(*static_cast<std::remove_reference_t<A>*>(arguments[I]))...));
  }
}
template <typename R, typename... A> void spread(R (*function)(A...), void* const* arguments, void* result) {
  invoke(function, arguments, result, std::index_sequence_for<A...>{});
}
template <auto function> void call(void* const* arguments, void* result) { spread(function, arguments, result); }
template <typename R, typename... A> constexpr bool agrees(R (*)(A...), const char* codes, const char* result) {
  const char expected[] = {code<std::decay_t<A>>()..., 0};
  size_t i = 0;
  for (; expected[i]; ++i) if (codes[i] != expected[i]) return false;
  return codes[i] == 0 && result[0] == code<R>();
}
}  // namespace kernelrl_trampoline
"""


def bindings_data(bound: Sequence[Signature]) -> list[dict[str, Any]]:
    """What the binder needs, as plain data."""
    return [attrs.asdict(signature) for signature in bound]
