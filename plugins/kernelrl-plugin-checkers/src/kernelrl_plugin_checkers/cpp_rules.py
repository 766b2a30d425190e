"""Rules on the C++, CUDA and HIP inside a candidate."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from kernelrl_plugin_checkers.cpp_names import Defined
from kernelrl_plugin_checkers.cpp_scopes import names_of
from kernelrl_plugin_checkers.cpp_state import kept_in_statics
from kernelrl_plugin_checkers.cpp_tokens import Token, tokens, without_comments
from kernelrl_plugin_checkers.cpp_unusual import unusual
from kernelrl_plugin_checkers.cpp_vocabulary import VENDOR
from kernelrl_plugin_checkers.embedded import Embedded
from kernelrl_plugin_checkers.reading import Breach
from kernelrl_plugin_checkers.torch_names import OPERATORS, TENSOR_METHODS

__all__ = ["CppText", "cpp_breaches", "cpp_texts", "unread_cpp"]

_UNQUALIFIED_TEXT = """
addmm baddbmm batch_norm bmm conv1d conv2d conv3d conv_transpose2d convolution cumprod cumsum einsum group_norm
layer_norm linear log_softmax logsumexp matmul mm native_layer_norm scaled_dot_product_attention softmax tensordot topk
"""
_UNQUALIFIED = frozenset(_UNQUALIFIED_TEXT.split())
"""Operators that C++ finds by their arguments alone, and that no function of CUDA or of C++ is named like."""
_BACK_TO_PYTHON = frozenset(
    {"Dispatcher", "findSchemaOrThrow", "PyImport_ImportModule", "PyImport_Import", "PyImport_AddModule"}
    | {"PyImport_GetModule", "PyRun_String", "PyRun_StringFlags", "PyRun_SimpleString", "PyObject_Call"}
    | {"PyObject_CallObject", "PyObject_CallMethod", "PyObject_CallFunction", "PyObject_CallFunctionObjArgs"}
)
_STREAMS = re.compile(r"(?:cuda|hip|cu)StreamCreate\w*|getStreamFromPool|cudaStreamNonBlocking")
_WAITS = re.compile(r"(?:cuda|hip|cu)(?:StreamWaitEvent|(?:Stream|Device|Event|Ctx)Synchronize)")
_METHOD_WAITS = frozenset({"block", "synchronize"})
_GRAPHS = re.compile(r"(?:cuda|hip|cu)(?:StreamBeginCapture\w*|GraphLaunch)|CUDAGraph")
_COPIES = re.compile(r"(?:cuda|hip|cu)(?:Memcpy\w*|GraphExec\w*Update|GraphExec\w*SetParams\w*)|copy_")
_INSPECTION = frozenset(
    {"ptrace", "process_vm_readv", "process_vm_writev", "mprotect", "dl_iterate_phdr", "PyEval_GetFrame"}
    | {"PyThreadState_GetFrame", "PyFrame_GetBack", "cudaIpcOpenMemHandle", "hipIpcOpenMemHandle", "getSnapshot"}
)
_PROCESSES = frozenset(
    {"fork", "vfork", "system", "popen", "posix_spawn", "execl", "execv", "execve", "execvp", "kill"}
)
_HOST_CALLBACKS = re.compile(r"(?:cuda|hip)(?:LaunchHostFunc|StreamAddCallback)|cuLaunchHostFunc")
_OUTSIDE = frozenset(
    {"getenv", "setenv", "fopen", "ifstream", "ofstream", "fstream", "dlopen", "dlsym", "socket", "mmap"}
)
_PRECISION = re.compile(r"set(?:AllowTF32|Float32|AllowFP16|AllowBF16)\w+|fesetround|(?:cublas|hipblas)SetMathMode")
_PINNING = re.compile(r"\w*(?:LimitPersistingL2CacheSize|AccessPolicyWindow)")
_PATTERNS = (VENDOR, _STREAMS, _GRAPHS, _HOST_CALLBACKS, _PRECISION, _PINNING)
_ANY_PATTERN = re.compile("|".join(f"(?:{pattern.pattern})" for pattern in _PATTERNS))
_ROOTS = frozenset({"at", "torch", "aten"})
_OPERATOR = re.compile(r"\b(?:at|torch|aten)\s*::\s*(?:\w+\s*::\s*)*(\w+)")
_DEFINE = re.compile(r"(?:#|%:)[\s\0]*define[\s\0]+(\w+)")
_BEFORE_CALLS = frozenset({"return", "co_return", "else", "do", "case"})
_OF_PYBIND = frozenset({"eval", "exec", "eval_file"})
_TELLING = OPERATORS | _OF_PYBIND | TENSOR_METHODS | _BACK_TO_PYTHON | _INSPECTION | _PROCESSES | _OUTSIDE
_TELLING |= {"module_", "module", "pthread_create", "detach"}
_ENOUGH, _MOST_TOLD = 40, 200
_MOST_TOKENS = 30_000
"""Of all texts of a candidate together: some 3,000 lines of kernels."""
_CHARACTERS_OF_TOKEN = 4
"""In a directive, whose tokens are read when it is looked at."""
_ONE = r"(?:1|1\.0?f?)"
_WORD = re.compile(r"\w++")
_NAME = re.compile(r"[A-Za-z_]\w*")
_FREE_NAME = re.compile(r"(?<![\w:.])[a-z_]\w+")
_COPY_LINE = re.compile(rf"\b\w++ \[ (?P<index>[^\]]+) \] = (?:{_ONE} \* )?\w+ \[ (?P=index) \] (?:\* {_ONE} )?;")


class CppText:
    """One text with what rules look at: its tokens without blanks, comments and directives.

    Args:
        most: tokens that are read.
    """

    def __init__(self, text: Embedded, most: int = _MOST_TOKENS) -> None:
        self.text = text
        self.tokens: list[Token] = []
        self.directives: list[Token] = []
        self.left = most
        """Tokens that could have been read besides; below zero where the text was not read to its end."""
        for token in tokens(text.text, blanks=False):
            is_directive = token.kind == "directive"
            self.left -= 1 + len(token.text) // _CHARACTERS_OF_TOKEN if is_directive else 1
            if self.left < 0:
                break
            if is_directive:
                token = Token(token.kind, without_comments(token.text), token.start)
            (self.directives if is_directive else self.tokens).append(token)
        self.names = {token.text for token in self.tokens if token.kind == "name"}
        for token in self.directives:
            self.names |= set(_NAME.findall(token.text))
        self.roots = {*_ROOTS, *_aliases(self.tokens)}
        """Names of the namespace of torch's operators."""
        self.own = _declared(self.tokens) | {
            defined[1] for token in self.directives if (defined := _DEFINE.match(token.text))
        }
        """Names that the text may define by itself."""
        self.defined = names_of(self.tokens, self.directives)

    @property
    def waits(self) -> bool:
        """Whether something waits for a stream or an event."""
        return any(_WAITS.fullmatch(name) for name in self.names) or bool(_METHOD_WAITS & self.names)

    @property
    def copies(self) -> bool:
        """Whether something copies tensors or memory."""
        return any(_COPIES.fullmatch(name) for name in self.names)


def cpp_texts(pieces: Iterable[Embedded]) -> list[CppText]:
    """The texts of a candidate, as far as all of them together are read."""
    texts: list[CppText] = []
    left = _MOST_TOKENS
    for piece in pieces:
        texts.append(CppText(piece, left))
        left = max(0, texts[-1].left)
    return texts


def unread_cpp(texts: Iterable[CppText]) -> Iterator[Breach]:
    """A breach where a text was not read to its end."""
    if any(text.left < 0 for text in texts):
        yield "unread_source", None, f"reading stopped before the end: more than {_MOST_TOKENS} tokens of C++"


def cpp_breaches(text: CppText, *, defined: Defined, waits: bool, copies: bool) -> Iterator[Breach]:
    """Breaches in one text.

    Args:
        defined: what all texts of the candidate define.
        waits: whether any part of the candidate waits for a stream.
        copies: whether any part copies into the inputs of a graph.
    """
    told: dict[str, set[object]] = {}
    for rule, offset, note in _found(text, defined, waits=waits, copies=copies):
        # Many of one kind are no more evidence than a few, and each must be placed.
        seen = told.setdefault(rule, set())
        is_known = note in seen and (offset in seen or len(seen) >= _ENOUGH)
        if is_known or len(seen) >= _MOST_TOLD:
            continue
        seen |= {note, offset}
        excerpt = text.text.excerpt(offset)
        yield rule, text.text.line_of(offset), f"{note}, in {excerpt!r}" if excerpt else note


def _found(text: CppText, defined: Defined, *, waits: bool, copies: bool) -> Iterator[tuple[str, int, str]]:
    """Rule, offset in the text, and what was seen."""
    found = text.tokens
    telling = {name for name in text.names if _is_telling(name)}
    for at, token in enumerate(found):
        if token.kind == "string":
            if "/proc/" in token.text:
                yield "inspection", token.start, "a path below /proc"
        elif token.text in telling and token.kind == "name":
            for rule, note in _of_name(text, at, waits=waits, copies=copies):
                yield rule, token.start, note
    for token in text.directives:
        # What a macro does, its definition does.
        if _DEFINE.match(token.text):
            for match in _WORD.finditer(token.text):
                if VENDOR.fullmatch(match[0]):
                    yield "library_glue", token.start + match.start(), f"{match[0]}, in a macro"
            for match in _OPERATOR.finditer(token.text):
                if _is_operator(match[1]):
                    yield "library_glue", token.start + match.start(), f"{match[1]}, in a macro"
            for match in _FREE_NAME.finditer(token.text):
                if match[0] in _UNQUALIFIED and match[0] not in text.own:
                    yield "library_glue", token.start + match.start(), f"{match[0]}, in a macro"
    yield from kept_in_statics(text.tokens)
    yield from _fig_leaves(text)
    if text.text.is_built:
        for offset, note in unusual(text.tokens, text.directives, text.defined, defined):
            yield "unusual_cpp", offset, note


def _is_telling(name: str) -> bool:
    """Whether a name can break a rule by itself; most cannot, and what stands around them need not be looked at."""
    if name in _TELLING or _is_operator(name):
        return True
    # A pattern goes through a word once, and may go through anything else as often as it has letters.
    return _WORD.fullmatch(name) is not None and _ANY_PATTERN.fullmatch(name) is not None


def _of_name(text: CppText, at: int, *, waits: bool, copies: bool) -> Iterator[tuple[str, str]]:
    found, name = text.tokens, text.tokens[at].text
    before = found[at - 1].text if at else ""
    after = found[at + 1].text if at + 1 < len(found) else ""
    called = after == "("
    member = before in (".", "->")
    if _is_aten(text, at):
        yield "library_glue", name
    elif called and name in _UNQUALIFIED and name not in text.own and before not in (".", "->", "::"):
        yield "library_glue", f"{name}, which the text does not define"
    elif called and member and name in TENSOR_METHODS:
        yield "library_glue", f"the method {name} of a tensor"
    elif called and VENDOR.fullmatch(name):
        yield "library_glue", name
    elif name in _BACK_TO_PYTHON or _runs_python(found, at):
        yield "library_glue", f"{name}, which leads out of C++"
    elif _STREAMS.fullmatch(name) and not waits:
        yield "side_stream", f"{name}, and nothing that waits for it"
    elif _GRAPHS.fullmatch(name) and not copies:
        yield "frozen_graph", f"{name}, and nothing that copies into its inputs"
    elif name in _INSPECTION:
        yield "inspection", name
    elif called and not member and name in _PROCESSES and (before != "::" or _owner(found, at) in ("", "std")):
        yield "concurrency", name
    elif _outlives(text, name, detached=called and member):
        yield "concurrency", f"{name}, which outlives the call"
    elif name in _OUTSIDE and not member:
        yield "outside_access", name
    elif _PRECISION.fullmatch(name) and (called or not member):
        yield "precision_switch", name
    elif _PINNING.fullmatch(name):
        yield "cache_pinning", name


def _runs_python(found: Sequence[Token], at: int) -> bool:
    name, owner = found[at].text, _owner(found, at)
    if name in ("module_", "module"):
        return found[at - 1].text == "::" and _next(found, at, "import")
    return name in _OF_PYBIND and owner in ("py", "pybind11") and found[at - 1].text == "::"


def _outlives(text: CppText, name: str, *, detached: bool) -> bool:
    """Whether a name starts work that nobody waits for."""
    if name == "pthread_create":
        return "pthread_join" not in text.names
    return bool(_HOST_CALLBACKS.fullmatch(name)) or (detached and name == "detach" and "thread" in text.names)


def _owner(found: Sequence[Token], at: int) -> str:
    """Name before the `::` before a name; empty for the global namespace."""
    before = found[at - 2] if at >= 2 else None
    return before.text if before is not None and before.kind == "name" else ""


def _next(found: Sequence[Token], at: int, name: str) -> bool:
    return [token.text for token in found[at + 1 : at + 3]] == ["::", name]


def _stem(name: str) -> str:
    """An operator's name without the ending of its variant."""
    return name.removesuffix("_out").removesuffix("_outf").rstrip("_")


def _is_operator(name: str) -> bool:
    return name in OPERATORS or _stem(name) in OPERATORS


def _aliases(found: Sequence[Token]) -> Iterator[str]:
    """Names that a text gives to the namespaces of torch's operators."""
    for at in range(len(found) - 3):
        if found[at].text == "namespace" and found[at + 2].text == "=":
            after = found[at + 4 if found[at + 3].text == "::" and at + 4 < len(found) else at + 3]
            if after.text in _ROOTS:
                yield found[at + 1].text


def _declared(found: Sequence[Token]) -> set[str]:
    """Names of operators that follow a type: `float softmax(`, `auto& mm =`."""
    return {
        found[at].text
        for at in range(1, len(found))
        if found[at].text in _UNQUALIFIED
        and (
            found[at - 1].text in ("*", "&", "&&", ">")
            or (found[at - 1].kind == "name" and found[at - 1].text not in _BEFORE_CALLS)
        )
    }


def _is_aten(text: CppText, at: int) -> bool:
    """Whether a name is an operator of ATen with its namespace before it."""
    found = text.tokens
    name = found[at].text
    if not _is_operator(name):
        return False
    path: list[str] = []
    while at >= 2 and found[at - 1].text == "::" and found[at - 2].kind == "name":
        path.append(found[at - 2].text)
        at -= 2
    return bool(path) and (path[-1] in text.roots or path == ["F"]) and "jit" not in path


def _fig_leaves(text: CppText) -> Iterator[tuple[str, int, str]]:
    found = text.tokens
    end = 0
    for at, token in enumerate(found):
        if token.text != "__global__" or token.kind != "name" or at < end:
            continue
        opening = next((i for i in range(at, min(at + 400, len(found))) if found[i].text in ("{", ";")), None)
        if opening is None or found[opening].text == ";":
            continue
        depth = 0
        for end in range(opening, min(opening + 400, len(found))):
            depth += (found[end].text == "{") - (found[end].text == "}")
            if depth == 0:
                break
        body = " ".join(part.text for part in found[opening:end]) + " "
        stores = re.findall(r"\] [-+*/]?=(?!=)", body)
        if len(stores) == 1 and _COPY_LINE.search(body):
            yield "fig_leaf", token.start, "a kernel that only copies"
