"""Goes through a text of C++ once, for what it defines and for the scope of each token. Never refuses a text."""

from __future__ import annotations

from collections.abc import Sequence

from kernelrl_plugin_checkers.cpp_declarations import Declarations
from kernelrl_plugin_checkers.cpp_names import CppNames, Scope, Variable
from kernelrl_plugin_checkers.cpp_statements import MOST_NESTED, function_of, is_prototype, is_record, name_of, owners
from kernelrl_plugin_checkers.cpp_tokens import Token, text_at

__all__ = ["names_of"]

_NOT_IN_PATHS = frozenset({"namespace", "inline", "extern"})


def names_of(found: Sequence[Token], directives: Sequence[Token]) -> CppNames:
    """What a text defines.

    Args:
        found: tokens without blanks, comments and directives.
        directives: the directives.
    """
    names = CppNames()
    _Walk(names, found).all(directives)
    return names


class _Walk(Declarations):
    def all(self, directives: Sequence[Token]) -> None:
        names, found = self._names, self._found
        self._types()
        scope = Scope("outside")
        stack: list[tuple[Scope, int, list[Variable]]] = []
        parens, head, template_end = 0, 0, 0
        coming = iter(directives)
        directive = next(coming, None)
        fresh = True
        scopes = names.scopes
        for at, token in enumerate(found):
            if directive is not None and directive.start < token.start:
                while directive is not None and directive.start < token.start:
                    self._preprocessor.read(directive, len(stack))
                    directive = next(coming, None)
                names.changes.append((at, self._preprocessor.when))
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
            elif text == "[" and scope.kind == "function" and text_at(found, at + 2) == "=":
                self._variable(at + 1, scope, 0, callable_=True)
        while directive is not None:
            self._preprocessor.read(directive, len(stack))
            directive = next(coming, None)
        if scope.kind == "outside":
            self._preprocessor.made(found[head:])

    def _ended(self, head: int, at: int, scope: Scope) -> None:
        if scope.kind not in ("outside", "record"):
            return
        names, statement = self._names, self._found[head:at]
        self._preprocessor.made(statement)
        name = function_of(statement, names.macros)
        if name and scope.kind == "outside" and is_prototype(statement, name):
            names.declared.setdefault(name.text, name.start)
        elif scope.kind == "outside" and statement:
            names.globals.append((head, statement))
        if name and scope.kind == "record":
            # Its body may stand outside of the record; where nothing has one, the linker says so.
            names.members.setdefault(name.text, set()).add(self._preprocessor.when)
        if self._waiting:
            self._head(head, at, Scope(scope.kind))

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
            if is_record(statement) and "(" not in [token.text for token in statement]:
                return Scope("record", path=(*scope.path, name_of(statement))[:MOST_NESTED])
            return scope
        if scope.kind in ("value", "enum"):
            return scope
        if "namespace" in words[:2] or words == ["extern"] or (not statement and scope.kind == "outside"):
            inside = tuple(word for word in words if word not in _NOT_IN_PATHS)
            return Scope("outside", path=(scope.path + inside)[:MOST_NESTED])
        if "enum" in words:
            return Scope("enum")
        if is_record(statement):
            return Scope("record", path=(*scope.path, name_of(statement))[:MOST_NESTED])
        self._preprocessor.made(statement)
        name = function_of(statement, names.macros)
        if name is None:
            if scope.kind == "outside":
                names.globals.append((head, statement))
            self._waiting, self._waiting_tensors = [], {}
            return Scope("value")
        for where in (names.functions, *([names.members] if scope.kind == "record" else [])):
            where.setdefault(name.text, set()).add(self._preprocessor.when)
        around = (*scope.path, *owners(statement, name))[:MOST_NESTED]
        names.homes.setdefault(name.text, set()).add(around)
        names.heads.append((statement[0].start, found[at].start))
        made = Scope("function", bool({"__global__", "__device__"} & set(words)) and "__host__" not in words)
        made.path = around
        if name.text == "PYBIND11_MODULE" and len(statement) > 4:
            self._waiting.append(statement[4].text)
        self._head(head, at, made)
        return made
