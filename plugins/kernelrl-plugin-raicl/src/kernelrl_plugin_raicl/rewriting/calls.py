"""Inlining of Inductor's `call(args)` into the `forward` that calls it."""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import attrs

from kernelrl_plugin_raicl.rewriting.inductor_kernels import Kernel, without_dead_stores
from kernelrl_plugin_raicl.rewriting.modules import used_names
from kernelrl_plugin_raicl.rewriting.pair import Unrewritable

__all__ = ["Body", "Layout", "Step", "expression", "inline_call"]

_MAX_GRID_Y = 65_535
_BLOCKS = ("XBLOCK", "YBLOCK", "ZBLOCK", "RBLOCK", "R0_BLOCK")


@attrs.frozen
class Layout:
    """Sizes and strides of a tensor, in elements."""

    size: tuple[int, ...]
    stride: tuple[int, ...]

    @property
    def numel(self) -> int:
        return math.prod(self.size)

    @property
    def is_contiguous(self) -> bool:
        step = 1
        for size, stride in reversed(list(zip(self.size, self.stride, strict=True))):
            if size != 1:
                if stride != step:
                    return False
                step *= size
        return True


@attrs.define
class Step:
    """A statement of the inlined body."""

    target: str = ""
    """Assigned name."""
    value: ast.expr | None = None
    """Assigned value, or a called operator of torch with `out`."""
    kernel: Kernel | None = None
    """Kernel of a launch."""
    arguments: list[ast.expr] = attrs.Factory(list)
    """Positional arguments of the launch."""
    keywords: list[ast.keyword] = attrs.Factory(list)
    """Keywords of the launch."""
    numels: list[ast.expr] = attrs.Factory(list)
    """Extents of the grid before division by block sizes, the slowest first."""

    def argument(self, parameter: str) -> ast.expr:
        """The argument of the launch for a parameter of its kernel."""
        assert self.kernel is not None
        return self.arguments[self.kernel.parameters.index(parameter)]

    def written(self) -> list[ast.expr]:
        """Arguments that the step writes to."""
        if self.kernel is not None:
            return [self.argument(name) for name in self.kernel.parameters if name in self.kernel.written]
        if isinstance(self.value, ast.Call) and not self.target:
            return [item.value for item in self.value.keywords if item.arg == "out"]
        return []

    def used(self) -> set[str]:
        """Names in the arguments or in the value."""
        nodes = [*self.arguments, *([self.value] if self.value is not None else [])]
        return {name for node in nodes for name in used_names(node)}

    def statement(self) -> ast.stmt:
        if self.kernel is not None:
            launch = ast.Call(
                ast.Subscript(ast.Name(self.kernel.function.name), self._grid(), ast.Load()),
                self.arguments,
                self.keywords,
            )
            return ast.Expr(launch)
        assert self.value is not None
        return ast.Assign([ast.Name(self.target)], self.value, lineno=0) if self.target else ast.Expr(self.value)

    def _grid(self) -> ast.expr:
        blocks = {item.arg: item.value for item in self.keywords}
        names = ("XBLOCK", "YBLOCK", "ZBLOCK")[: len(self.numels)]
        extents = []
        for name, numel in zip(names, reversed(self.numels), strict=True):
            block = blocks.get(name)
            is_single = block is None or ast.unparse(block) == "1"
            extents.append(numel if is_single else expression(f"triton.cdiv({ast.unparse(numel)}, {_text(block)})"))
        # ast.unparse writes no parentheses around a tuple in a subscript.
        return ast.Name(f"({', '.join(map(ast.unparse, extents))}{',' if len(extents) == 1 else ''})", ast.Load())


@attrs.define
class Body:
    """The body of the new `forward`."""

    parameters: list[str]
    """Parameters of `forward` without `self`."""
    layouts: dict[str, Layout]
    """Layout of parameters, attributes and buffers, by name, where Inductor asserts it."""
    steps: list[Step]
    result: ast.expr
    opening: list[ast.stmt] = attrs.Factory(list)
    """Statements before the steps."""

    @property
    def kernels(self) -> list[Kernel]:
        found: dict[str, Kernel] = {}
        for step in self.steps:
            if step.kernel is not None:
                found.setdefault(step.kernel.function.name, step.kernel)
        return list(found.values())

    def statements(self) -> list[ast.stmt]:
        return [*self.opening, *(step.statement() for step in self.steps), ast.Return(self.result)]


def inline_call(forward: ast.FunctionDef, call: ast.FunctionDef, kernels: Mapping[str, Kernel]) -> Body:
    """The body of `forward` with the statements of `call`.

    Raises:
        Unrewritable: one of them has another form than Inductor's.
    """
    return _Inliner(forward, call, kernels).body()


def expression(text: str) -> ast.expr:
    """The syntax tree of an expression."""
    return ast.parse(text, mode="eval").body


class _Inliner:
    def __init__(self, forward: ast.FunctionDef, call: ast.FunctionDef, kernels: Mapping[str, Kernel]) -> None:
        self._kernels = kernels
        self._names: dict[str, ast.expr] = {}
        """Name in `call` -> its expression in `forward`."""
        self._layouts: dict[str, Layout] = {}
        self._steps: list[Step] = []
        self._roots: dict[str, str] = {}
        """Name -> name of the tensor whose memory it shares."""
        if forward.args.vararg or forward.args.kwarg:
            raise Unrewritable("forward has variable parameters")
        self._parameters = [item.arg for item in (*forward.args.posonlyargs, *forward.args.args)][1:]
        passed, self._result_of, output = self._read_forward(forward)
        self._read_call(call, passed)
        self._output = output

    def body(self) -> Body:
        result = self._result(self._output, self._result_of)
        body = Body(self._parameters, self._layouts, self._steps, result)
        while self._remove_dead(body):
            pass
        _remove_constants(body)
        return body

    # --- forward ----------------------------------------------------------------------------------------------------

    def _read_forward(self, forward: ast.FunctionDef) -> tuple[list[ast.expr], ast.expr, str]:
        """Arguments of `call`, the returned expression, and the name of the result of `call`."""
        values: dict[str, ast.expr] = {}
        passed: list[ast.expr] | None = None
        output = ""
        for statement in forward.body:
            match statement:
                case ast.Expr(value=ast.Constant()):
                    pass
                case ast.Assign(
                    targets=[ast.Name(id=name)],
                    value=ast.Call(func=ast.Name(id="call"), args=[ast.List(elts=elements)]),
                ) if passed is None:
                    passed = [values.get(item.id, item) if isinstance(item, ast.Name) else item for item in elements]
                    output = name
                case ast.Assign(targets=[ast.Name(id=name)], value=value) if passed is None:
                    values[name] = value
                case ast.Return(value=value) if value is not None and passed is not None:
                    return passed, value, output
                case _:
                    break
        raise Unrewritable("forward does more than pass its tensors to call")

    def _result(self, output: str, returned: ast.expr) -> ast.expr:
        results = self._returned

        class Selector(ast.NodeTransformer):
            def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
                is_output = isinstance(node.value, ast.Name) and node.value.id == output
                if is_output and isinstance(node.slice, ast.Constant):
                    return results[node.slice.value]
                return self.generic_visit(node)

        found: ast.expr = Selector().visit(returned)
        if output in used_names(found):
            raise Unrewritable("forward returns all results of call")
        return found

    # --- call -------------------------------------------------------------------------------------------------------

    def _read_call(self, call: ast.FunctionDef, passed: Sequence[ast.expr]) -> None:
        statements = list(_flat(call.body))
        match statements[0] if statements else None:
            case ast.Assign(targets=[ast.Tuple(elts=elements)], value=ast.Name(id="args")):
                names = [item.id for item in elements if isinstance(item, ast.Name)]
            case ast.Assign(targets=[ast.List(elts=elements)], value=ast.Name(id="args")):
                names = [item.id for item in elements if isinstance(item, ast.Name)]
            case _:
                names = []
        if len(names) != len(passed):
            raise Unrewritable("call takes other arguments than forward passes")
        for name, value in zip(names, passed, strict=True):
            self._bind(name, value)
        for statement in statements[1:]:
            if isinstance(statement, ast.Return):
                value = statement.value
                items = [value] if value is not None else []
                if isinstance(value, ast.Tuple | ast.List):
                    items = value.elts
                self._returned = [self._expression(item) for item in items]
                return
            self._read_statement(statement)
        raise Unrewritable("call returns nothing")

    def _bind(self, name: str, value: ast.expr) -> None:
        if isinstance(value, ast.Name):
            if value.id not in self._parameters:
                raise Unrewritable("forward passes an unknown name", value.id)
            self._names[name] = value
            return
        text = ast.unparse(value)
        if not text.startswith("self.") and not isinstance(value, ast.Constant):
            raise Unrewritable("forward passes an expression", text[:80])
        local = re.sub(r"\W+", "_", text.removeprefix("self."))
        if not local.isidentifier() or local in self._parameters or local in self._layouts:
            local = name
        self._steps.append(Step(target=local, value=value))
        self._names[name] = ast.Name(local, ast.Load())

    def _read_statement(self, statement: ast.stmt) -> None:
        match statement:
            case ast.Delete() | ast.Pass():
                return
            case ast.Expr(value=ast.Call() as node):
                self._read_effect(node)
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                self._read_assignment(name, value)
            case _:
                raise Unrewritable("statement that Inductor does not write", ast.unparse(statement)[:80])

    def _read_effect(self, node: ast.Call) -> None:
        name = ast.unparse(node.func)
        last = name.rpartition(".")[2]
        if last in ("clear", "set_device", "get_raw_stream", "synchronize") or name.startswith("triton_helpers."):
            return
        if name == "assert_size_stride":
            layout = Layout(_integers(node.args[1]), _integers(node.args[2]))
            target = self._expression(node.args[0])
            if isinstance(target, ast.Name):
                self._layouts.setdefault(target.id, layout)
        elif isinstance(node.func, ast.Subscript):
            grid = node.func.slice
            self._launch(ast.unparse(node.func.value), node, grid)
        elif last == "run":
            grid = next((item.value for item in node.keywords if item.arg == "grid"), None)
            if grid is None:
                raise Unrewritable("launch without a grid")
            self._launch(name.removesuffix(".run"), node, grid)
        elif name.startswith("extern_kernels."):
            self._steps.append(Step(value=self._expression(node)))
        else:
            raise Unrewritable("call that Inductor does not write", name)

    def _launch(self, name: str, node: ast.Call, grid: ast.expr) -> None:
        if name not in self._kernels:
            raise Unrewritable("launch of an unknown kernel", name)
        kernel = self._kernels[name]
        if not isinstance(grid, ast.Call) or ast.unparse(grid.func) != "grid" or not 1 <= len(grid.args) <= 3:
            raise Unrewritable("launch with a grid of another form", ast.unparse(grid)[:80])
        arguments = [self._expression(item) for item in node.args]
        keywords = [item for item in node.keywords if item.arg not in ("grid", "stream")]
        given = {item.arg for item in keywords}
        keywords += [ast.keyword(key, ast.Constant(size)) for key, size in kernel.blocks.items() if key not in given]
        numels = list(grid.args)
        if len(numels) > 1 and not _fits(numels[-2], keywords):
            raise Unrewritable("launch with more than 65,535 blocks in the second dimension")
        missing = set(kernel.parameters[len(arguments) :]) - {item.arg for item in keywords}
        if missing or len(arguments) > len(kernel.parameters):
            raise Unrewritable("launch with other arguments than the kernel takes", name)
        self._steps.append(Step(kernel=kernel, arguments=arguments, keywords=keywords, numels=numels))

    def _read_assignment(self, name: str, value: ast.expr) -> None:
        if isinstance(value, ast.Call) and ast.unparse(value.func).rpartition(".")[2] == "get_raw_stream":
            return
        if isinstance(value, ast.Call) and ast.unparse(value.func) == "empty_strided_cuda":
            layout = Layout(_integers(value.args[0]), _integers(value.args[1]))
            size = ast.unparse(value.args[0])
            made = f"empty({size}" if layout.is_contiguous else f"empty_strided({size}, {ast.unparse(value.args[1])}"
            text = f"torch.{made}, dtype={ast.unparse(value.args[2])}, device={self._device()})"
            self._layouts[name] = layout
            self._steps.append(Step(target=name, value=expression(text)))
            self._names[name] = ast.Name(name, ast.Load())
            return
        found = self._expression(value)
        if isinstance(found, ast.Name):
            # Inductor reuses a buffer under another name.
            self._names[name] = found
            return
        if isinstance(value, ast.Call) and ast.unparse(value.func) == "reinterpret_tensor":
            self._layouts[name] = Layout(_integers(value.args[1]), _integers(value.args[2]))
        shared = used_names(found) - {"torch"}
        is_view = isinstance(found, ast.Subscript) or (
            isinstance(value, ast.Call) and "reinterpret" in ast.unparse(value)
        )
        if is_view and len(shared) == 1:
            (root,) = shared
            self._roots[name] = self._root(root)
        self._steps.append(Step(target=name, value=found))
        self._names[name] = ast.Name(name, ast.Load())

    def _device(self) -> str:
        names = [item.id for item in self._names.values() if isinstance(item, ast.Name)]
        if not names:
            raise Unrewritable("no tensor tells the device")
        inputs = [name for name in names if name in self._parameters and name in self._layouts]
        return f"{(inputs or [name for name in names if name in self._layouts] or names)[0]}.device"

    # --- expressions ------------------------------------------------------------------------------------------------

    def _expression(self, node: ast.expr) -> ast.expr:
        inliner = self

        class Resolver(ast.NodeTransformer):
            def visit_Name(self, node: ast.Name) -> ast.AST:
                return inliner._names.get(node.id, node)

            def visit_Call(self, node: ast.Call) -> ast.AST:
                self.generic_visit(node)
                name = ast.unparse(node.func)
                if name == "reinterpret_tensor":
                    return inliner._view(node)
                if name.startswith("extern_kernels."):
                    node.func = inliner._operator(name.removeprefix("extern_kernels."))
                elif name.startswith("aten."):
                    node.func = expression(f"torch.ops.{name}")
                elif not name.startswith("torch."):
                    raise Unrewritable("call that Inductor does not write", name)
                return node

        found: ast.expr = Resolver().visit(node)
        return found

    def _operator(self, name: str) -> ast.expr:
        known = {"bias_addmm": "addmm", "mm": "mm", "addmm": "addmm", "bmm": "bmm", "baddbmm": "baddbmm"}
        known["convolution"] = "convolution"
        if name not in known:
            raise Unrewritable("operator of Inductor without a counterpart", name)
        return expression(f"torch.{known[name]}")

    def _view(self, node: ast.Call) -> ast.expr:
        """`reinterpret_tensor(tensor, size, stride, offset)` with methods of tensors."""
        size, stride = _integers(node.args[1]), _integers(node.args[2])
        offset = ast.literal_eval(node.args[3]) if len(node.args) > 3 else 0
        wanted = Layout(size, stride)
        base = ast.unparse(node.args[0])
        layout = self._layouts.get(base)
        if layout is not None and not offset:
            if layout == wanted:
                return node.args[0]
            if layout.is_contiguous and wanted.is_contiguous and layout.numel == wanted.numel:
                return expression(f"{base}.view({', '.join(map(str, size)) or '()'})")
            if len(size) > 1 and layout == Layout(_last_swapped(size), _last_swapped(stride)):
                return expression(f"{base}.transpose(-2, -1)")
        # as_strided counts from the beginning of the memory, reinterpret_tensor from the tensor.
        start = f", {base}.storage_offset() + {offset}" if offset else ""
        return expression(f"{base}.as_strided({size}, {stride}{start})")

    # --- dead steps -------------------------------------------------------------------------------------------------

    def _root(self, name: str) -> str:
        return self._roots.get(name, name)

    def _remove_dead(self, body: Body) -> bool:
        """Remove what no result depends on; whether something was removed."""
        names = used_names(body.result)
        # A change of an input or of a parameter of the module is a result too.
        kept_alive = {*body.parameters, *(step.target for step in body.steps if _is_attribute(step.value))}
        steps: list[Step] = []
        idle: dict[str, set[str]] = {}
        for step in reversed(body.steps):
            if step.target:
                if step.target in names:
                    names |= step.used()
                    steps.append(step)
                continue
            live = {self._root(name) for name in names} | kept_alive
            written = {self._root(name) for node in step.written() for name in used_names(node)}
            if not written & live:
                continue
            steps.append(step)
            if step.kernel is None:
                names |= step.used()
                continue
            unused = self._idle_parameters(step, live)
            name = step.kernel.function.name
            idle[name] = idle.get(name, unused) & unused
            given = step.kernel.parameters[: len(step.arguments)]
            names |= {item for name in given if name not in unused for item in used_names(step.argument(name))}
        steps.reverse()
        changed = len(steps) != len(body.steps)
        body.steps = steps
        for kernel in body.kernels:
            if unused := idle[kernel.function.name]:
                changed = True
                for step in steps:
                    if step.kernel is kernel:
                        given = zip(step.arguments, kernel.parameters, strict=False)
                        step.arguments = [node for node, name in given if name not in unused]
                without_dead_stores(kernel, unused)
        return changed

    def _idle_parameters(self, step: Step, live: set[str]) -> set[str]:
        """Pointers of a launch through which nothing is read, and nothing written that is live."""
        kernel = step.kernel
        assert kernel is not None
        found = {name for name in kernel.parameters if "ptr" in name and name not in kernel.written | kernel.read}
        for name in kernel.written - kernel.read:
            if not {self._root(item) for item in used_names(step.argument(name))} & live:
                found.add(name)
        return found


def _is_attribute(value: ast.expr | None) -> bool:
    return isinstance(value, ast.Attribute | ast.Subscript) and ast.unparse(value).startswith("self.")


def _last_swapped(items: tuple[int, ...]) -> tuple[int, ...]:
    return (*items[:-2], items[-1], items[-2])


def _remove_constants(body: Body) -> None:
    """Remove `xnumel = 64` from kernels whose launches pass that number."""
    for kernel in body.kernels:
        launches = [step for step in body.steps if step.kernel is kernel]

        def is_repeated(item: ast.stmt, kernel: Kernel = kernel, launches: Sequence[Step] = launches) -> bool:
            match item:
                case ast.Assign(targets=[ast.Name(id=name)], value=ast.Constant() as value) if (
                    name in kernel.parameters
                ):
                    return all(ast.dump(step.argument(name)) == ast.dump(value) for step in launches)
            return False

        kernel.function.body = [item for item in kernel.function.body if not is_repeated(item)]


def _flat(body: Sequence[ast.stmt]) -> Iterator[ast.stmt]:
    """Statements with those of `with` blocks, which select the device."""
    for statement in body:
        if isinstance(statement, ast.With):
            yield from _flat(statement.body)
        else:
            yield statement


def _integers(node: ast.expr) -> tuple[int, ...]:
    try:
        found: Any = ast.literal_eval(node)
    except ValueError:
        found = None
    if not isinstance(found, tuple) or not all(isinstance(item, int) for item in found):
        raise Unrewritable("sizes that are not constants", ast.unparse(node)[:80])
    return found


def _fits(numel: ast.expr, keywords: Sequence[ast.keyword]) -> bool:
    block = next((item.value for item in keywords if item.arg == "YBLOCK"), ast.Constant(1))
    try:
        return math.ceil(ast.literal_eval(numel) / ast.literal_eval(block)) <= _MAX_GRID_Y
    except (ValueError, TypeError):
        return False


def _text(node: ast.expr | None) -> str:
    return "1" if node is None else ast.unparse(node)
