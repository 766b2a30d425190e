"""References with known relations, for `retrieval_quality.py`: neighbours, leaks, innocent examples, distractors.

Nothing here is shared with the guard or with a retriever: references are rendered from operator lists, leaks are made
by rewriting a syntax tree, and the operators of a reference are known from its making. No reference is executed.

- Neighbour: the same operators with other names, shapes, constants and spelling.
- Leak: a given reference renamed, reformatted, reordered, with other constants, wrapped in another module, or all five.
- Innocent: a reference in which one operator is replaced by another.
- Distractor: other operators than any query.
"""

from __future__ import annotations

import ast
import io
import random
import tokenize
from collections.abc import Callable, Iterator

__all__ = ["GROUPS", "INNOCENT", "LEAKS", "Spec", "differing", "kernel_of", "make_specs", "render"]

Spec = tuple[str, ...]
"""Operators of a reference, first to last."""

# Operator -> spellings. A spelling is `constructor|expression`; `{x}` is the value, `{y}` another input, `{m}` the
# module of the constructor, `{n}` and `{f}` an integer and a float.
_ELEMENTWISE = {
    "relu": ["|torch.relu({x})", "|F.relu({x})", "nn.ReLU()|{m}({x})"],
    "gelu": ["|F.gelu({x})", "nn.GELU()|{m}({x})"],
    "sigmoid": ["|torch.sigmoid({x})", "nn.Sigmoid()|{m}({x})"],
    "tanh": ["|torch.tanh({x})", "nn.Tanh()|{m}({x})"],
    "silu": ["|F.silu({x})", "nn.SiLU()|{m}({x})"],
    "softplus": ["|F.softplus({x})", "nn.Softplus()|{m}({x})"],
    "mish": ["|F.mish({x})", "nn.Mish()|{m}({x})"],
    "elu": ["|F.elu({x}, alpha={f})", "nn.ELU(alpha={f})|{m}({x})"],
    "selu": ["|F.selu({x})", "nn.SELU()|{m}({x})"],
    "celu": ["|F.celu({x}, alpha={f})", "nn.CELU(alpha={f})|{m}({x})"],
    "relu6": ["|F.relu6({x})", "nn.ReLU6()|{m}({x})"],
    "hardswish": ["|F.hardswish({x})", "nn.Hardswish()|{m}({x})"],
    "hardsigmoid": ["|F.hardsigmoid({x})", "nn.Hardsigmoid()|{m}({x})"],
    "hardtanh": ["|F.hardtanh({x}, -{f}, {f})", "nn.Hardtanh(-{f}, {f})|{m}({x})"],
    "leaky_relu": ["|F.leaky_relu({x}, {f})", "nn.LeakyReLU({f})|{m}({x})"],
    "softsign": ["|F.softsign({x})", "nn.Softsign()|{m}({x})"],
    "logsigmoid": ["|F.logsigmoid({x})", "nn.LogSigmoid()|{m}({x})"],
    "exp": ["|torch.exp({x})", "|{x}.exp()"],
    "sin": ["|torch.sin({x})", "|{x}.sin()"],
    "cos": ["|torch.cos({x})", "|{x}.cos()"],
    "atan": ["|torch.atan({x})", "|{x}.atan()"],
    "abs": ["|torch.abs({x})", "|{x}.abs()"],
    "erf": ["|torch.erf({x})", "|{x}.erf()"],
    "log1p": ["|torch.log1p({x})", "|{x}.log1p()"],
    "rsqrt": ["|torch.rsqrt({x})", "|{x}.rsqrt()"],
    "square": ["|torch.square({x})", "|{x}.square()"],
    "floor": ["|torch.floor({x})", "|{x}.floor()"],
    "clamp": ["|torch.clamp({x}, -{f}, {f})", "|{x}.clamp(-{f}, {f})"],
    "scale": ["|{x} * {f}", "|torch.mul({x}, {f})"],
    "shift": ["|{x} + {f}", "|torch.add({x}, {f})"],
}
_BINARY = {
    "add": ["|{x} + {y}", "|torch.add({x}, {y})"],
    "sub": ["|{x} - {y}", "|torch.sub({x}, {y})"],
    "mul": ["|{x} * {y}", "|torch.mul({x}, {y})"],
    "div": ["|{x} / {y}", "|torch.div({x}, {y})"],
    "maximum": ["|torch.maximum({x}, {y})"],
    "minimum": ["|torch.minimum({x}, {y})"],
    "lerp": ["|torch.lerp({x}, {y}, {f})"],
    "hypot": ["|torch.hypot({x}, {y})"],
}
_REDUCTIONS = {
    "sum": ["|torch.sum({x}, dim=1)", "|{x}.sum(dim=1)"],
    "mean": ["|torch.mean({x}, dim=1)", "|{x}.mean(dim=1)"],
    "amax": ["|torch.amax({x}, dim=1)", "|{x}.amax(dim=1)"],
    "amin": ["|torch.amin({x}, dim=1)", "|{x}.amin(dim=1)"],
    "prod": ["|torch.prod({x}, dim=1)", "|{x}.prod(dim=1)"],
    "var": ["|torch.var({x}, dim=1)", "|{x}.var(dim=1)"],
    "std": ["|torch.std({x}, dim=1)", "|{x}.std(dim=1)"],
    "norm": ["|torch.norm({x}, dim=1)", "|{x}.norm(dim=1)"],
    "logsumexp": ["|torch.logsumexp({x}, dim=1)", "|{x}.logsumexp(dim=1)"],
    "argmax": ["|torch.argmax({x}, dim=1)", "|{x}.argmax(dim=1)"],
    "argmin": ["|torch.argmin({x}, dim=1)", "|{x}.argmin(dim=1)"],
    "cumsum": ["|torch.cumsum({x}, dim=1)", "|{x}.cumsum(dim=1)"],
    "cumprod": ["|torch.cumprod({x}, dim=1)", "|{x}.cumprod(dim=1)"],
}
_NORMS = {
    "softmax": ["|F.softmax({x}, dim=1)", "nn.Softmax(dim=1)|{m}({x})"],
    "log_softmax": ["|F.log_softmax({x}, dim=1)", "nn.LogSoftmax(dim=1)|{m}({x})"],
    "normalize": ["|F.normalize({x}, dim=1)"],
    "layer_norm": ["nn.LayerNorm({n})|{m}({x})"],
    "group_norm": ["nn.GroupNorm({n}, {n})|{m}({x})"],
    "batch_norm": ["nn.BatchNorm2d({n})|{m}({x})"],
    "instance_norm": ["nn.InstanceNorm2d({n})|{m}({x})"],
    "rms_norm": ["nn.RMSNorm({n})|{m}({x})"],
    "max_pool": ["nn.MaxPool2d({n})|{m}({x})", "|F.max_pool2d({x}, {n})"],
    "avg_pool": ["nn.AvgPool2d({n})|{m}({x})", "|F.avg_pool2d({x}, {n})"],
    "adaptive_pool": ["nn.AdaptiveAvgPool2d({n})|{m}({x})"],
    "dropout": ["nn.Dropout({f})|{m}({x})"],
    "pixel_shuffle": ["nn.PixelShuffle({n})|{m}({x})"],
    "interpolate": ["|F.interpolate({x}, scale_factor={n}, mode='nearest')"],
    "triu": ["|torch.triu({x}, {n})"],
    "tril": ["|torch.tril({x}, {n})"],
}
_CONTRACTIONS = {
    "linear": ["nn.Linear({n}, {n})|{m}({x})"],
    "linear_no_bias": ["nn.Linear({n}, {n}, bias=False)|{m}({x})"],
    "conv1d": ["nn.Conv1d({n}, {n}, {n})|{m}({x})"],
    "conv2d": ["nn.Conv2d({n}, {n}, {n}, padding={n})|{m}({x})"],
    "conv2d_no_bias": ["nn.Conv2d({n}, {n}, {n}, bias=False)|{m}({x})"],
    "conv3d": ["nn.Conv3d({n}, {n}, {n}, stride={n})|{m}({x})"],
    "conv_transpose1d": ["nn.ConvTranspose1d({n}, {n}, {n})|{m}({x})"],
    "conv_transpose2d": ["nn.ConvTranspose2d({n}, {n}, {n}, stride={n})|{m}({x})"],
    "conv_transpose3d": ["nn.ConvTranspose3d({n}, {n}, {n})|{m}({x})"],
    "bilinear": ["nn.Bilinear({n}, {n}, {n})|{m}({x}, {y})"],
    "matmul": ["|torch.matmul({x}, {y})", "|{x} @ {y}"],
    "bmm": ["|torch.bmm({x}, {y})"],
    "outer": ["|torch.outer({x}, {y})"],
    "kron": ["|torch.kron({x}, {y})"],
}
GROUPS: dict[str, dict[str, list[str]]] = {
    "elementwise": _ELEMENTWISE,
    "binary": _BINARY,
    "reduction": _REDUCTIONS,
    "norm": _NORMS,
    "contraction": _CONTRACTIONS,
}
_ALL = {name: spellings for group in GROUPS.values() for name, spellings in group.items()}

_VALUES = ["x", "out", "h", "z", "result", "hidden", "tensor", "feats", "act", "res", "data", "t"]
_OTHERS = ["y", "other", "b", "residual", "second", "rhs", "weight_in", "skip"]
_MODULES = ["op", "layer", "block", "proj", "body", "unit", "stage", "fn", "head", "core"]
_CLASSES = ["Net", "FusedBlock", "Simple", "Layer", "Tail", "CustomModule", "Branch", "Stem", "Neck", "Cell"]


def make_specs(n: int, rng: random.Random, *, without: frozenset[Spec] = frozenset()) -> list[Spec]:
    """Distinct operator lists: one to five operators, the first often a contraction, the last often a reduction."""
    found: dict[Spec, None] = {}
    while len(found) < n:
        spec: list[str] = []
        if rng.random() < 0.6:
            spec.append(rng.choice(list(_CONTRACTIONS)))
        for _ in range(rng.randint(0, 3)):
            group = rng.choice([_ELEMENTWISE, _ELEMENTWISE, _BINARY, _NORMS])
            spec.append(rng.choice(list(group)))
        if rng.random() < 0.4:
            spec.append(rng.choice(list(_REDUCTIONS)))
        if spec and tuple(spec) not in without:
            found[tuple(spec)] = None
    return list(found)


def differing(spec: Spec, rng: random.Random) -> Spec:
    """The operator list with one operator replaced by another of its group."""
    position = rng.randrange(len(spec))
    group = next(names for names in GROUPS.values() if spec[position] in names)
    other = rng.choice([name for name in group if name != spec[position]])
    return (*spec[:position], other, *spec[position + 1 :])


def render(spec: Spec, rng: random.Random, *, class_name: str = "Model") -> str:
    """A reference with these operators; names, shapes, constants, spelling and style come from `rng`."""
    numbers = [4, 8, 16, 24, 32, 48, 64, 96, 128, 256, 512]
    value, other = rng.choice(_VALUES), rng.choice(_OTHERS)
    modules = rng.sample(_MODULES, len(_MODULES))
    one_line, documented, in_constants = rng.random() < 0.2, rng.random() < 0.5, rng.random() < 0.5
    constructors, steps, constants, inputs = [], [], [], [value]
    for position, name in enumerate(spec):
        constructor, _, expression = rng.choice(_ALL[name]).partition("|")
        texts = []
        for text in (constructor, expression):
            while "{n}" in text or "{f}" in text:
                is_integer = "{n}" in text
                number = str(rng.choice(numbers)) if is_integer else str(round(rng.uniform(0.05, 3.0), 2))
                if in_constants and is_integer:
                    constants.append(f"size_{len(constants)} = {number}")
                    number = f"size_{len(constants) - 1}"
                text = text.replace("{n}" if is_integer else "{f}", number, 1)
            texts.append(text)
        if constructor:
            constructors.append(f"self.{modules[position]} = {texts[0]}")
        if "{y}" in expression:
            second = other if other not in inputs else f"{other}{position}"
            inputs.append(second)
            texts[1] = texts[1].replace("{y}", second)
        steps.append(texts[1].replace("{m}", f"self.{modules[position]}"))
    lines = ["import torch", "import torch.nn as nn", "import torch.nn.functional as F", "", *constants, ""]
    lines += [f"class {class_name}(nn.Module):"]
    if documented:
        words = ", then ".join(name.replace("_", " ") for name in spec)
        lines += ['    """', f"    {rng.choice(['Applies', 'A model that performs', 'Computes'])} {words}.", '    """']
    lines += [
        "",
        "    def __init__(self):",
        "        super().__init__()",
        *(f"        {line}" for line in constructors),
    ]
    lines += ["", f"    def forward(self, {', '.join(inputs)}):"]
    if one_line:
        text = value
        for step in steps:
            text = step.replace("{x}", f"({text})")
        lines.append(f"        return {text}")
    else:
        lines += [f"        {value} = {step.replace('{x}', value)}" for step in steps]
        lines.append(f"        return {value}")
    shape = ", ".join(str(rng.choice(numbers)) for _ in range(rng.randint(2, 4)))
    given = ", ".join(f"torch.{rng.choice(['rand', 'randn'])}({shape})" for _ in inputs)
    lines += [
        "",
        "",
        "def get_inputs():",
        f"    return [{given}]",
        "",
        "",
        "def get_init_inputs():",
        "    return []",
        "",
    ]
    return "\n".join(lines)


def kernel_of(spec: Spec, rng: random.Random) -> str:
    """A text in the form of a Triton kernel for these operators, of realistic length; it is never executed."""
    name = f"{rng.choice(_CLASSES).lower()}_{rng.randrange(1000)}_kernel"
    block = rng.choice([128, 256, 512, 1024])
    loads = "\n".join(f"    v{i} = tl.load(in_ptr{i % 2} + offsets, mask=mask, other=0.0)" for i in range(len(spec)))
    steps = "\n".join(f"    # {name_}\n    v0 = {name_}_block(v0, v{i})" for i, name_ in enumerate(spec))
    return f"""import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def {name}(in_ptr0, in_ptr1, out_ptr, n_elements, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n_elements
{loads}
{steps}
    tl.store(out_ptr + offsets, v0, mask=mask)


class ModelNew(nn.Module):
    def forward(self, first, second=None):
        out = torch.empty_like(first)
        n = out.numel()
        {name}[(triton.cdiv(n, {block}),)](first, second, out, n, BLOCK={block})
        return out
"""


# Leaks of a given reference


def renamed(source: str, rng: random.Random) -> str:
    """Other names for classes, functions, variables, arguments and attributes of the module."""
    tree = ast.parse(source)
    names = _own_names(tree)
    words = [f"{rng.choice(_VALUES)}_{rng.choice(_MODULES)}_{i}" for i in range(len(names))]
    return ast.unparse(_Rename(dict(zip(sorted(names), words, strict=True))).visit(tree))


def reformatted(source: str, rng: random.Random) -> str:
    """Other indentation, line breaks, quotes, comments and docstrings."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and ast.get_docstring(node) is not None and node.body[1:]:
            del node.body[0]
    lines: list[str] = ["# taken from another repository"]
    for line in ast.unparse(tree).splitlines():
        depth = (len(line) - len(line.lstrip())) // 4
        text = line.strip()
        if rng.random() < 0.2:
            lines.append("  " * depth + f"# {rng.choice(_VALUES)} of {rng.choice(_MODULES)}")
        lines.append("  " * depth + text)
        if text.startswith("def ") and text.endswith(":"):
            lines.append("  " * (depth + 1) + '"""See the paper."""')
        if rng.random() < 0.1:
            lines.append("")
    return _broken("\n".join(lines) + "\n", rng)


def reordered(source: str, rng: random.Random) -> str:
    """Independent neighbouring statements exchanged, in every block and at module level."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        for field in ("body", "orelse"):
            block = getattr(node, field, None)
            if isinstance(block, list) and block and isinstance(block[0], ast.stmt):
                for _ in range(3):
                    for i in range(len(block) - 1):
                        if rng.random() < 0.7 and _independent(block[i], block[i + 1]):
                            block[i], block[i + 1] = block[i + 1], block[i]
    return ast.unparse(tree)


def other_constants(source: str, rng: random.Random) -> str:
    """Other sizes and factors. Small integers stay, as they are often dimensions; so do indices, exponents and 0."""
    tree = ast.parse(source)
    indices = {
        id(node) for parent in ast.walk(tree) if isinstance(parent, ast.Subscript) for node in ast.walk(parent.slice)
    }
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Attribute(attr="pow"), args=[*_, exponent]):
                indices.add(id(exponent))
            case ast.BinOp(op=ast.Pow(), right=exponent):
                indices.add(id(exponent))
    for node in ast.walk(tree):
        if not isinstance(node, ast.Constant) or isinstance(node.value, bool | str | None) or id(node) in indices:
            continue
        if isinstance(node.value, float) and node.value:
            node.value = round(node.value * rng.uniform(1.1, 3.0) + 0.01, 4)
        elif isinstance(node.value, int) and node.value > 4:
            node.value += rng.randint(1, 2 * node.value)
    return ast.unparse(tree)


def wrapped(source: str, rng: random.Random) -> str:
    """The module under another name, called by a new `Model`."""
    name = rng.choice(_CLASSES) + str(rng.randrange(100))
    inner = ast.unparse(_Rename({"Model": name}).visit(ast.parse(source)))
    attribute = rng.choice(_MODULES)
    style = rng.randrange(3)
    if style == 0:
        call = f"return self.{attribute}(*inputs)"
    elif style == 1:
        call = f"result = self.{attribute}(*inputs)\n        return result"
    else:
        call = (
            f"return self.run(inputs)\n\n    def run(self, inputs):\n        return self.{attribute}.forward(*inputs)"
        )
    return f"""{inner}


class Model(nn.Module):
    def __init__(self, *args, **kwargs):
        super(Model, self).__init__()
        self.{attribute} = {name}(*args, **kwargs)

    def forward(self, *inputs):
        {call}
""".replace("(nn.Module)", "(torch.nn.Module)" if "import torch.nn as nn" not in source else "(nn.Module)")


def everything(source: str, rng: random.Random) -> str:
    """All five changes."""
    for change in (wrapped, renamed, reordered, other_constants, reformatted):
        source = change(source, rng)
    return source


LEAKS: dict[str, Callable[[str, random.Random], str]] = {
    "renamed": renamed,
    "reformatted": reformatted,
    "reordered": reordered,
    "other_constants": other_constants,
    "wrapped": wrapped,
    "everything": everything,
}

INNOCENT = {
    "relu": "gelu",
    "ReLU": "GELU",
    "gelu": "relu",
    "GELU": "ReLU",
    "sigmoid": "tanh",
    "Sigmoid": "Tanh",
    "tanh": "sigmoid",
    "Tanh": "Sigmoid",
    "sum": "mean",
    "mean": "sum",
    "max": "min",
    "min": "max",
    "amax": "amin",
    "amin": "amax",
    "exp": "sin",
    "sin": "exp",
    "abs": "square",
    "softmax": "log_softmax",
    "Softmax": "LogSoftmax",
    "MaxPool2d": "AvgPool2d",
    "AvgPool2d": "MaxPool2d",
    "MaxPool3d": "AvgPool3d",
    "BatchNorm2d": "InstanceNorm2d",
    "InstanceNorm2d": "BatchNorm2d",
    "Conv2d": "ConvTranspose2d",
    "Conv1d": "ConvTranspose1d",
    "Conv3d": "ConvTranspose3d",
    "ConvTranspose3d": "Conv3d",
    "ConvTranspose2d": "Conv2d",
    "ConvTranspose1d": "Conv1d",
    "cumsum": "cumprod",
    "cumprod": "cumsum",
    "Hardtanh": "LeakyReLU",
    "hardtanh": "leaky_relu",
    "matmul": "kron",
    "logsumexp": "amax",
    "clamp": "lerp",
    "BatchNorm3d": "InstanceNorm3d",
    "GroupNorm": "LayerNorm",
    "LayerNorm": "RMSNorm",
    "argmax": "argmin",
    "AvgPool1d": "MaxPool1d",
    "AvgPool3d": "MaxPool3d",
    "MaxPool1d": "AvgPool1d",
    "argmin": "argmax",
}
"""Operator -> an operator that computes something else."""


def neighbours(source: str) -> Iterator[str]:
    """The reference with one operator call of its classes replaced by another operator, once for each such call."""
    calls = [node for node in _class_nodes(ast.parse(source)) if isinstance(node, ast.Attribute)]
    for position, call in enumerate(calls):
        if call.attr in INNOCENT:
            tree = ast.parse(source)
            chosen = [node for node in _class_nodes(tree) if isinstance(node, ast.Attribute)][position]
            chosen.attr = INNOCENT[chosen.attr]
            yield ast.unparse(tree)


def _class_nodes(tree: ast.Module) -> Iterator[ast.AST]:
    """The functions of the operator calls in the classes of a reference."""
    for kind in tree.body:
        if isinstance(kind, ast.ClassDef):
            yield from (node.func for node in ast.walk(kind) if isinstance(node, ast.Call))


class _Rename(ast.NodeTransformer):
    def __init__(self, names: dict[str, str]) -> None:
        self._names = names

    def generic_visit(self, node: ast.AST) -> ast.AST:
        super().generic_visit(node)
        match node:
            case ast.Name():
                node.id = self._names.get(node.id, node.id)
            case ast.arg():
                node.arg = self._names.get(node.arg, node.arg)
            case ast.FunctionDef() | ast.ClassDef():
                node.name = self._names.get(node.name, node.name)
            case ast.Attribute(value=ast.Name(id="self")):
                node.attr = self._names.get(f"self.{node.attr}", node.attr)
        return node


def _own_names(tree: ast.Module) -> set[str]:
    """Names that can be changed without looking at types: not those of keywords, of text, or of the interface."""
    kept = {"self", "Model", "get_inputs", "get_init_inputs", "forward", "__init__", "args", "kwargs", "cls", "super"}
    functions, found = set(), set()
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=aliases) | ast.ImportFrom(names=aliases):
                kept |= {alias.asname or alias.name.partition(".")[0] for alias in aliases}
            case ast.keyword(arg=str() as name):
                kept.add(name)
            case ast.Constant(value=str() as text):
                kept |= {text, f"self.{text}"}
            case ast.FunctionDef(name=name):
                functions.add(f"self.{name}")
                kept.add(name)
            case ast.ClassDef(name=name):
                found.add(name)
            case ast.arg(arg=name) | ast.Name(id=name, ctx=ast.Store()):
                found.add(name)
            case ast.Attribute(value=ast.Name(id="self"), attr=name, ctx=ast.Store()):
                found.add(f"self.{name}")
            case ast.Attribute(attr=name):
                kept |= set() if isinstance(node.value, ast.Name) and node.value.id == "self" else {f"self.{name}"}
    return found - kept - functions


def _independent(first: ast.stmt, second: ast.stmt) -> bool:
    """Whether two statements can be exchanged: plain assignments or definitions that do not use each other's names."""
    simple = (ast.Assign, ast.FunctionDef, ast.ClassDef)
    if not isinstance(first, simple) or not isinstance(second, simple):
        return False
    for node in (*ast.walk(first), *ast.walk(second)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr.endswith("_"):
            return False
    if any(isinstance(statement, ast.Assign) and _effects(statement) for statement in (first, second)):
        return False
    return not (_written(first) & (_read(second) | _written(second)) or _written(second) & _read(first))


def _effects(statement: ast.Assign) -> bool:
    return any(
        isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in ("append", "pop")
        for node in ast.walk(statement)
    )


def _written(statement: ast.stmt) -> set[str]:
    if isinstance(statement, ast.FunctionDef | ast.ClassDef):
        return {statement.name}
    found = set()
    for node in ast.walk(statement):
        if isinstance(node, ast.Name | ast.Attribute | ast.Subscript) and isinstance(node.ctx, ast.Store):
            found.add(ast.unparse(node).partition("[")[0])
    return found


def _read(statement: ast.stmt) -> set[str]:
    found = set()
    for node in ast.walk(statement):
        if isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Load):
            found.add(ast.unparse(node))
    return found


def _broken(source: str, rng: random.Random) -> str:
    """Line breaks after some commas within brackets."""
    depth, positions = 0, []
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.OP and token.string in "([{":
            depth += 1
        elif token.type == tokenize.OP and token.string in ")]}":
            depth -= 1
        elif token.string == "," and depth and rng.random() < 0.3:
            positions.append(token.end)
    lines = source.splitlines(keepends=True)
    for row, column in reversed(positions):
        line = lines[row - 1]
        lines[row - 1] = line[:column] + "\n        " + line[column:].lstrip(" ")
    return "".join(lines)
