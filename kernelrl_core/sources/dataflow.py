"""Data flow of a PyTorch reference: the graph of operators between the inputs and the result of `forward`.

The source is evaluated symbolically, never executed: helper functions, submodules and loops over module lists are
expanded, so that the graph does not depend on names, formatting, the order of independent statements, or on a module
that only calls another one. Numbers become `#`; strings and booleans stay, because they select a variant of an operator
(`bias=False`, `approximate="tanh"`). A loop over `range` is evaluated once.
"""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

import attrs

from kernelrl_core.sources.syntax import MAX_SOURCE_CHARACTERS, parse

__all__ = ["Node", "nodes_of", "result_of"]

_MAX_STEPS = 40_000
_MAX_CALLS = 40

_UNKNOWN = object()
_NUMBER = "#"

_SAME_OPERATOR = {
    "absolute": "abs",
    "arccos": "acos",
    "clip": "clamp",
    "divide": "div",
    "truedivide": "div",
    "view": "reshape",
    "multiply": "mul",
    "subtract": "sub",
    "negative": "neg",
    "mm": "matmul",
    "swapaxes": "transpose",
    "concat": "cat",
    "concatenate": "cat",
    "t": "transpose",
    "mt": "transpose",
    "values": "getitem",
}
_COMMUTATIVE = frozenset({"add", "mul", "eq", "ne", "maximum", "minimum", "logicaland", "logicalor", "bitand", "bitor"})
_MIRRORED = {"gt": "lt", "ge": "le", "greater": "lt", "greaterequal": "le"}
_INERT = frozenset({"contiguous", "clone", "detach", "to", "cuda", "cpu", "requiresgrad", "data"})
_INERT_KEYWORDS = frozenset({"inplace", "device", "training", "requires_grad", "out", "generator"})
_TRUE_BY_DEFAULT = frozenset({"bias", "affine", "elementwise_affine", "count_include_pad"})
_FACTS = frozenset({"shape", "size", "dim", "ndim", "numel", "device", "dtype", "is_cuda", "stride", "element_size"})
_PLAIN = frozenset({"math", "np", "numpy", "int", "float", "bool", "str", "max", "min", "sum", "abs", "round", "pow"})
_OPERATORS: dict[type[ast.AST], str] = {
    ast.Add: "add",
    ast.Sub: "sub",
    ast.Mult: "mul",
    ast.Div: "div",
    ast.FloorDiv: "floordivide",
    ast.Mod: "remainder",
    ast.Pow: "pow",
    ast.MatMult: "matmul",
    ast.USub: "neg",
    ast.Invert: "bitwisenot",
    ast.BitAnd: "bitand",
    ast.BitOr: "bitor",
    ast.BitXor: "bitxor",
    ast.LShift: "shl",
    ast.RShift: "shr",
    ast.Eq: "eq",
    ast.NotEq: "ne",
    ast.Lt: "lt",
    ast.LtE: "le",
    ast.Gt: "gt",
    ast.GtE: "ge",
}


class Node:
    """A value of the graph: an operator with its operands, or a leaf (`input`, `parameter`)."""

    __slots__ = ("digest", "label", "operands")

    def __init__(self, label: str, operands: Sequence[Node] = (), *, key: str = "") -> None:
        if label in _COMMUTATIVE:
            operands = sorted(operands, key=lambda node: node.digest)
        self.label = label
        self.operands = tuple(operands)
        text = "\0".join([key or label, *(node.digest for node in self.operands)])
        self.digest: str = hashlib.blake2b(text.encode(errors="replace"), digest_size=8).hexdigest()
        """Equal for equal subgraphs."""


_CONSTANT = Node(_NUMBER)


def result_of(source: str) -> Node | None:
    """The node that `forward` returns; None if the source does not parse or has no module with operators."""
    if len(source) > MAX_SOURCE_CHARACTERS:
        return None
    try:
        result = _Evaluation(parse(source)).result()
    except (SyntaxError, ValueError, RecursionError, MemoryError, _TooComplex):
        return None
    return result if result is not None and result.operands else None


def nodes_of(root: Node) -> list[Node]:
    """All nodes of a graph, each once."""
    found, waiting = {id(root): root}, [root]
    while waiting:
        for node in waiting.pop().operands:
            if id(node) not in found:
                found[id(node)] = node
                waiting.append(node)
    return list(found.values())


class _TooComplex(Exception):
    pass


@attrs.frozen
class _Const:
    """A value known without tensors. Only strings, booleans, None and indices matter."""

    value: Any = _UNKNOWN


@attrs.frozen(eq=False)
class _Name:
    """A dotted name that the source does not define, such as `torch.nn.functional.relu`."""

    parts: tuple[str, ...]


@attrs.frozen(eq=False)
class _Layer:
    """A module of a library."""

    label: str
    children: tuple[Any, ...] = ()
    numbers: bool = False


@attrs.frozen(eq=False)
class _Function:
    node: ast.FunctionDef | ast.Lambda
    scope: Mapping[str, Any]
    owner: Any = None
    """The instance of a method; None for a plain function."""
    home: ast.ClassDef | None = None


@attrs.frozen(eq=False)
class _Method:
    """A method of a value that the source does not define."""

    owner: Any
    name: str


@attrs.define(eq=False)
class _Instance:
    kind: ast.ClassDef
    attributes: dict[str, Any] = attrs.field(factory=dict)


class _Repeated(list[Any]):
    """A list of unknown length; its items are one period."""


class _Evaluation:
    def __init__(self, tree: ast.Module) -> None:
        self._steps = 0
        self._calls = 0
        self._globals: dict[str, Any] = {}
        self._block(tree.body, self._globals)

    def result(self) -> Node | None:
        kind = self._entry()
        if kind is None:
            return None
        model = self._instance(kind, *self._init_inputs())
        forward = self._attribute(model, "forward")
        if not isinstance(forward, _Function):
            return None
        given = self._from_function("get_inputs")
        arguments = forward.node.args
        expected = len(arguments.posonlyargs) + len(arguments.args) - 1 - len(arguments.defaults)
        count = max(len(given) if isinstance(given, list) else 1, expected)
        inputs = [Node("input", key=f"input {position}") for position in range(count)]
        value = self._call(forward, inputs, {})
        found = list(_operands([value]))
        if not any(node.operands or node.label not in (_NUMBER, "input", "parameter") for node in found):
            return None
        return found[0] if len(found) == 1 else Node("outputs", found)

    def _entry(self) -> ast.ClassDef | None:
        classes = [value for value in self._globals.values() if isinstance(value, ast.ClassDef)]
        modules = [node for node in classes if self._method(node, "forward") is not None]
        for node in modules:
            if node.name == "Model":
                return node
        used = {
            name.id
            for module in modules
            for name in ast.walk(module)
            if isinstance(name, ast.Name) and name.id != module.name
        }
        return next((node for node in reversed(modules) if node.name not in used), modules[-1] if modules else None)

    def _init_inputs(self) -> tuple[list[Any], dict[str, Any]]:
        given = self._from_function("get_init_inputs")
        match given:
            case [list() as positional, dict() as named]:
                return positional, {str(key): value for key, value in named.items()}
            case list():
                return given, {}
        return [], {}

    def _from_function(self, name: str) -> Any:
        function = self._globals.get(name)
        return self._call(function, [], {}) if isinstance(function, _Function) else None

    # Statements

    def _block(self, statements: Sequence[ast.stmt], scope: dict[str, Any]) -> Any:
        """Evaluate statements. Returns the returned value, None if they do not return."""
        for position, statement in enumerate(statements):
            self._count()
            match statement:
                case ast.Return(value=value):
                    return self._value(value, scope) if value is not None else _Const(None)
                case ast.Assign(targets=targets, value=value):
                    result = self._value(value, scope)
                    for target in targets:
                        self._assign(target, result, scope)
                case ast.AnnAssign(target=target, value=value) if value is not None:
                    self._assign(target, self._value(value, scope), scope)
                case ast.AugAssign(target=target, op=op, value=value):
                    new = self._binary(op, self._value(target, scope), self._value(value, scope))
                    self._assign(target, new, scope)
                case ast.Expr(value=value):
                    self._expression_statement(value, scope)
                case ast.FunctionDef(name=name):
                    scope[name] = _Function(statement, scope)
                case ast.ClassDef(name=name):
                    scope[name] = statement
                case ast.Import(names=names) | ast.ImportFrom(names=names):
                    for alias in names:
                        scope[alias.asname or alias.name.partition(".")[0]] = _Name((alias.name.rpartition(".")[2],))
                case ast.If(test=test, body=body, orelse=orelse):
                    if scope is self._globals and _is_main(test):
                        continue
                    known = _truth(self._value(test, scope))
                    if known is not None:
                        returned = self._block(body if known else orelse, scope)
                    else:
                        rest = statements[position + 1 :]
                        returned, complete = self._either(body, orelse, rest, scope)
                        if complete:
                            return returned
                    if returned is not None:
                        return returned
                case ast.For(target=target, iter=over, body=body):
                    returned = self._loop(target, self._value(over, scope), body, scope)
                    if returned is not None:
                        return returned
                case ast.While(body=body):
                    returned = self._loop(None, _Repeated([_Const()]), body, scope)
                    if returned is not None:
                        return returned
                case ast.With(body=body) | ast.Try(body=body):
                    returned = self._block(body, scope)
                    if returned is not None:
                        return returned
        return None

    def _either(
        self, body: list[ast.stmt], orelse: list[ast.stmt], rest: Sequence[ast.stmt], scope: dict[str, Any]
    ) -> tuple[Any, bool]:
        """Both branches of an `if`. True: the returned value includes the statements after it."""
        # Each once: a method knows its instance under two names.
        instances = list({id(value): value for value in scope.values() if isinstance(value, _Instance)}.values())
        before = [dict(instance.attributes) for instance in instances]
        first, second = dict(scope), dict(scope)
        one = self._block(body, first)
        attributes = [dict(instance.attributes) for instance in instances]
        for instance, old in zip(instances, before, strict=True):
            instance.attributes = old
        two = self._block(orelse, second)
        for instance, changed in zip(instances, attributes, strict=True):
            instance.attributes = _joined(changed, instance.attributes)
        if one is not None and two is not None:
            return _choice(one, two), True
        if one is None and two is None:
            scope.update(_joined(first, second))
            return None, False
        scope.update(first if one is None else second)
        after = self._block(rest, scope)
        if one is None:
            return (_choice(after, two) if after is not None else two), True
        return (_choice(one, after) if after is not None else one), True

    def _loop(self, target: ast.expr | None, over: Any, body: list[ast.stmt], scope: dict[str, Any]) -> Any:
        if not isinstance(over, list):
            over = _Repeated([_item(over, 0)])
        before = dict(scope)
        for item in list(over):
            if target is not None:
                self._assign(target, item, scope)
            returned = self._block(body, scope)
            if returned is not None:
                return returned
        if isinstance(over, _Repeated):
            for name, value in scope.items():
                if name in before and isinstance(value, Node) and value is not before[name]:
                    scope[name] = Node("loop", [value])
        return None

    def _expression_statement(self, expression: ast.expr, scope: dict[str, Any]) -> None:
        value = self._value(expression, scope)
        match expression:
            case ast.Call(func=ast.Attribute(value=target, attr=name)) if name.endswith("_") and isinstance(
                value, Node
            ):
                if isinstance(target, ast.Name | ast.Attribute) and isinstance(self._value(target, scope), Node):
                    self._assign(target, value, scope)

    def _assign(self, target: ast.expr, value: Any, scope: dict[str, Any]) -> None:
        match target:
            case ast.Name(id=name):
                scope[name] = value
            case ast.Attribute(value=owner, attr=name):
                instance = self._value(owner, scope)
                if isinstance(instance, _Instance):
                    instance.attributes[name] = value
            case ast.Tuple(elts=targets) | ast.List(elts=targets):
                for position, part in enumerate(targets):
                    if isinstance(part, ast.Starred):
                        self._assign(part.value, value, scope)
                    else:
                        self._assign(part, _item(value, position), scope)
            case ast.Subscript(value=owner, slice=index):
                old, key = self._value(owner, scope), self._value(index, scope)
                match old, key:
                    case dict(), _Const(value=str() as name):
                        old[name] = value
                    case list(), _Const(value=int() as position) if -len(old) <= position < len(old):
                        old[position] = value
                    case Node(), _:
                        self._assign(owner, Node("setitem", list(_operands([old, key, value]))), scope)

    # Expressions

    def _value(self, node: ast.expr, scope: Mapping[str, Any]) -> Any:
        self._count()
        match node:
            case ast.Constant(value=value):
                return _Const(value)
            case ast.Name(id=name):
                if name in scope:
                    return scope[name]
                return self._globals.get(name, _Name((name,)))
            case ast.Attribute(value=owner, attr=name):
                found = self._attribute(self._value(owner, scope), name)
                called = isinstance(found, _Method) and isinstance(found.owner, Node)
                return Node(f".{name}", [found.owner]) if called else found
            case ast.Call():
                return self._call_expression(node, scope)
            case ast.BinOp(left=left, op=op, right=right):
                return self._binary(op, self._value(left, scope), self._value(right, scope))
            case ast.UnaryOp(op=op, operand=operand):
                return _unary(op, self._value(operand, scope))
            case ast.BoolOp(op=op, values=values):
                return _boolean(op, [self._value(value, scope) for value in values])
            case ast.Compare(left=left, ops=ops, comparators=others):
                return _compared(self._value(left, scope), ops, [self._value(other, scope) for other in others])
            case ast.IfExp(test=test, body=body, orelse=orelse):
                known = _truth(self._value(test, scope))
                if known is not None:
                    return self._value(body if known else orelse, scope)
                return _choice(self._value(body, scope), self._value(orelse, scope))
            case ast.Tuple(elts=items) | ast.List(elts=items) | ast.Set(elts=items):
                return self._items(items, scope)
            case ast.Dict(keys=keys, values=values):
                names = [self._value(key, scope) if key is not None else None for key in keys]
                return {getattr(name, "value", i): self._value(values[i], scope) for i, name in enumerate(names)}
            case ast.Subscript(value=owner, slice=index):
                return _subscript(self._value(owner, scope), self._value(index, scope))
            case (
                ast.ListComp(elt=element, generators=[first, *_])
                | ast.GeneratorExp(elt=element, generators=[first, *_])
            ):
                over = self._value(first.iter, scope)
                inner = dict(scope)
                elements: list[Any] = []
                for item in over if isinstance(over, list) else [_item(over, 0)]:
                    self._assign(first.target, item, inner)
                    elements.append(self._value(element, inner))
                return elements if isinstance(over, list) and not isinstance(over, _Repeated) else _Repeated(elements)
            case ast.Lambda():
                return _Function(node, dict(scope))
            case ast.NamedExpr(target=target, value=value):
                result = self._value(value, scope)
                if isinstance(scope, dict):
                    scope[target.id] = result
                return result
            case ast.Slice(lower=lower, upper=upper, step=step):
                parts = [self._value(part, scope) for part in (lower, upper, step) if part is not None]
                return [part for part in parts if isinstance(part, Node)] or _Const()
            case ast.Starred(value=value):
                return self._value(value, scope)
        return _Const()

    def _items(self, items: Sequence[ast.expr], scope: Mapping[str, Any]) -> list[Any]:
        found: list[Any] = []
        for item in items:
            value = self._value(item, scope)
            if isinstance(item, ast.Starred) and isinstance(value, _Repeated):
                found.append(_Layer("loop", tuple(value)))
            elif isinstance(item, ast.Starred) and isinstance(value, list | dict):
                found += value
            else:
                found.append(value)
        return found

    def _attribute(self, owner: Any, name: str) -> Any:
        match owner:
            case _Instance():
                if name in owner.attributes:
                    return owner.attributes[name]
                return self._member(owner.kind, name, owner)
            case ast.ClassDef():
                if name == "apply" and (forward := self._method(owner, "forward")) is not None:
                    return _Function(forward[0], self._globals, _Const(), forward[1])
                return self._member(owner, name, None)
            case _Name(parts=parts):
                return _Name((*parts, name))
            case dict() if name in owner:
                return owner[name]
            case Node() if name in _FACTS:
                return _Const()
            case Node() if name in ("T", "mT", "H", "values", "data"):
                return _operator(name.lower(), [owner])
        return _Method(owner, name)

    def _member(self, kind: ast.ClassDef, name: str, owner: _Instance | None) -> Any:
        if (found := self._method(kind, name)) is not None:
            function, home = found
            decorators = {d.id for d in function.decorator_list if isinstance(d, ast.Name)}
            method = _Function(function, self._globals, None if "staticmethod" in decorators else owner, home)
            return self._call(method, [], {}) if "property" in decorators else method
        for one in self._lineage(kind):
            for statement in one.body:
                match statement:
                    case ast.Assign(targets=[ast.Name(id=target)], value=value) if target == name:
                        return self._value(value, self._globals)
        return _Method(owner, name)

    def _method(
        self, kind: ast.ClassDef, name: str, *, above: bool = False
    ) -> tuple[ast.FunctionDef, ast.ClassDef] | None:
        """A method of a class or of its bases in this source, with the class that defines it."""
        for one in islice(self._lineage(kind), int(above), None):
            for statement in reversed(one.body):
                if isinstance(statement, ast.FunctionDef) and statement.name == name:
                    return statement, one
        return None

    def _lineage(self, kind: ast.ClassDef, depth: int = 0) -> Iterator[ast.ClassDef]:
        """A class and its bases in this source."""
        yield kind
        for base in kind.bases:
            parent = self._globals.get(base.id) if isinstance(base, ast.Name) else None
            if isinstance(parent, ast.ClassDef) and parent is not kind and depth < _MAX_CALLS:
                yield from self._lineage(parent, depth + 1)

    # Calls

    def _call_expression(self, node: ast.Call, scope: Mapping[str, Any]) -> Any:
        named: dict[str, Any] = {}
        for keyword in node.keywords:
            value = self._value(keyword.value, scope)
            if keyword.arg is not None:
                named[keyword.arg] = value
            elif isinstance(value, dict):
                named.update({str(key): item for key, item in value.items()})
        arguments = self._items(node.args, scope)
        match node.func:
            case ast.Attribute(value=ast.Call(func=ast.Name(id="super")), attr=name):
                home, owner = scope.get("__class__"), scope.get("__self__")
                found = self._method(home, name, above=True) if isinstance(home, ast.ClassDef) else None
                if found is not None:
                    return self._call(_Function(found[0], self._globals, owner, found[1]), arguments, named)
                return _Const() if name.startswith("__") else _operator(name, list(_operands(arguments)))
            case ast.Attribute(value=owner, attr=name):
                return self._call(self._attribute(self._value(owner, scope), name), arguments, named)
        return self._call(self._value(node.func, scope), arguments, named)

    def _call(self, function: Any, arguments: list[Any], named: dict[str, Any]) -> Any:
        self._count()
        match function:
            case _Function():
                return self._run(function, arguments, named)
            case ast.ClassDef():
                return self._instance(function, arguments, named)
            case _Instance():
                forward = self._attribute(function, "forward")
                if isinstance(forward, _Function):
                    return self._run(forward, arguments, named)
                return _operator(function.kind.name, list(_operands([*function.attributes.values(), *arguments])))
            case _Layer():
                return self._layer(function, arguments, named)
            case _Name(parts=parts):
                return self._library(parts, arguments, named)
            case _Method(owner=owner, name=name):
                return self._method_call(owner, name, arguments, named)
            case Node():
                return _operator("call", [function, *_operands([*arguments, *named.values()])])
            case list() if len(function) > 0:
                return self._call(_Layer("sequential", tuple(function)), arguments, named)
        return _Const()

    def _run(self, function: _Function, arguments: list[Any], named: Mapping[str, Any]) -> Any:
        if self._calls >= _MAX_CALLS:
            raise _TooComplex
        self._calls += 1
        try:
            node = function.node
            scope = dict(function.scope) if function.scope is not self._globals else {}
            if function.owner is not None:
                arguments = [function.owner, *arguments]
                scope["__self__"], scope["__class__"] = function.owner, function.home
            self._bind(node.args, arguments, named, scope)
            if isinstance(node, ast.Lambda):
                return self._value(node.body, scope)
            returned = self._block(node.body, scope)
            return returned if returned is not None else _Const(None)
        finally:
            self._calls -= 1

    def _bind(
        self, parameters: ast.arguments, arguments: list[Any], named: Mapping[str, Any], scope: dict[str, Any]
    ) -> None:
        names = [parameter.arg for parameter in (*parameters.posonlyargs, *parameters.args)]
        defaults = dict(zip(names[len(names) - len(parameters.defaults) :], parameters.defaults, strict=True))
        for parameter, default in zip(parameters.kwonlyargs, parameters.kw_defaults, strict=True):
            names.append(parameter.arg)
            if default is not None:
                defaults[parameter.arg] = default
        n_positional = len(names) - len(parameters.kwonlyargs)
        for position, name in enumerate(names):
            if position < min(n_positional, len(arguments)):
                scope[name] = arguments[position]
            elif name in named:
                scope[name] = named[name]
            else:
                scope[name] = self._value(defaults[name], self._globals) if name in defaults else _Const()
        if parameters.vararg is not None:
            scope[parameters.vararg.arg] = arguments[n_positional:]
        if parameters.kwarg is not None:
            scope[parameters.kwarg.arg] = {key: value for key, value in named.items() if key not in names}

    def _instance(self, kind: ast.ClassDef, arguments: list[Any], named: dict[str, Any]) -> Any:
        instance = _Instance(kind)
        if (found := self._method(kind, "__init__")) is not None:
            self._run(_Function(found[0], self._globals, instance, found[1]), arguments, named)
        return instance

    def _layer(self, layer: _Layer, arguments: list[Any], named: dict[str, Any]) -> Any:
        if layer.label in ("sequential", "loop"):
            for child in layer.children:
                arguments, named = [self._call(child, arguments, named)], {}
            value = arguments[0] if arguments else _Const()
            return Node("loop", [value]) if layer.label == "loop" and isinstance(value, Node) else value
        if layer.label == "identity":
            return arguments[0] if arguments else _Const()
        if layer.label == "if":
            first, *others = [self._call(child, arguments, named) for child in layer.children]
            for other in others:
                first = _choice(first, other)
            return first
        operands = list(_operands([*arguments, *(named[key] for key in sorted(named)), *layer.children]))
        operands = [operand for operand in operands if operand.label != _NUMBER]
        return _operator(layer.label, [*operands, *([_CONSTANT] if layer.numbers else [])])

    def _library(self, parts: tuple[str, ...], arguments: list[Any], named: dict[str, Any]) -> Any:
        name = parts[-1]
        if len(parts) == 1:
            match name, arguments:
                case "range", _:
                    return _Repeated([_Const()])
                case (("list" | "tuple" | "reversed" | "sorted"), [list() as items]):
                    return items[::-1] if name == "reversed" and not isinstance(items, _Repeated) else items
                case (("list" | "tuple" | "dict" | "OrderedDict"), []):
                    return dict(named) if "d" in name.lower() else []
                case "OrderedDict", [list() as pairs]:
                    return [_item(pair, 1) for pair in pairs]
                case "enumerate", [list() as items, *_]:
                    return type(items)([_Const(), item] for item in items)
                case "zip", [list() as first, *others]:
                    rows = [[item, *(_item(other, i) for other in others)] for i, item in enumerate(first)]
                    return type(first)(rows)
                case (("len" | "isinstance" | "hasattr" | "print" | "type"), _):
                    return _Const()
                case "getattr", [owner, _Const(value=str() as attribute), *_]:
                    return self._attribute(owner, attribute)
                case "setattr", [_Instance() as owner, _Const(value=str() as attribute), value]:
                    owner.attributes[attribute] = value
                    return _Const(None)
        if parts[0] in _PLAIN and not any(isinstance(value, Node) for value in (*arguments, *named.values())):
            return _Const()
        label = _canonical(name)
        if label in ("parameter", "buffer"):
            return Node("parameter")
        if label == "sequential":
            return _Layer(label, tuple(_flat(arguments)))
        if label in ("modulelist", "parameterlist"):
            return arguments[0] if arguments and isinstance(arguments[0], list) else []
        if label in ("moduledict", "parameterdict"):
            return arguments[0] if arguments and isinstance(arguments[0], dict) else {}
        if label == "checkpoint" and arguments:
            return self._call(arguments[0], arguments[1:], {})
        if len(parts) > 1 and parts[-2][:1].isupper() and name[:1].islower():
            return _Layer(f"{_canonical(parts[-2])}.{label}{_flags(arguments, named)}")  # a constructor of a class
        if name[:1].isupper():
            children = [v for v in _flat([*arguments, *named.values()]) if isinstance(v, _Layer | _Instance | _Name)]
            return _Layer(label + _flags(arguments, named), tuple(children), _has_number(arguments, named))
        return _operator(label + _flags(arguments, named), _arguments(arguments, named))

    def _method_call(self, owner: Any, name: str, arguments: list[Any], named: dict[str, Any]) -> Any:
        match owner, name, arguments:
            case list(), ("append" | "add_module"), [*_, item]:
                owner.append(item)
                return _Const(None)
            case list(), "extend", [list() as items]:
                owner += items
                return _Const(None)
            case list(), "insert", [_, item]:
                owner.insert(0, item)
                return _Const(None)
            case dict(), ("values" | "items" | "keys"), _:
                rows = {"values": list(owner.values()), "keys": [_Const(key) for key in owner]}
                return rows.get(name, [[_Const(key), value] for key, value in owner.items()])
            case _Instance(), ("register_buffer" | "register_parameter" | "add_module"), _:
                given = [*arguments, *named.values()]
                if len(given) > 1 and isinstance(given[0], _Const) and isinstance(given[0].value, str):
                    owner.attributes[given[0].value] = given[1]
                return _Const(None)
            case _Layer(label="sequential"), ("append" | "add_module"), _:
                return _Const(None)
            case _Layer() | _Instance(), "forward", _:
                return self._call(owner, arguments, named)
            case Node(), _, _:
                if name in _FACTS:
                    return _Const()
                return _operator(_canonical(name) + _flags(arguments, named), [owner, *_arguments(arguments, named)])
            case _Instance() | _Layer(), _, _:
                return _operator(_canonical(name), [Node(_label(owner)), *_arguments(arguments, named)])
        return _Const()

    def _binary(self, op: ast.operator, left: Any, right: Any) -> Any:
        if isinstance(left, list) and isinstance(right, list) and isinstance(op, ast.Add):
            return [*left, *right]
        if isinstance(left, list) and isinstance(right, _Const) and isinstance(op, ast.Mult):
            return _Repeated(left)
        if isinstance(left, _Const) and isinstance(right, _Const):
            return _Const()
        return _operator(_OPERATORS.get(type(op), "operator"), list(_operands([left, right])))

    def _count(self) -> None:
        self._steps += 1
        if self._steps > _MAX_STEPS:
            raise _TooComplex


def _canonical(name: str) -> str:
    """Name of an operator: equal for `torch.nn.LayerNorm`, `F.layer_norm` and for in-place variants."""
    label = name.replace("_", "").lower()
    return _SAME_OPERATOR.get(label, label)


def _operator(label: str, operands: list[Node]) -> Any:
    label = _SAME_OPERATOR.get(label, label)
    if label in _INERT and operands:
        return operands[0]
    if label in _MIRRORED:
        label, operands = _MIRRORED[label], operands[::-1]
    if all(operand.label == _NUMBER for operand in operands) and label in _OPERATORS.values():
        return _Const()
    return Node(label, operands)


def _arguments(arguments: list[Any], named: Mapping[str, Any]) -> list[Node]:
    """Operands of a call: tensors in order, then one `#` if there are numbers."""
    tensors = [*arguments, *(named[key] for key in sorted(named) if key not in _INERT_KEYWORDS)]
    found = [node for node in _operands(tensors) if node.label != _NUMBER]
    return [*found, *([_CONSTANT] if _has_number(arguments, named) else [])]


def _has_number(arguments: Sequence[Any], named: Mapping[str, Any]) -> bool:
    values = _flat([*arguments, *(value for key, value in named.items() if key not in _INERT_KEYWORDS)])
    return any(isinstance(v, _Const) and not isinstance(v.value, bool | str | None.__class__) for v in values)


def _flags(arguments: Sequence[Any], named: Mapping[str, Any]) -> str:
    """The strings and booleans of a call that select a variant of its operator."""
    found = [v.value for v in arguments if isinstance(v, _Const) and (isinstance(v.value, str) or v.value is True)]
    texts = [_variant(value) for value in found]
    for key, value in named.items():
        if not isinstance(value, _Const) or key in _INERT_KEYWORDS:
            continue
        if isinstance(value.value, str):
            texts.append(_variant(value.value))
        elif isinstance(value.value, bool) and value.value is not (key in _TRUE_BY_DEFAULT):
            texts.append(f"{key}={value.value}")
    return f"[{','.join(sorted(texts))}]" if texts else ""


def _variant(value: Any) -> str:
    """A flag as text; an einsum equation with its letters renamed in order."""
    text = str(value)
    if "->" not in text:
        return text
    letters: dict[str, str] = {}
    return "".join(letters.setdefault(c, chr(97 + len(letters))) if c.isalpha() else c for c in text if c != " ")


def _operands(values: Iterable[Any]) -> Iterator[Node]:
    """Values as nodes; lists are flattened, and lists of numbers are one number."""
    for value in values:
        match value:
            case Node():
                yield value
            case list() | dict():
                items = list(_operands(value.values() if isinstance(value, dict) else value))
                tensors = [node for node in items if node.label != _NUMBER]
                yield from tensors or items[:1]
            case _Const(value=bool() | str() | None):
                pass
            case _Const():
                yield _CONSTANT
            case _Layer() | _Instance() | _Name() | _Function() | ast.ClassDef():
                yield Node(_label(value))


def _flat(values: Iterable[Any]) -> Iterator[Any]:
    for value in values:
        if isinstance(value, list):
            yield from _flat(value)
        elif isinstance(value, dict):
            yield from _flat(value.values())
        else:
            yield value


def _label(value: Any) -> str:
    match value:
        case _Layer():
            return value.label
        case _Name(parts=parts):
            return _canonical(parts[-1])
    return "module"


def _item(value: Any, position: int) -> Any:
    match value:
        case list():
            if isinstance(value, _Repeated):
                return value[0] if value else _Const()
            return value[position] if position < len(value) else _Const()
        case Node():
            return Node(f"item{position}", [value])
    return _Const()


def _subscript(owner: Any, index: Any) -> Any:
    match owner, index:
        case list(), _Const(value=int() as position) if -len(owner) <= position < len(owner):
            return owner[position]
        case _Layer(label="sequential", children=children), _Const(value=int() as position) if (
            -len(children) <= position < len(children)
        ):
            return children[position]
        case dict(), _Const(value=key) if key in owner:
            return owner[key]
        case ((list() | dict()), _) if owner:
            first, *others = list(owner.values()) if isinstance(owner, dict) else owner
            for other in others:
                first = _choice(first, other)
            return first
        case Node(), _:
            tensors = [node for node in _operands([index]) if node.label != _NUMBER]
            return Node("getitem", [owner, *(tensors or [_CONSTANT])])
    return _Const()


def _choice(first: Any, second: Any) -> Any:
    """A value that is one of two."""
    if first is second or (isinstance(first, Node) and isinstance(second, Node) and first.digest == second.digest):
        return first
    if isinstance(first, list) and isinstance(second, list) and len(first) == len(second):
        return type(first)(_choice(one, two) for one, two in zip(first, second, strict=True))
    if isinstance(first, Node | list) or isinstance(second, Node | list):
        return Node("if", list(_operands([first, second])))
    if isinstance(first, _Const) and isinstance(second, _Const):
        return _Const()
    if isinstance(first, _Layer | _Instance | _Function) or isinstance(second, _Layer | _Instance | _Function):
        callables = [value for value in (first, second) if not isinstance(value, _Const)]
        return callables[0] if len(callables) == 1 else _Layer("if", tuple(callables))
    return first


def _joined(first: Mapping[str, Any], second: Mapping[str, Any]) -> dict[str, Any]:
    both = {name: _choice(value, second[name]) for name, value in first.items() if name in second}
    return {**second, **first, **both}


def _unary(op: ast.unaryop, operand: Any) -> Any:
    if isinstance(op, ast.Not):
        known = _truth(operand)
        return _Const(not known) if known is not None else _Const()
    if isinstance(operand, _Const):
        value = operand.value
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        return _Const(-value) if isinstance(op, ast.USub) and is_number else operand
    if isinstance(op, ast.UAdd):
        return operand
    return _operator(_OPERATORS[type(op)], list(_operands([operand])))


def _boolean(op: ast.boolop, values: list[Any]) -> Any:
    known = [_truth(value) for value in values]
    ending = isinstance(op, ast.Or)
    if ending in known:
        return values[known.index(ending)]
    if None not in known:
        return values[-1]
    return _Const()


def _compared(left: Any, ops: list[ast.cmpop], others: list[Any]) -> Any:
    match ops, others:
        case [ast.Is() | ast.IsNot() as op], [_Const(value=None)]:
            if (isinstance(left, _Const) and left.value is _UNKNOWN) or (isinstance(left, Node) and left.label == "if"):
                return _Const()
            return _Const((isinstance(left, _Const) and left.value is None) is isinstance(op, ast.Is))
        case [ast.Eq() | ast.NotEq() as op], [_Const(value=str() as text)] if isinstance(left, _Const):
            if isinstance(left.value, str):
                return _Const((left.value == text) is isinstance(op, ast.Eq))
    if len(ops) == 1 and (isinstance(left, Node) or isinstance(others[0], Node)) and type(ops[0]) in _OPERATORS:
        return _operator(_OPERATORS[type(ops[0])], list(_operands([left, *others])))
    return _Const()


def _truth(value: Any) -> bool | None:
    """Truth value, if it does not depend on numbers."""
    match value:
        case _Const(value=bool() | str() | None):
            return bool(value.value)
        case list() | dict() if not isinstance(value, _Repeated):
            return bool(value)
        case _Instance() | _Layer() | _Function():
            return True
    return None


def _is_main(test: ast.expr) -> bool:
    return isinstance(test, ast.Compare) and isinstance(test.left, ast.Name) and test.left.id == "__name__"
