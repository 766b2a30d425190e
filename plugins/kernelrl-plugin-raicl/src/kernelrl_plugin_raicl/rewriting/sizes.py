"""Sizes of a kernel: read from the inputs where that is sound, asserted elsewhere."""

from __future__ import annotations

import ast

from kernelrl_plugin_raicl.rewriting.calls import Body, Layout, Step, expression
from kernelrl_plugin_raicl.rewriting.inductor_kernels import Kernel
from kernelrl_plugin_raicl.rewriting.modules import used_names
from kernelrl_plugin_raicl.rewriting.pair import Unrewritable

__all__ = ["assert_sizes", "read_sizes"]

_OF_SIZE = frozenset({"shape", "size", "numel", "len", "mean", "range", "dim", "ndim", "std", "var", "arange"})
"""Names by which a reference may use a size as a value."""
_INDEX = (
    "tl.program_id(0) * XBLOCK",
    "xoffset + tl.arange(0, XBLOCK)[:]",
    "tl.program_id(0) * XBLOCK + tl.arange(0, XBLOCK)[:]",
)


def read_sizes(body: Body, model: ast.ClassDef) -> bool:
    """Read the sizes from the first input, if every kernel treats all elements alike; whether it was possible.

    It is, if all tensors have the same shape, are contiguous and are indexed by the number of the element alone, and
    the reference uses no size as a value. Inductor folds sizes into constants, so in all other kernels the meaning of
    a number such as 4 is lost.
    """
    words = used_names(model) | {node.attr for node in ast.walk(model) if isinstance(node, ast.Attribute)}
    shapes = [body.layouts[name] for name in body.parameters if name in body.layouts]
    if words & _OF_SIZE or not shapes or any(layout != shapes[0] or not layout.is_contiguous for layout in shapes):
        return False
    if any(isinstance(node, ast.Call | ast.Constant) for node in ast.walk(body.result)):
        # A view of a result has sizes too.
        return False
    main = next(name for name in body.parameters if name in body.layouts)
    if shapes[0].numel == 1 or not all(_is_elementwise(step, body, shapes[0]) for step in body.steps):
        return False
    body.opening += _contiguous(body)
    body.opening.append(ast.parse(f"n = {main}.numel()").body[0])
    for step in body.steps:
        if step.kernel is not None:
            position = step.kernel.parameters.index("xnumel")
            step.arguments[position] = expression("n")
            step.numels = [expression("n")]
        elif _is_buffer(step.value):
            assert isinstance(step.value, ast.Call)
            dtype = next(ast.unparse(item.value) for item in step.value.keywords if item.arg == "dtype")
            step.value = expression(f"torch.empty_like({main}, dtype={dtype})")
    for kernel in body.kernels:
        _mask_everything(kernel)
    return True


def assert_sizes(body: Body) -> None:
    """Make `forward` assert the shapes of its tensor parameters.

    Raises:
        Unrewritable: Inductor does not state the shape of a tensor.
    """
    known = [name for name in body.parameters if name in body.layouts]
    if not known:
        raise Unrewritable("sizes of the inputs are not stated")
    for name in known:
        layout = body.layouts[name]
        body.opening += ast.parse(f"assert {name}.shape == {layout.size}").body
        if not layout.is_contiguous:
            body.opening += ast.parse(f"assert {name}.stride() == {layout.stride}").body
    body.opening += _contiguous(body)


def _contiguous(body: Body) -> list[ast.stmt]:
    names = [name for name in body.parameters if name in body.layouts and body.layouts[name].is_contiguous]
    return [statement for name in names for statement in ast.parse(f"{name} = {name}.contiguous()").body]


def _is_elementwise(step: Step, body: Body, layout: Layout) -> bool:
    if step.kernel is None:
        if _is_buffer(step.value):
            return body.layouts.get(step.target) == layout
        # An attribute of the module.
        return step.target in body.layouts and isinstance(step.value, ast.Attribute)
    kernel = step.kernel
    per_element = _element_pointers(kernel)
    if per_element is None or "xnumel" not in kernel.parameters or len(step.numels) != 1:
        return False
    for name in kernel.written | kernel.read:
        argument = step.argument(name)
        found = body.layouts.get(argument.id) if isinstance(argument, ast.Name) else None
        if found is None or (found != layout if name in per_element else found.numel != 1):
            return False
    return True


def _element_pointers(kernel: Kernel) -> set[str] | None:
    """Pointers that are indexed by the number of the element; None if a kernel uses that number in another way."""
    indices: set[str] = set()
    found: set[str] = set()
    for statement in kernel.function.body:
        match statement:
            case ast.Assign(targets=[ast.Name(id="xoffset")], value=value) if ast.unparse(value) == _INDEX[0]:
                continue
            case ast.Assign(targets=[ast.Name(id="xindex")], value=value) if ast.unparse(value) in _INDEX[1:]:
                indices.add("xindex")
                continue
            case ast.Assign(targets=[ast.Name(id="xmask")], value=value):
                if ast.unparse(value) not in ("xindex < xnumel", "tl.full([XBLOCK], True, tl.int1)"):
                    return None
                continue
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Name(id=index)) if index in indices:
                indices.add(name)
                continue
            case ast.Assign(targets=[ast.Name()], value=value) | ast.Expr(value=value):
                pass
            case _:
                return None
        pointers = _indexed_pointers(value, indices)
        if pointers is None or _uses_number_elsewhere(value, indices):
            return None
        found |= pointers
    return found if "xindex" in indices else None


def _indexed_pointers(value: ast.expr, indices: set[str]) -> set[str] | None:
    """Pointers that the loads and stores of an expression index by the number of the element; None if one of them is
    neither of this form nor the load of a scalar."""
    found: set[str] = set()
    for access in _accesses(value):
        address = access.args[0]
        if not isinstance(address, ast.BinOp) or not isinstance(address.left, ast.Name):
            return None
        if isinstance(address.right, ast.Name) and address.right.id in indices:
            found.add(address.left.id)
            continue
        is_scalar = ast.unparse(address.right) == "0" and not _is_store(access)
        others = [*access.args[1:], *(keyword.value for keyword in access.keywords)]
        if not is_scalar or any(indices & used_names(other) for other in others):
            return None
    return found


def _uses_number_elsewhere(value: ast.expr, indices: set[str]) -> bool:
    """Whether an expression uses the number of the element, or the mask, other than as address or mask of an access."""
    inside: set[int] = set()
    for access in _accesses(value):
        # Without the stored value.
        options = access.args[2:] if _is_store(access) else access.args[1:]
        arguments = [access.args[0], *options, *(keyword.value for keyword in access.keywords)]
        for argument in arguments:
            inside |= {id(node) for node in ast.walk(argument)}
    names = {*indices, "xmask"}
    loose = [node for node in ast.walk(value) if isinstance(node, ast.Name) and node.id in names]
    return any(id(node) not in inside for node in loose)


def _accesses(tree: ast.AST) -> list[ast.Call]:
    """The loads and stores."""
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    return [call for call in calls if ast.unparse(call.func) in ("tl.load", "tl.store")]


def _is_store(access: ast.Call) -> bool:
    return ast.unparse(access.func) == "tl.store"


def _is_buffer(value: ast.expr | None) -> bool:
    return isinstance(value, ast.Call) and ast.unparse(value.func) == "torch.empty"


def _mask_everything(kernel: Kernel) -> None:
    """Mask loads and stores that Inductor does not, because the fixed size was a multiple of the block."""
    body = kernel.function.body
    place = next(
        at for at, item in enumerate(body) if isinstance(item, ast.Assign) and ast.unparse(item.targets[0]) == "xindex"
    )
    body[:] = [item for item in body if not (isinstance(item, ast.Assign) and ast.unparse(item.targets[0]) == "xmask")]
    body[place + 1 : place + 1] = ast.parse("xmask = xindex < xnumel").body
    for access in _accesses(kernel.function):
        address = access.args[0]
        if isinstance(address, ast.BinOp) and ast.unparse(address.right) == "0":
            continue
        values = access.args[:2] if _is_store(access) else access.args[:1]
        access.args = [*values, ast.Name("xmask", ast.Load())]
        access.keywords = [keyword for keyword in access.keywords if keyword.arg != "mask"]
    ast.fix_missing_locations(kernel.function)
