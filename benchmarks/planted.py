"""References with known relations, for `retrieval_quality.py` and `guard_behaviour.py`.

Nothing here is shared with the guard or with a retriever: references are rendered from operator lists, and their
operators are known from their making. No reference is executed.

- Neighbour: the same operators with other names, shapes, constants and spelling.
- Innocent: a reference in which one operator is replaced by another.
- Distractor: other operators than any query.
"""

from __future__ import annotations

import ast
import random
from collections.abc import Iterator

__all__ = ["GROUPS", "INNOCENT", "Spec", "kernel_of", "make_specs", "neighbours", "render"]

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
