"""Symbolic evaluation of a source, from its classes to the node that `forward` returns."""

from __future__ import annotations

import ast
import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

from kernelrl_sources.dataflow.canonical import PAIRS
from kernelrl_sources.dataflow.graph import CONSTANT, NUMBER, Node, canonical_name
from kernelrl_sources.dataflow.operators import (
    OPERATORS,
    argument_nodes,
    boolean_value,
    compared_value,
    has_number,
    operator_node,
    subscript_value,
    unary_node,
    variant_flags,
    weights_of,
)
from kernelrl_sources.dataflow.signatures import bound_arguments
from kernelrl_sources.dataflow.values import (
    Const,
    Function,
    Instance,
    Layer,
    Method,
    Name,
    Repeated,
    flattened,
    item_at,
    joined_scopes,
    label_of,
    one_of,
    operands_of,
    truth_value,
)
from kernelrl_sources.syntax import MAX_SOURCE_CHARACTERS, parse

__all__ = ["result_of"]

_MAX_STEPS = 40_000
_MAX_CALLS = 40
_FACTS = frozenset({"shape", "size", "dim", "ndim", "numel", "device", "dtype", "is_cuda", "stride", "element_size"})
_CONSTANTS = {"pi": math.pi, "e": math.e, "inf": math.inf}
_PLAIN = frozenset({"math", "np", "numpy", "int", "float", "bool", "str", "max", "min", "sum", "abs", "round", "pow"})


def result_of(source: str) -> Node | None:
    """The node that `forward` returns; None if the source does not parse or has no module with operators."""
    if len(source) > MAX_SOURCE_CHARACTERS:
        return None
    try:
        result = _Evaluation(parse(source)).result()
    except (SyntaxError, ValueError, RecursionError, MemoryError, _TooComplex):
        return None
    return result if result is not None and result.operands else None


class _TooComplex(Exception):
    pass


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
        if not isinstance(forward, Function):
            return None
        given = self._from_function("get_inputs")
        arguments = forward.node.args
        expected = len(arguments.posonlyargs) + len(arguments.args) - 1 - len(arguments.defaults)
        count = max(len(given) if isinstance(given, list) else 1, expected)
        inputs = [Node("input", key=f"input {position}") for position in range(count)]
        value = self._call(forward, inputs, {})
        found = list(operands_of([value]))
        if not any(node.operands or node.label not in (NUMBER, "input", "parameter") for node in found):
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
        return self._call(function, [], {}) if isinstance(function, Function) else None

    # Statements

    def _block(self, statements: Sequence[ast.stmt], scope: dict[str, Any]) -> Any:
        """Evaluate statements. Returns the returned value, None if they do not return."""
        for position, statement in enumerate(statements):
            self._count()
            match statement:
                case ast.Return(value=value):
                    return self._value(value, scope) if value is not None else Const(None)
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
                    scope[name] = Function(statement, scope)
                case ast.ClassDef(name=name):
                    scope[name] = statement
                case ast.Import(names=names) | ast.ImportFrom(names=names):
                    for alias in names:
                        scope[alias.asname or alias.name.partition(".")[0]] = Name((alias.name.rpartition(".")[2],))
                case ast.If(test=test, body=body, orelse=orelse):
                    if scope is self._globals and _is_main(test):
                        continue
                    known = truth_value(self._value(test, scope))
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
                    returned = self._loop(None, Repeated([Const()]), body, scope)
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
        instances = list({id(value): value for value in scope.values() if isinstance(value, Instance)}.values())
        before = [dict(instance.attributes) for instance in instances]
        first, second = dict(scope), dict(scope)
        one = self._block(body, first)
        attributes = [dict(instance.attributes) for instance in instances]
        for instance, old in zip(instances, before, strict=True):
            instance.attributes = old
        two = self._block(orelse, second)
        for instance, changed in zip(instances, attributes, strict=True):
            instance.attributes = joined_scopes(changed, instance.attributes)
        if one is not None and two is not None:
            return one_of(one, two), True
        if one is None and two is None:
            scope.update(joined_scopes(first, second))
            return None, False
        scope.update(first if one is None else second)
        after = self._block(rest, scope)
        if one is None:
            return (one_of(after, two) if after is not None else two), True
        return (one_of(one, after) if after is not None else one), True

    def _loop(self, target: ast.expr | None, over: Any, body: list[ast.stmt], scope: dict[str, Any]) -> Any:
        if not isinstance(over, list):
            over = Repeated([item_at(over, 0)])
        before = dict(scope)
        for item in list(over):
            if target is not None:
                self._assign(target, item, scope)
            returned = self._block(body, scope)
            if returned is not None:
                return returned
        if isinstance(over, Repeated):
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
                if isinstance(instance, Instance):
                    instance.attributes[name] = value
            case ast.Tuple(elts=targets) | ast.List(elts=targets):
                for position, part in enumerate(targets):
                    if isinstance(part, ast.Starred):
                        self._assign(part.value, value, scope)
                    else:
                        self._assign(part, item_at(value, position), scope)
            case ast.Subscript(value=owner, slice=index):
                old, key = self._value(owner, scope), self._value(index, scope)
                match old, key:
                    case dict(), Const(value=str() as name):
                        old[name] = value
                    case list(), Const(value=int() as position) if -len(old) <= position < len(old):
                        old[position] = value
                    case Node(), _:
                        self._assign(owner, Node("setitem", list(operands_of([old, key, value]))), scope)

    # Expressions

    def _value(self, node: ast.expr, scope: Mapping[str, Any]) -> Any:
        self._count()
        match node:
            case ast.Constant(value=value):
                return Const(value)
            case ast.Name(id=name):
                if name in scope:
                    return scope[name]
                return self._globals.get(name, Name((name,)))
            case ast.Attribute(value=owner, attr=name):
                found = self._attribute(self._value(owner, scope), name)
                called = isinstance(found, Method) and isinstance(found.owner, Node)
                return Node(f".{name}", [found.owner]) if called else found
            case ast.Call():
                return self._call_expression(node, scope)
            case ast.BinOp(left=left, op=op, right=right):
                return self._binary(op, self._value(left, scope), self._value(right, scope))
            case ast.UnaryOp(op=op, operand=operand):
                return unary_node(op, self._value(operand, scope))
            case ast.BoolOp(op=op, values=values):
                return boolean_value(op, [self._value(value, scope) for value in values])
            case ast.Compare(left=left, ops=ops, comparators=others):
                return compared_value(self._value(left, scope), ops, [self._value(other, scope) for other in others])
            case ast.IfExp(test=test, body=body, orelse=orelse):
                known = truth_value(self._value(test, scope))
                if known is not None:
                    return self._value(body if known else orelse, scope)
                return one_of(self._value(body, scope), self._value(orelse, scope))
            case ast.Tuple(elts=items) | ast.List(elts=items) | ast.Set(elts=items):
                return self._items(items, scope)
            case ast.Dict(keys=keys, values=values):
                names = [self._value(key, scope) if key is not None else None for key in keys]
                return {getattr(name, "value", i): self._value(values[i], scope) for i, name in enumerate(names)}
            case ast.Subscript(value=owner, slice=index):
                return subscript_value(self._value(owner, scope), self._value(index, scope))
            case (
                ast.ListComp(elt=element, generators=[first, *_])
                | ast.GeneratorExp(elt=element, generators=[first, *_])
            ):
                over = self._value(first.iter, scope)
                inner = dict(scope)
                elements: list[Any] = []
                for item in over if isinstance(over, list) else [item_at(over, 0)]:
                    self._assign(first.target, item, inner)
                    elements.append(self._value(element, inner))
                return elements if isinstance(over, list) and not isinstance(over, Repeated) else Repeated(elements)
            case ast.Lambda():
                return Function(node, dict(scope))
            case ast.NamedExpr(target=target, value=value):
                result = self._value(value, scope)
                if isinstance(scope, dict):
                    scope[target.id] = result
                return result
            case ast.Slice(lower=lower, upper=upper, step=step):
                parts = [self._value(part, scope) for part in (lower, upper, step) if part is not None]
                return [part for part in parts if isinstance(part, Node)] or Const()
            case ast.Starred(value=value):
                return self._value(value, scope)
        return Const()

    def _items(self, items: Sequence[ast.expr], scope: Mapping[str, Any]) -> list[Any]:
        found: list[Any] = []
        for item in items:
            value = self._value(item, scope)
            if isinstance(item, ast.Starred) and isinstance(value, Repeated):
                found.append(Layer("loop", tuple(value)))
            elif isinstance(item, ast.Starred) and isinstance(value, list | dict):
                found += value
            else:
                found.append(value)
        return found

    def _attribute(self, owner: Any, name: str) -> Any:
        match owner:
            case Instance():
                if name in owner.attributes:
                    return owner.attributes[name]
                return self._member(owner.kind, name, owner)
            case ast.ClassDef():
                if name == "apply" and (forward := self._method(owner, "forward")) is not None:
                    return Function(forward[0], self._globals, Const(), forward[1])
                return self._member(owner, name, None)
            case Name(parts=("math" | "np" | "numpy" | "torch",)) if name in _CONSTANTS:
                return Const(_CONSTANTS[name])
            case Name(parts=parts):
                return Name((*parts, name))
            case dict() if name in owner:
                return owner[name]
            case Node() if name in _FACTS:
                return Const()
            case Node() if name in ("values", "indices") and owner.name in PAIRS:
                return item_at(owner, int(name == "indices"))
            case Node() if name in ("T", "mT", "H", "values", "data"):
                return operator_node(name.lower(), [owner])
        return Method(owner, name)

    def _member(self, kind: ast.ClassDef, name: str, owner: Instance | None) -> Any:
        if (found := self._method(kind, name)) is not None:
            function, home = found
            decorators = {d.id for d in function.decorator_list if isinstance(d, ast.Name)}
            method = Function(function, self._globals, None if "staticmethod" in decorators else owner, home)
            return self._call(method, [], {}) if "property" in decorators else method
        for one in self._lineage(kind):
            for statement in one.body:
                match statement:
                    case ast.Assign(targets=[ast.Name(id=target)], value=value) if target == name:
                        return self._value(value, self._globals)
        return Method(owner, name)

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
                    return self._call(Function(found[0], self._globals, owner, found[1]), arguments, named)
                return Const() if name.startswith("__") else operator_node(name, list(operands_of(arguments)))
            case ast.Attribute(value=owner, attr=name):
                return self._call(self._attribute(self._value(owner, scope), name), arguments, named)
        return self._call(self._value(node.func, scope), arguments, named)

    def _call(self, function: Any, arguments: list[Any], named: dict[str, Any]) -> Any:
        self._count()
        match function:
            case Function():
                return self._run(function, arguments, named)
            case ast.ClassDef():
                return self._instance(function, arguments, named)
            case Instance():
                forward = self._attribute(function, "forward")
                if isinstance(forward, Function):
                    return self._run(forward, arguments, named)
                return operator_node(function.kind.name, list(operands_of([*function.attributes.values(), *arguments])))
            case Layer():
                return self._layer(function, arguments, named)
            case Name(parts=parts):
                return self._library(parts, arguments, named)
            case Method(owner=owner, name=name):
                return self._method_call(owner, name, arguments, named)
            case Node():
                return operator_node("call", [function, *operands_of([*arguments, *named.values()])])
            case list() if len(function) > 0:
                return self._call(Layer("sequential", tuple(function)), arguments, named)
        return Const()

    def _run(self, function: Function, arguments: list[Any], named: Mapping[str, Any]) -> Any:
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
            return returned if returned is not None else Const(None)
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
                scope[name] = self._value(defaults[name], self._globals) if name in defaults else Const()
        if parameters.vararg is not None:
            scope[parameters.vararg.arg] = arguments[n_positional:]
        if parameters.kwarg is not None:
            scope[parameters.kwarg.arg] = {key: value for key, value in named.items() if key not in names}

    def _instance(self, kind: ast.ClassDef, arguments: list[Any], named: dict[str, Any]) -> Any:
        instance = Instance(kind)
        if (found := self._method(kind, "__init__")) is not None:
            self._run(Function(found[0], self._globals, instance, found[1]), arguments, named)
        return instance

    def _layer(self, layer: Layer, arguments: list[Any], named: dict[str, Any]) -> Any:
        if layer.label in ("sequential", "loop"):
            for child in layer.children:
                arguments, named = [self._call(child, arguments, named)], {}
            value = arguments[0] if arguments else Const()
            return Node("loop", [value]) if layer.label == "loop" and isinstance(value, Node) else value
        if layer.label == "identity":
            return arguments[0] if arguments else Const()
        if layer.label == "if":
            first, *others = [self._call(child, arguments, named) for child in layer.children]
            for other in others:
                first = one_of(first, other)
            return first
        operands = list(operands_of([*arguments, *(named[key] for key in sorted(named)), *layer.children]))
        operands = [operand for operand in operands if operand.label != NUMBER]
        weights = [Node("parameter")] * layer.weights
        return operator_node(layer.label, [*operands, *weights, *([CONSTANT] if layer.numbers else [])])

    def _library(self, parts: tuple[str, ...], arguments: list[Any], named: dict[str, Any]) -> Any:
        name = parts[-1]
        if len(parts) == 1:
            match name, arguments:
                case "range", _:
                    return Repeated([Const()])
                case (("list" | "tuple" | "reversed" | "sorted"), [list() as items]):
                    return items[::-1] if name == "reversed" and not isinstance(items, Repeated) else items
                case (("list" | "tuple" | "dict" | "OrderedDict"), []):
                    return dict(named) if "d" in name.lower() else []
                case "OrderedDict", [list() as pairs]:
                    return [item_at(pair, 1) for pair in pairs]
                case "enumerate", [list() as items, *_]:
                    return type(items)([Const(), item] for item in items)
                case "zip", [list() as first, *others]:
                    rows = [[item, *(item_at(other, i) for other in others)] for i, item in enumerate(first)]
                    return type(first)(rows)
                case (("len" | "isinstance" | "hasattr" | "print" | "type"), _):
                    return Const()
                case "getattr", [owner, Const(value=str() as attribute), *_]:
                    return self._attribute(owner, attribute)
                case "setattr", [Instance() as owner, Const(value=str() as attribute), value]:
                    owner.attributes[attribute] = value
                    return Const(None)
        if parts[0] in _PLAIN and not any(isinstance(value, Node) for value in (*arguments, *named.values())):
            return Const()
        label = canonical_name(name)
        if label in ("parameter", "buffer"):
            return Node("parameter")
        if label == "sequential":
            return Layer(label, tuple(flattened(arguments)))
        if label in ("modulelist", "parameterlist"):
            return arguments[0] if arguments and isinstance(arguments[0], list) else []
        if label in ("moduledict", "parameterdict"):
            return arguments[0] if arguments and isinstance(arguments[0], dict) else {}
        if label == "checkpoint" and arguments:
            return self._call(arguments[0], arguments[1:], {})
        if len(parts) > 1 and parts[-2][:1].isupper() and name[:1].islower():
            return Layer(
                f"{canonical_name(parts[-2])}.{label}{variant_flags(arguments, named)}"
            )  # a constructor of a class
        if name[:1].isupper():
            children = [v for v in flattened([*arguments, *named.values()]) if isinstance(v, Layer | Instance | Name)]
            label, arguments, named = bound_arguments(label, arguments, named, layer=True)
            flags = variant_flags(arguments, named)
            return Layer(label + flags, tuple(children), has_number(arguments, named), weights_of(label, named))
        label, arguments, named = bound_arguments(label, arguments, named, inputs=1)
        return operator_node(label + variant_flags(arguments, named), argument_nodes(arguments, named))

    def _method_call(self, owner: Any, name: str, arguments: list[Any], named: dict[str, Any]) -> Any:
        match owner, name, arguments:
            case list(), ("append" | "add_module"), [*_, item]:
                owner.append(item)
                return Const(None)
            case list(), "extend", [list() as items]:
                owner += items
                return Const(None)
            case list(), "insert", [_, item]:
                owner.insert(0, item)
                return Const(None)
            case dict(), ("values" | "items" | "keys"), _:
                rows = {"values": list(owner.values()), "keys": [Const(key) for key in owner]}
                return rows.get(name, [[Const(key), value] for key, value in owner.items()])
            case Instance(), ("register_buffer" | "register_parameter" | "add_module"), _:
                given = [*arguments, *named.values()]
                if len(given) > 1 and isinstance(given[0], Const) and isinstance(given[0].value, str):
                    owner.attributes[given[0].value] = given[1]
                return Const(None)
            case Layer(label="sequential"), ("append" | "add_module"), _:
                return Const(None)
            case Layer() | Instance(), "forward", _:
                return self._call(owner, arguments, named)
            case Node(), _, _:
                if name in _FACTS:
                    return Const()
                label, arguments, named = bound_arguments(canonical_name(name), arguments, named)
                return operator_node(
                    label + variant_flags(arguments, named), [owner, *argument_nodes(arguments, named)]
                )
            case Instance() | Layer(), _, _:
                return operator_node(canonical_name(name), [Node(label_of(owner)), *argument_nodes(arguments, named)])
        return Const()

    def _binary(self, op: ast.operator, left: Any, right: Any) -> Any:
        if isinstance(left, list) and isinstance(right, list) and isinstance(op, ast.Add):
            return [*left, *right]
        if isinstance(left, list) and isinstance(right, Const) and isinstance(op, ast.Mult):
            return Repeated(left)
        if isinstance(left, Const) and isinstance(right, Const):
            return Const()
        return operator_node(OPERATORS.get(type(op), "operator"), list(operands_of([left, right])))

    def _count(self) -> None:
        self._steps += 1
        if self._steps > _MAX_STEPS:
            raise _TooComplex


def _is_main(test: ast.expr) -> bool:
    return isinstance(test, ast.Compare) and isinstance(test.left, ast.Name) and test.left.id == "__name__"
