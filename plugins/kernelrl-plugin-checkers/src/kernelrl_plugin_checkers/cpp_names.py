"""What a text of C++ defines by itself, and in what scope each of its tokens stands. Never refuses a text."""

from __future__ import annotations

import bisect
import re
from collections.abc import Container, Iterator, Sequence

import attrs

from kernelrl_plugin_checkers.cpp_tokens import Token
from kernelrl_plugin_checkers.cpp_vocabulary import BASIC_TYPES, PATTERNS, QUALIFIERS, UNQUALIFIED

__all__ = ["PASTED", "CppNames", "Scope", "When", "conditions", "is_type", "visible"]

When = tuple[str, ...]
"""Conditions of the preprocessor around a place, from the outermost."""

_RECORDS = frozenset({"struct", "class", "union"})
_NO_FUNCTION = frozenset(
    {
        "__launch_bounds__",
        "__attribute__",
        "__align__",
        "alignas",
        "decltype",
        "noexcept",
        "__cluster_dims__",
        "requires",
    }
    | {
        "sizeof",
        "static_assert",
        "if",
        "while",
        "for",
        "switch",
        "return",
        "operator",
        "explicit",
        "_Pragma",
        "constexpr",
    }
)
_AFTER_NAME = frozenset({"=", ";", ",", ")", "[", "(", "{", ":", ">", "."})
_DECORATION = frozenset({"*", "&", "&&", "const", "__restrict__", "__restrict", "restrict", "volatile", "."})
_MOST_TYPE = 120
"""Tokens of a type that are looked at."""
_MOST_AROUND = 16
"""Blocks with a variable of the same name that are looked at for the one around a place."""
_MOST_NESTED = 16
_MOST_OF_MACRO = 4000
_CONDITION = re.compile(r"(?:#|%:)\s*(if|ifdef|ifndef|elif|elifdef|elifndef|else|endif)\b\s*(.*)", re.DOTALL)
_HEAD_OF_MACRO = re.compile(r"(?:#|%:)\s*define\s+\w++\(\s*(\w++)")
PASTED = (
    *(
        "_kernel",
        "_cuda",
        "_hip",
        "_cpu",
        "_impl",
        "_forward",
        "_backward",
        "_fwd",
        "_bwd",
        "_launch",
        "_launcher",
        "_host",
    ),
    *("_device", "_op", "_functor", "_vec4", "_float", "_half", "_f32", "_f16", "_bf16"),
)
"""Endings that a macro may give to a name."""
_DEFINE = re.compile(r"(?:#|%:)\s*define\s+(\w+)")


@attrs.define(eq=False)
class Variable:
    """A variable or parameter of a function."""

    begin: int
    """Number of the token of its declaration; 0 for a parameter."""
    callable: bool
    end: float = float("inf")
    """Number of the token that closes its block."""


@attrs.define(eq=False)
class Scope:
    """Where tokens stand: outside of functions, in a record or an enumeration, or in a function."""

    kind: str
    """`outside`, `record`, `enum`, `function` or `value`: the braces of an initialiser outside of functions."""
    device: bool = False
    """Whether the code runs on the device alone."""
    path: tuple[str, ...] = ()
    """Names of the namespaces and records around it."""
    variables: dict[str, list[Variable]] = attrs.field(factory=dict)
    """Variables and parameters, in the order of their declarations."""
    tensors: dict[str, bool] = attrs.field(factory=dict)
    """Variables and parameters -> whether all that are so named here are tensors."""

    def variable(self, name: str, at: int) -> Variable | None:
        """The variable of a name that a token can mean; None if there is none."""
        known = self.variables.get(name)
        if not known:
            return None
        last = bisect.bisect_right(known, at, key=lambda variable: variable.begin)
        return next((found for found in reversed(known[max(0, last - _MOST_AROUND) : last]) if at < found.end), None)


@attrs.define
class CppNames:
    """Names that one text defines, each with the conditions under which it does."""

    scopes: list[Scope] = attrs.field(factory=list)
    """The scope of each token."""
    changes: list[tuple[int, When]] = attrs.field(factory=list)
    """Numbers of tokens from which on other conditions hold."""
    types: dict[str, set[When]] = attrs.field(factory=dict)
    functions: dict[str, set[When]] = attrs.field(factory=dict)
    """Functions that have a body."""
    homes: dict[str, set[tuple[str, ...]]] = attrs.field(factory=dict)
    """Functions -> the namespaces and records that they are in."""
    declared: dict[str, int] = attrs.field(factory=dict)
    """Functions that are declared outside of functions -> offset; not all have a body."""
    values: dict[str, set[When]] = attrs.field(factory=dict)
    """Variables outside of functions, values of enumerations, parameters of templates."""
    members: dict[str, set[When]] = attrs.field(factory=dict)
    macros: dict[str, set[When]] = attrs.field(factory=dict)
    namespaces: set[str] = attrs.field(factory=set)
    opened: set[tuple[str, ...]] = attrs.field(factory=set)
    """The source's namespaces that `using namespace` opens."""
    aliases: dict[str, tuple[str, ...]] = attrs.field(factory=dict)
    """Other names of namespaces."""
    globals: list[tuple[int, Sequence[Token]]] = attrs.field(factory=list)
    """Statements outside of functions and records, to their end or first brace, and the number of the first token."""
    heads: list[tuple[int, int]] = attrs.field(factory=list)
    """First and last offset of the head of each function."""
    uneven: list[int] = attrs.field(factory=list)
    """Offsets of conditions whose branches leave braces open, or close others."""

    @classmethod
    def of(cls, found: Sequence[Token], directives: Sequence[Token]) -> CppNames:
        """Read a text.

        Args:
            found: tokens without blanks, comments and directives.
            directives: the directives.
        """
        names = cls()
        _Walk(names, found, directives).all()
        return names


def is_type(name: str, types: dict[str, set[When]]) -> bool:
    return (
        name in BASIC_TYPES
        or name in types
        or (name in UNQUALIFIED and name not in _NO_TYPE)
        or name.endswith("_t")
        or PATTERNS.fullmatch(name) is not None
    )


_NO_TYPE = frozenset({"return", "sizeof", "throw", "new", "delete", "case", "goto", "else", "do", "if", "while", "for"})
_NO_TYPE |= {
    "switch",
    "operator",
    "co_return",
    "co_await",
    "co_yield",
    "and",
    "or",
    "not",
    "this",
    "true",
    "false",
    "nullptr",
}
_NO_TYPE |= {
    "typeid",
    "alignof",
    "using",
    "namespace",
    "template",
    "typedef",
    "default",
    "try",
    "catch",
    "noexcept",
    "NULL",
}
_NO_TYPE |= {"threadIdx", "blockIdx", "blockDim", "gridDim", "warpSize"}


class _Walk:
    def __init__(self, names: CppNames, found: Sequence[Token], directives: Sequence[Token]) -> None:
        self._names, self._found = names, found
        self._directives = iter([*((token, token.start) for token in directives), (None, float("inf"))])
        self._when: When = ()
        self._depths: list[int] = []
        self._waiting: list[str] = []
        """Parameters of the head that is being read."""
        self._block: list[Variable] = []
        """Variables of the innermost block."""
        self._waiting_tensors: dict[str, bool] = {}
        self._makers: set[str] = set()
        """Macros that define functions."""

    def all(self) -> None:
        names, found = self._names, self._found
        self._types()
        scope = Scope("outside")
        stack: list[tuple[Scope, int, list[Variable]]] = []
        parens, head, template_end = 0, 0, 0
        directive, place = next(self._directives)
        fresh = True
        scopes = names.scopes
        for at, token in enumerate(found):
            if place < token.start:
                while directive is not None and place < token.start:
                    self._directed(directive, len(stack))
                    directive, place = next(self._directives)
                names.changes.append((at, self._when))
            scopes.append(scope)
            kind, text = token.kind, token.text
            if kind == "name":
                if fresh:
                    self._declaration(at, scope, parens)
                fresh = False
                continue
            fresh = False
            if kind != "mark":
                continue
            if text == "(":
                parens += 1
                fresh = True
            elif text == ",":
                fresh = parens > 0 or scope.kind == "enum" or at < template_end
            elif text == ")":
                parens = max(0, parens - 1)
            elif text == ";":
                if not parens:
                    self._ended(head, at, scope)
                    head = at + 1
                fresh = True
            elif text == "{":
                stack.append((scope, parens, self._block))
                self._block = []
                if scope.kind != "function" or not parens:
                    scope = self._opened(head, at, scope)
                parens, head, fresh = 0, at + 1, True
            elif text == "}":
                if stack:
                    for variable in self._block:
                        variable.end = at
                    scope, parens, self._block = stack.pop()
                head, fresh = at + 1, True
            elif text == "<":
                fresh = at > 0 and found[at - 1].text == "template"
                if fresh:
                    template_end = self._angles_closed(at) or 0
            elif text in (":", "]"):
                fresh = True
            elif text == "[" and scope.kind == "function" and _text(found, at + 2) == "=":
                self._variable(at + 1, scope, 0, callable_=True)
        while directive is not None:
            self._directed(directive, len(stack))
            directive, place = next(self._directives)
        if scope.kind == "outside":
            self._made(found[head:])

    def _directed(self, token: Token, depth: int) -> None:
        match = _CONDITION.match(token.text)
        if match is None:
            defined = _DEFINE.match(token.text)
            if defined:
                token = Token(token.kind, " ".join(token.text[:_MOST_OF_MACRO].split()), token.start)
                self._names.macros.setdefault(defined[1], set()).add(self._when)
                if _makes_functions(token.text):
                    self._makers.add(defined[1])
                    for name in re.findall(r"\w[ *&]+(\w++)(?= ?[=,;)])", token.text):
                        self._names.values.setdefault(name, set()).add(self._when)
            return
        word, rest = match[1], f"{match[1]} {' '.join(match[2].split())}"
        if word in ("if", "ifdef", "ifndef"):
            if len(self._when) >= _MOST_NESTED:
                self._names.uneven.append(token.start)
                return
            self._when = (*self._when, rest)
            self._depths.append(depth)
        elif self._depths:
            if self._depths[-1] != depth:
                self._names.uneven.append(token.start)
            if word == "endif":
                self._when = self._when[:-1]
                self._depths.pop()
            else:
                # Chains may be long: a name of one length stands for all that was asked before.
                self._when = (*self._when[:-1], str(hash((self._when[-1], rest))))

    def _types(self) -> None:
        """Types and namespaces, which declarations are known by."""
        found, names = self._found, self._names
        # Conditions are not told apart here: a type is no way out of the lists.
        for at, token in enumerate(found):
            text = token.text
            if token.kind != "name" or text not in _TYPES_BEGIN:
                continue
            if text == "namespace":
                self._namespace(at)
            elif text == "using":
                if _text(found, at + 2) in ("=", "[") and _text(found, at + 1) != "namespace":
                    names.types.setdefault(_text(found, at + 1), set()).add(())
            elif text == "typedef":
                self._typedef(at)
            else:
                name = _record_name(found, at)
                if name:
                    names.types.setdefault(name, set()).add(())

    def _namespace(self, at: int) -> None:
        found, names = self._found, self._names
        if _text(found, at - 1) == "using":
            names.opened.add(tuple(token.text for token in found[at + 1 : at + 6 : 2] if token.kind == "name"))
            return
        name = _text(found, at + 1)
        if _text(found, at + 2) == "=":
            path: list[str] = []
            at += 3
            while at < len(found) and found[at].text != ";" and len(path) < 8:
                if found[at].kind == "name":
                    path.append(found[at].text)
                at += 1
            if path:
                names.aliases[name] = tuple(path)
            return
        for token in found[at + 1 : at + 16]:
            if token.text in ("{", ";"):
                break
            if token.kind == "name":
                names.namespaces.add(token.text)

    def _typedef(self, at: int) -> None:
        last, depth = "", 0
        for token in self._found[at + 1 : at + _MOST_TYPE]:
            if token.text in ("{", "("):
                depth += 1
            elif token.text in ("}", ")"):
                depth -= 1
            elif depth == 0 and (token.text in (";", "[") or token.text == "__attribute__"):
                break
            elif token.kind == "name" and depth == 0:
                last = token.text
        if last:
            self._names.types.setdefault(last, set()).add(())

    def _declaration(self, at: int, scope: Scope, parens: int) -> None:
        """Take up the names of a declaration, if one begins here."""
        found = self._found
        if scope.kind == "enum":
            self._names.values.setdefault(found[at].text, set()).add(self._when)
            return
        begin = at
        type_end = self._type_end(at)
        if type_end is None:
            return
        callable_ = found[type_end - 1].text not in BASIC_TYPES
        at = type_end
        if found[type_end - 1].text == "auto":
            bound = at + (_text(found, at) in ("&", "&&"))
            if _text(found, bound) == "[":
                for place in range(bound + 1, min(bound + 40, len(found))):
                    if found[place].text == "]":
                        return
                    if found[place].kind == "name":
                        self._variable(place, scope, 0, callable_=True)
                return
        if [_text(found, at), _text(found, at + 3), _text(found, at + 4)] == ["(", ")", "["] and found[
            at + 2
        ].kind == "name":
            # `float (&row)[4]`
            self._variable(at + 2, scope, max(parens, 1), callable_=False)
            return
        in_for = scope.kind == "function" and _text(found, begin - 2) == "for"
        is_parameter = (parens > 0 and not in_for) or _text(found, begin - 1) in ("<", ",")
        while True:
            while _text(found, at) in _DECORATION:
                at += 1
            if at >= len(found) or found[at].kind != "name" or found[at].text in UNQUALIFIED_WORDS:
                return
            after = _text(found, at + 1)
            if after not in _AFTER_NAME and after != "__attribute__":
                return
            if after == "(" and scope.kind in ("outside", "record"):
                # A function; its parameters are declarations of their own.
                return
            self._variable(at, scope, parens, callable_=after != "(" and (callable_ or self._is_function(at, parens)))
            self._tensor(at, type_end, scope)
            if is_parameter:
                return
            next_at = self._next_declarator(at + 1)
            if next_at is None:
                return
            at = next_at

    def _next_declarator(self, at: int) -> int | None:
        """Place behind the comma that ends a declarator."""
        found, depth = self._found, 0
        for place in range(at, min(at + 400, len(found))):
            text = found[place].text
            if text in ("(", "[", "{"):
                depth += 1
            elif text in (")", "]", "}"):
                depth -= 1
                if depth < 0 or (depth == 0 and text == "}" and _text(found, place + 1) not in (",", ";")):
                    return None
            elif depth == 0:
                if text == ";":
                    return None
                if text == ",":
                    return place + 1
        return None

    def _variable(self, at: int, scope: Scope, parens: int, *, callable_: bool) -> None:
        names, name = self._names, self._found[at].text
        if scope.kind == "function":
            variable = Variable(at, callable_)
            self._block.append(variable)
            scope.variables.setdefault(name, []).append(variable)
        elif parens:
            self._waiting.append(name)
        elif scope.kind == "record":
            names.members.setdefault(name, set()).add(self._when)
        else:
            names.values.setdefault(name, set()).add(self._when)

    def _is_function(self, at: int, parens: int) -> bool:
        """Whether what is declared with `auto` is a parameter or a lambda."""
        return parens > 0 or [token.text for token in self._found[at + 1 : at + 3]] == ["=", "["]

    def _tensor(self, at: int, type_end: int, scope: Scope) -> None:
        found, name = self._found, self._found[at].text
        last = found[type_end - 1].text
        made = [token.text for token in found[at + 1 : at + 4]]
        is_tensor = (last == "Tensor" and found[at - 1].text not in ("*", ">")) or (
            last == "auto"
            and len(made) == 3
            and made[0] == "="
            and made[1] in ("torch", "at")
            and made[2] == "::"
            and _text(found, at + 4) in _MAKE_TENSORS
        )
        known = scope.tensors if scope.kind == "function" else self._waiting_tensors
        known[name] = known.get(name, True) and is_tensor

    def _type_end(self, at: int) -> int | None:
        """Place behind a type, if one begins here."""
        found, types = self._found, self._names.types
        end, seen = min(at + _MOST_TYPE, len(found)), False
        while at < end:
            token = found[at]
            text = token.text
            if token.kind == "string" and text == '"C"':
                at += 1
            elif (text in ("*", "&", "&&", "[") and seen) or token.kind != "name":
                break
            elif text in _WITH_PARENTHESES and _text(found, at + 1) == "(":
                closed = self._closed(at + 1)
                if closed is None:
                    return None
                seen = seen or text == "decltype"
                at = closed
            elif text in QUALIFIERS:
                at += 1
            elif seen and text not in BASIC_TYPES:
                break
            elif _text(found, at + 1) == "::" or _text(found, at + 1) == "<" or is_type(text, types):
                seen, at = True, self._path_end(at)
            else:
                break
        return at if seen and at < len(found) else None

    def _path_end(self, at: int) -> int:
        found = self._found
        while True:
            at += 1
            if _text(found, at) == "<":
                closed = self._angles_closed(at)
                if closed is None:
                    return at
                at = closed
            if _text(found, at) != "::":
                return at
            at += 1
            if _text(found, at) == "template":
                at += 1
            if at >= len(found) or found[at].kind != "name":
                return at

    def _closed(self, at: int) -> int | None:
        depth = 0
        for place in range(at, min(at + _MOST_TYPE, len(self._found))):
            depth += (self._found[place].text == "(") - (self._found[place].text == ")")
            if depth == 0:
                return place + 1
        return None

    def _angles_closed(self, at: int) -> int | None:
        depth = 0
        for place in range(at, min(at + _MOST_TYPE, len(self._found))):
            text = self._found[place].text
            if text == "<":
                depth += 1
            elif text == ">":
                depth -= 1
                if depth == 0:
                    return place + 1
            elif text in (";", "{", "}", "&&", "||"):
                return None
        return None

    def _ended(self, head: int, at: int, scope: Scope) -> None:
        if scope.kind not in ("outside", "record"):
            return
        names, statement = self._names, self._found[head:at]
        self._made(statement)
        name = _function_of(statement, names.macros)
        if name and scope.kind == "outside" and _is_prototype(statement, name):
            names.declared.setdefault(name.text, name.start)
        elif scope.kind == "outside" and statement:
            names.globals.append((head, statement))
        if name and scope.kind == "record":
            # Its body may stand outside of the record; where nothing has one, the linker says so.
            names.members.setdefault(name.text, set()).add(self._when)
        if self._waiting:
            self._head(head, at, Scope(scope.kind))

    def _made(self, statement: Sequence[Token]) -> None:
        """Take up functions that macros make: the macro is called outside of functions, with the name in front."""
        for index, token in enumerate(statement[:-2]):
            if token.text in self._makers and statement[index + 1].text == "(" and statement[index + 2].kind == "name":
                name = statement[index + 2].text
                for ending in ("", *PASTED):
                    self._names.functions.setdefault(name + ending, set()).add(self._when)
                    self._names.homes.setdefault(name + ending, set()).add(())

    def _head(self, head: int, at: int, scope: Scope) -> None:
        """Let the names of parameters be known in the head that has them."""
        scope.variables = {name: [Variable(0, True)] for name in self._waiting}
        scope.tensors = self._waiting_tensors
        self._waiting, self._waiting_tensors = [], {}
        self._names.scopes[head:at] = [scope] * (at - head)

    def _opened(self, head: int, at: int, scope: Scope) -> Scope:
        """The scope that a brace opens."""
        found, names = self._found, self._names
        statement = found[head:at]
        words = [token.text for token in statement if token.kind == "name"]
        if scope.kind == "function":
            if _is_record(statement) and "(" not in [token.text for token in statement]:
                return Scope("record", path=(*scope.path, _name_of(statement))[:_MOST_NESTED])
            return scope
        if scope.kind in ("value", "enum"):
            return scope
        if "namespace" in words[:2] or words == ["extern"] or (not statement and scope.kind == "outside"):
            inside = tuple(word for word in words if word not in _NO_NAMES)
            return Scope("outside", path=(scope.path + inside)[:_MOST_NESTED])
        if "enum" in words:
            return Scope("enum")
        if _is_record(statement):
            return Scope("record", path=(*scope.path, _name_of(statement))[:_MOST_NESTED])
        self._made(statement)
        name = _function_of(statement, names.macros)
        if name is None:
            if scope.kind == "outside":
                names.globals.append((head, statement))
            self._waiting, self._waiting_tensors = [], {}
            return Scope("value")
        for where in (names.functions, *([names.members] if scope.kind == "record" else [])):
            where.setdefault(name.text, set()).add(self._when)
        owners = _owners(statement, name)
        names.homes.setdefault(name.text, set()).add((*scope.path, *owners)[:_MOST_NESTED])
        names.heads.append((statement[0].start, found[at].start))
        made = Scope("function", bool({"__global__", "__device__"} & set(words)) and "__host__" not in words)
        made.path = (*scope.path, *owners)[:_MOST_NESTED]
        if name.text == "PYBIND11_MODULE" and len(statement) > 4:
            self._waiting.append(statement[4].text)
        self._head(head, at, made)
        return made


UNQUALIFIED_WORDS = QUALIFIERS | BASIC_TYPES | _NO_TYPE
_MAKE_TENSORS = frozenset(
    {"empty", "empty_like", "empty_strided", "zeros", "zeros_like", "ones", "ones_like", "full", "full_like"}
)
_WITH_PARENTHESES = frozenset({"alignas", "__align__", "decltype", "__attribute__", "__launch_bounds__", "explicit"})
_NO_NAMES = frozenset({"namespace", "inline", "extern"})
_TYPES_BEGIN = frozenset({"struct", "class", "union", "enum", "using", "typedef", "typename", "namespace"})


def _makes_functions(macro: str) -> bool:
    """Whether a macro defines a function that is named by its first parameter, with or without an ending."""
    head = _HEAD_OF_MACRO.match(macro)
    if head is None:
        return False
    made = rf"[\w>&*][\s&*]{{1,20}}{head[1]}(?:\s?##\s?_\w{{1,20}})?\s{{0,20}}\([^(){{}}]{{0,1000}}\)\s{{0,80}}\{{"
    return re.search(made, macro) is not None


def _text(found: Sequence[Token], at: int) -> str:
    return found[at].text if 0 <= at < len(found) else ""


def _record_name(found: Sequence[Token], at: int) -> str:
    """Name behind `struct`, `typename` and the like, if it is declared there."""
    is_parameter = found[at].text in ("typename", "class") and _text(found, at - 1) in ("<", ",")
    at += 1
    end = at + _MOST_NESTED
    while at < min(end, len(found)) and found[at].text in (
        "class",
        "struct",
        ".",
        "__attribute__",
        "__align__",
        "alignas",
    ):
        if found[at].text in ("__attribute__", "__align__", "alignas"):
            at = _group_end(found, at + 1)
        at += 1
    if at >= len(found) or found[at].kind != "name":
        return ""
    after = _text(found, at + 1)
    if is_parameter:
        return found[at].text if after in (",", ">", "=") else ""
    return found[at].text if after in ("{", ";", ":", "<", "final") else ""


def _group_end(found: Sequence[Token], at: int) -> int:
    """Place of the parenthesis that closes the one here."""
    depth, place = 0, at
    for place in range(at, min(at + 40, len(found))):
        depth += (found[place].text == "(") - (found[place].text == ")")
        if depth == 0:
            break
    return place


def _is_record(statement: Sequence[Token]) -> bool:
    for index, token in enumerate(statement):
        if token.text in _RECORDS and token.kind == "name" and _text(statement, index - 1) not in ("<", ",", "enum"):
            after = [part.text for part in statement[index + 1 : index + 3]]
            return (
                "(" not in [part.text for part in statement[index:]]
                or after[:1] in (["__align__"], ["alignas"], ["__attribute__"])
                or ":" in [part.text for part in statement[index:]]
            )
        if token.text == "(":
            return False
    return False


def _function_of(statement: Sequence[Token], macros: Container[str] = ()) -> Token | None:
    """Name of the function that a statement outside of functions declares."""
    depth, angles = 0, 0
    is_template = _text(statement, 0) == "template"
    for index, token in enumerate(statement):
        text = token.text
        if text in ("<", ">") and is_template:
            angles += 1 if text == "<" else -1
        elif text == "(":
            before = statement[index - 1] if index else None
            if depth == 0 and before is not None and before.text == ">":
                before = _before_angles(statement, index - 1)
            is_name = depth == 0 and before is not None and before.kind == "name" and before.text not in _NO_FUNCTION
            if is_name and before is not None and before.text not in macros:
                return before
            if depth == 0 and "operator" in [part.text for part in statement[max(0, index - 3) : index]]:
                return next(part for part in reversed(statement[:index]) if part.text == "operator")
            depth += 1
        elif text == ")":
            depth -= 1
        elif text == "=" and depth == 0 and angles <= 0 and _text(statement, index - 1) != "operator":
            return None
    return None


def _before_angles(statement: Sequence[Token], at: int) -> Token | None:
    """The name before the arguments of a template that end here: `name<float>(`."""
    depth = 0
    for index in range(at, max(0, at - 40), -1):
        depth += (statement[index].text == ">") - (statement[index].text == "<")
        if depth == 0:
            return statement[index - 1] if statement[index - 1].text != "template" else None
    return None


def _owners(statement: Sequence[Token], name: Token) -> tuple[str, ...]:
    """Records and namespaces before the name of a function: `void Owner::name()`."""
    index, owners = statement.index(name), []
    while index >= 2 and statement[index - 1].text == "::" and statement[index - 2].kind == "name":
        owners.append(statement[index - 2].text)
        index -= 2
    return tuple(reversed(owners[:_MOST_NESTED]))


def _name_of(statement: Sequence[Token]) -> str:
    """Name of a record."""
    index = next(
        (
            i
            for i, token in enumerate(statement)
            if token.text in _RECORDS and _text(statement, i - 1) not in ("<", ",")
        ),
        0,
    )
    return _record_name(statement, index) or _text(statement, index + 1)


def _is_prototype(statement: Sequence[Token], name: Token) -> bool:
    words = {token.text for token in statement}
    if {"using", "typedef", "friend", "static_assert", "namespace"} & words:
        return False
    index = statement.index(name)
    return index > 0 and not (statement[0].text == "template" and _text(statement, 1) != "<")


def visible(known: dict[str, set[When]], name: str, when: When) -> bool:
    """Whether a name is defined wherever a place with these conditions is compiled."""
    places = known.get(name)
    return places is not None and (() in places or any(when[:count] in places for count in range(1, len(when) + 1)))


def conditions(changes: Sequence[tuple[int, When]], count: int) -> Iterator[tuple[range, When]]:
    """Stretches of tokens under the same conditions."""
    begin = 0
    when: When = ()
    for at, then in changes:
        if at > begin:
            yield range(begin, at), when
        begin, when = at, then
    if count > begin:
        yield range(begin, count), when
