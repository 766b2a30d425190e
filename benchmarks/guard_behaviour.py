"""The guard against leaks, measured with references that other people or PyTorch wrote, by class.

    python benchmarks/guard_behaviour.py --kernelbench DIR --multikernelbench DIR --cuda-l1 FILE
        > benchmarks/results/guard_behaviour.json

- Equal references, each with the reference of a task that it computes: the decompositions of PyTorch, as Python that
  `make_fx` prints; spellings made from the operator schemas of PyTorch (by position, by keyword, by NumPy's alias, as a
  method); activations and norms of Hugging Face transformers beside the functions of PyTorch; MultiKernelBench beside
  the tasks of KernelBench with the same name; CUDA-L1's rewritten modules beside its references.
- Different references that look alike: one operator replaced by a similar one (`planted.INNOCENT`) in the references
  of all equal pairs, of levels 1 and 2 of KernelBench, and of `starter`. Only those that can be called count, and not
  those of `EQUAL`.
- The same references with another number in the module. The guard excludes them by their source, which it compares
  without numbers; counted is how many of them the comparison of outputs alone calls equal.
- Levels 1 and 2 of KernelBench, and the tasks of `starter`, against each other: pairs that the guard calls equal.
  Generated tasks of `starter` against its held-out tasks.

A pair is planted only if it is equal, which the guard does not decide. Texts of PyTorch and transformers are executed
here, with inputs of their own; one that fails or whose outputs differ by more than 1e-4 is dropped, and counted by its
reason. Modules of CUDA-L1 were read: `UNEQUAL` lists those that differ, a text without a class is none, and modules
that need a GPU or keep results are excluded.

`source` is the comparison of the sources, `behaviour` that of the outputs; the guard excludes what either finds. DIR of
KernelBench is its folder `KernelBench`, that of MultiKernelBench its folder `reference`, FILE a file of
`optimized_cuda_code/codes` of CUDA-L1. None of them is part of this repository.
"""

from __future__ import annotations

import argparse
import ast
import inspect
import json
import re
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import attrs
import planted
import torch
from provenance import provenance

from kernelrl_core.types import sha256_text
from kernelrl_judge.behaviour.equality import ProbedTasks, equal_tasks, probe_tasks
from kernelrl_judge.behaviour.runner import ReferenceRunner
from kernelrl_plugin_starter.config import StarterOptions
from kernelrl_plugin_starter.source import StarterTasks
from kernelrl_sources.similarity import nearly_equal, normalised_source

HEAD = (
    "import functools\nimport math\nfrom math import inf, nan\nimport torch\nimport torch.nn as nn\n"
    "import torch.nn.functional as F\n"
)
PRIMS = """
def variance(x, dims, correction):
    return torch.var(x, dims, correction=correction)


def broadcast(x, shape, dims):
    sizes = [x.shape[dims.index(axis)] if axis in dims else 1 for axis in range(len(shape))]
    return x.reshape(sizes).expand(shape)

"""
"""Primitive operators that torch has under no name of its own."""
N_DIFFERENT = 700
N_RENUMBERED = 200
UNEQUAL = {
    "level2/44_ConvTranspose2d_Multiply_GlobalAvgPool_GlobalAvgPool_Mean": "the mean of the weights is no convolution",
    "level2/64_Gemm_LogSumExp_LeakyReLU_LeakyReLU_GELU_GELU": "one leaky ReLU of two",
    "level2/80_Gemm_Max_Subtract_GELU": "the task is constant",
    "level2/83_Conv3d_GroupNorm_Min_Clamp_Dropout": "the task is constant",
    "level2/84_Gemm_BatchNorm_Scaling_Softmax": "statistics of evaluation in place of the batch's",
}
"""Modules of CUDA-L1 that do not compute their task, or whose task is constant, as read by hand."""
EQUAL = {
    "x = self.linear(x)\n    x = torch.sum(x, dim=1, keepdim=True)\n": "reductions of one element",
    "x = torch.mean(x, dim=[2, 3], keepdim=True)\n    x = torch.sum(x, dim=[2, 3], keepdim=True)": "one element",
    "x = x - x.amin(dim=1, keepdim=True)\n    x = torch.exp(x)\n    x = x / x.sum(": "softmax with another shift",
}
"""Part of a changed reference -> why the change has no effect on the outputs, as read by hand."""

# Class -> operator -> expression of x, y and z, and shapes of these inputs.
OPERATORS: dict[str, dict[str, tuple[str, tuple[tuple[int, ...], ...]]]] = {
    "activation": {
        name: (f"F.{name}(x)", ((12, 40),))
        for name in (
            *("silu", "gelu", "mish", "softplus", "softsign", "hardswish", "hardsigmoid", "hardtanh", "elu", "selu"),
            *("celu", "relu6", "leaky_relu", "logsigmoid", "tanhshrink", "softshrink", "hardshrink", "relu"),
        )
    }
    | {
        "gelu_tanh": ("F.gelu(x, approximate='tanh')", ((12, 40),)),
        "sigmoid": ("torch.sigmoid(x)", ((12, 40),)),
        "glu": ("F.glu(x, dim=1)", ((12, 40),)),
        "threshold": ("F.threshold(x, 0.5, 0.1)", ((12, 40),)),
        "prelu": ("F.prelu(x, y)", ((12, 40), (1,))),
        "rrelu": ("F.rrelu(x, training=False)", ((12, 40),)),
    },
    "softmax": {
        "softmax": ("torch.softmax(x, dim=1)", ((12, 40),)),
        "log_softmax": ("F.log_softmax(x, dim=1)", ((12, 40),)),
        "softmin": ("F.softmin(x, dim=1)", ((12, 40),)),
        "logsumexp": ("torch.logsumexp(x, dim=1)", ((12, 40),)),
        "logcumsumexp": ("torch.logcumsumexp(x, dim=1)", ((12, 40),)),
        "logaddexp": ("torch.logaddexp(x, y)", ((12, 40), (12, 40))),
    },
    "norm": {
        "normalize": ("F.normalize(x, dim=1)", ((12, 40),)),
        "normalize_1": ("F.normalize(x, p=1.0, dim=1)", ((12, 40),)),
        "layer_norm": ("F.layer_norm(x, (40,), y, z)", ((12, 40), (40,), (40,))),
        "layer_norm_plain": ("F.layer_norm(x, (40,))", ((12, 40),)),
        "rms_norm": ("F.rms_norm(x, (40,), y)", ((12, 40), (40,))),
        "group_norm": ("F.group_norm(x, 4, y, z)", ((3, 8, 5, 5), (8,), (8,))),
        "instance_norm": ("F.instance_norm(x)", ((3, 8, 5, 5),)),
        "batch_norm": ("F.batch_norm(x, None, None, y, z, training=True)", ((6, 8, 5, 5), (8,), (8,))),
        "vector_norm": ("torch.linalg.vector_norm(x, dim=1)", ((12, 40),)),
        "frobenius": ("torch.linalg.matrix_norm(x)", ((3, 12, 10),)),
        "cosine": ("F.cosine_similarity(x, y, dim=1)", ((12, 40), (12, 40))),
        "var_mean": ("torch.var_mean(x, dim=1)", ((12, 40),)),
        "std": ("torch.std(x, dim=1)", ((12, 40),)),
        "var": ("torch.var(x, dim=1, unbiased=False)", ((12, 40),)),
    },
    "attention": {
        "sdpa": ("F.scaled_dot_product_attention(x, y, z)", ((2, 3, 10, 8),) * 3),
        "sdpa_causal": ("F.scaled_dot_product_attention(x, y, z, is_causal=True)", ((2, 3, 10, 8),) * 3),
        "sdpa_scale": ("F.scaled_dot_product_attention(x, y, z, scale=0.3)", ((2, 3, 10, 8),) * 3),
    },
    "product": {
        "einsum_matmul": ("torch.einsum('ij,jk->ik', x, y)", ((10, 14), (14, 12))),
        "einsum_batch": ("torch.einsum('bij,bkj->bik', x, y)", ((3, 10, 14), (3, 12, 14))),
        "einsum_heads": ("torch.einsum('bqhd,bkhd->bhqk', x, y)", ((2, 10, 3, 8), (2, 11, 3, 8))),
        "einsum_outer": ("torch.einsum('i,j->ij', x, y)", ((20,), (30,))),
        "einsum_trace": ("torch.einsum('bii->b', x)", ((5, 12, 12),)),
        "bmm": ("torch.bmm(x, y)", ((3, 10, 14), (3, 14, 12))),
        "addmm": ("torch.addmm(z, x, y)", ((10, 14), (14, 12), (10, 12))),
        "baddbmm": ("torch.baddbmm(z, x, y)", ((3, 10, 14), (3, 14, 12), (3, 10, 12))),
        "linear": ("F.linear(x, y, z)", ((10, 14), (12, 14), (12,))),
        "bilinear": ("F.bilinear(x, y, z)", ((10, 6), (10, 5), (4, 6, 5))),
        "outer": ("torch.outer(x, y)", ((20,), (30,))),
        "dot": ("torch.dot(x, y)", ((40,), (40,))),
        "kron": ("torch.kron(x, y)", ((4, 5), (3, 6))),
        "addcmul": ("torch.addcmul(x, y, z)", ((12, 40),) * 3),
        "addcdiv": ("torch.addcdiv(x, y, z.abs() + 1)", ((12, 40),) * 3),
        "lerp": ("torch.lerp(x, y, 0.3)", ((12, 40), (12, 40))),
    },
    "loss": {
        "mse": ("F.mse_loss(x, y)", ((12, 40), (12, 40))),
        "mse_sum": ("F.mse_loss(x, y, reduction='sum')", ((12, 40), (12, 40))),
        "l1": ("F.l1_loss(x, y)", ((12, 40), (12, 40))),
        "smooth_l1": ("F.smooth_l1_loss(x, y)", ((12, 40), (12, 40))),
        "huber": ("F.huber_loss(x, y)", ((12, 40), (12, 40))),
        "kl_div": ("F.kl_div(x, y.softmax(1), reduction='batchmean')", ((12, 40), (12, 40))),
        "bce_logits": ("F.binary_cross_entropy_with_logits(x, y.sigmoid())", ((12, 40), (12, 40))),
        "bce": ("F.binary_cross_entropy(x.sigmoid(), y.sigmoid())", ((12, 40), (12, 40))),
        "cross_entropy": ("F.cross_entropy(x, y.argmax(1))", ((12, 40), (12, 40))),
        "cross_entropy_soft": ("F.cross_entropy(x, y.softmax(1))", ((12, 40), (12, 40))),
        "nll": ("F.nll_loss(x, y.argmax(1))", ((12, 40), (12, 40))),
        "soft_margin": ("F.soft_margin_loss(x, y.sign())", ((12, 40), (12, 40))),
        "poisson": ("F.poisson_nll_loss(x, y)", ((12, 40), (12, 40))),
        "triplet": ("F.triplet_margin_loss(x, y, z)", ((12, 40),) * 3),
        "margin_ranking": ("F.margin_ranking_loss(x, y, z.sign())", ((40,),) * 3),
        "hinge_embedding": ("F.hinge_embedding_loss(x, y.sign())", ((12, 40), (12, 40))),
    },
}  # fmt: skip

# Overload of an operator with dimensions -> values of its arguments after the tensor.
SCHEMAS: dict[str, dict[str, Any]] = {
    **{
        f"{name}.{overload}": {"dim": dim, "keepdim": True}
        for name, overload, dim in (
            *(("mean", "dim", [1]), ("sum", "dim_IntList", [1]), ("amax", "default", [1]), ("amin", "default", [1])),
            *(("prod", "dim_int", 1), ("argmax", "default", 1), ("argmin", "default", 1), ("any", "dim", 1)),
            *(("logsumexp", "default", [1]), ("nansum", "default", [1]), ("all", "dim", 1)),
        )
    },
    **{f"{name}.default": {"dim": 1} for name in ("cumsum", "cumprod", "logcumsumexp")},
    **{f"{name}.int": {"dim": 1} for name in ("softmax", "log_softmax")},
    "norm.ScalarOpt_dim": {"p": 2, "dim": [1], "keepdim": True},
    "var.dim": {"dim": [1], "unbiased": False, "keepdim": True},
    "std.dim": {"dim": [1], "unbiased": True, "keepdim": True},
    "clamp.default": {"min": -0.5, "max": 0.7},
    "flip.default": {"dims": [1]},
    "roll.default": {"shifts": [3], "dims": [1]},
    "diff.default": {"n": 1, "dim": 1},
    "renorm.default": {"p": 2, "dim": 0, "maxnorm": 1.0},
}  # fmt: skip
ALIASES = {"dim": "axis", "keepdim": "keepdims"}


@attrs.frozen
class Pair:
    """A reference that computes a task."""

    kind: str
    name: str
    task: str
    other: str


def reference(expression: str, shapes: tuple[tuple[int, ...], ...], *, before: str = "", init: str = "") -> str:
    """A reference in KernelBench's format."""
    names = ("x", "y", "z")[: len(shapes)]
    drawn = ", ".join(f"torch.randn({', '.join(map(str, shape))})" for shape in shapes)
    made = f"    def __init__(self):\n        super().__init__()\n        {init}\n" if init else ""
    return (
        f"{HEAD}{before}\n\nclass Model(nn.Module):\n{made}    def forward(self, {', '.join(names)}):\n"
        f"        return {expression}\n\n\ndef get_inputs():\n    return [{drawn}]\n\n\n"
        "def get_init_inputs():\n    return []\n"
    )


# Equal references


def decompositions() -> Iterator[Pair]:
    """Operators as PyTorch decomposes them: to its core operators, and further."""
    from torch._decomp import core_aten_decompositions, get_decompositions
    from torch.fx.experimental.proxy_tensor import make_fx

    core: dict[Any, Any] = dict(core_aten_decompositions().items())
    aten = torch.ops.aten
    names = (
        *("_softmax", "_log_softmax", "native_layer_norm", "native_group_norm", "silu", "gelu", "sigmoid", "softplus"),
        *("hardswish", "var", "std", "var_mean", "mse_loss", "elu", "leaky_relu", "addmm", "baddbmm", "mish", "relu"),
        *("hardtanh", "rsqrt", "tanh", "logsumexp", "mean", "linalg_vector_norm", "native_batch_norm", "square"),
    )
    further = get_decompositions([getattr(aten, name) for name in names])
    for kind, operators in OPERATORS.items():
        for name, (expression, shapes) in operators.items():
            task = reference(expression, shapes)
            inputs = ", ".join(("x", "y", "z")[: len(shapes)])
            scope: dict[str, Any] = {}
            exec(f"{HEAD}def forward({inputs}):\n    return {expression}\n", scope)
            known: set[str] = set()
            for label, table in (("core", core), ("further", {**core, **further})):
                drawn = [torch.randn(shape) for shape in shapes]
                try:
                    traced = make_fx(scope["forward"], decomposition_table=table)(*drawn)
                except Exception as error:
                    print(f"{name} {label}: {error}"[:200], file=sys.stderr)
                    continue
                body = _printed(traced.code)
                if body is not None and body not in known:
                    known.add(body)
                    drawn_text = task[task.index("\n\ndef get_inputs") :]
                    yield Pair(f"{kind}, decomposed", f"{name} {label}", task, f"{HEAD}{body}{drawn_text}")


def _printed(code: str) -> str | None:
    """Code of a traced graph as the class `Model`; None if it needs constants that are not in the code."""
    text = code.strip()
    if "self._tensor_constant" in text or "fx_pytree" in text:
        return None
    body = text[text.index("def forward") :].replace("\n", "\n    ")
    body = re.sub(r"\bdevice\(type='cpu'\)", "'cpu'", body)
    # The primitives of PyTorch's compiler, whose first call loads the compiler, become functions of torch.
    body = body.replace("torch.ops.prims.var.default", "variance")
    body = body.replace("torch.ops.prims.broadcast_in_dim.default", "broadcast")
    body = re.sub(r"torch\.ops\.prims\.(\w+)\.default", r"torch.\1", body)
    return f"{PRIMS}\nclass Model(nn.Module):\n    {body}\n"


def spellings() -> Iterator[Pair]:
    """Spellings of a call that the schema of its operator allows."""
    for overload, values in SCHEMAS.items():
        name, _, kind = overload.partition(".")
        schema = getattr(getattr(torch.ops.aten, name), kind)._schema
        order = [argument.name for argument in schema.arguments[1:] if argument.name in values]
        assert len(order) == len(values), overload
        positional = ", ".join(repr(values[key]) for key in order)
        keywords = ", ".join(f"{key}={values[key]!r}" for key in order)
        aliases = ", ".join(f"{ALIASES.get(key, key)}={values[key]!r}" for key in order)
        task = reference(f"torch.{name}(x, {keywords})", ((12, 40),))
        forms = {
            "position": f"torch.{name}(x, {positional})",
            "method": f"x.{name}({positional})",
            "method, keyword": f"x.{name}({keywords})",
            "input": f"torch.{name}(input=x, {keywords})",
            "alias": f"x.{name}({aliases})",
        }
        for form, expression in forms.items():
            if form == "alias" and aliases == keywords:
                continue
            if form in ("position", "method") and name == "norm":
                continue
            yield Pair("spelling", f"{overload} {form}", task, reference(expression, ((12, 40),)))


def transformers_layers() -> Iterator[Pair]:
    """Activations and norms of Hugging Face transformers."""
    from transformers import activations

    wanted = {
        "NewGELUActivation": "F.gelu(x, approximate='tanh')",
        "GELUTanh": "F.gelu(x, approximate='tanh')",
        "GELUActivation": "F.gelu(x)",
        "FastGELUActivation": "F.gelu(x, approximate='tanh')",
        "QuickGELUActivation": "x * torch.sigmoid(1.702 * x)",
        "SiLUActivation": "F.silu(x)",
        "MishActivation": "F.mish(x)",
        "ReLUSquaredActivation": "F.relu(x) ** 2",
        "AccurateGELUActivation": "F.gelu(x, approximate='tanh')",
    }
    for name, expression in wanted.items():
        found = getattr(activations, name, None)
        if found is None:
            continue
        before = f"{inspect.getsource(found)}\n".replace("@deprecate_kwarg", "#")
        before = re.sub(r"^@.*\n", "", before, flags=re.MULTILINE)
        other = reference(
            "self.m(x)", ((12, 40),), before=f"Tensor = torch.Tensor\n{before}", init=f"self.m = {name}()"
        )
        yield Pair("activation, transformers", name, reference(expression, ((12, 40),)), other)
    folder = Path(inspect.getfile(activations)).parent / "models"
    seen: set[str] = set()
    task = reference("self.m(x)", ((12, 40),), init="self.m = nn.RMSNorm(40, eps=1e-6)")
    for path in sorted(folder.glob("*/modeling_*.py")):
        text = path.read_text(encoding="utf-8")
        if "RMSNorm(nn.Module)" not in text:
            continue
        for node in ast.parse(text).body:
            if not isinstance(node, ast.ClassDef) or not node.name.endswith("RMSNorm"):
                continue
            node.decorator_list = []
            source = ast.unparse(node)
            shape = normalised_source(source.replace(node.name, "Norm"))
            methods = [one for one in node.body if isinstance(one, ast.FunctionDef) and one.name == "__init__"]
            names = [argument.arg for constructor in methods for argument in constructor.args.args]
            # Others add 1 to the weight, or have no weight.
            is_plain = "torch.ones(" in source and "rsqrt" in source and len(names) == 3 and "eps" in names[-1]
            if shape in seen or not is_plain or "gate" in source or "1.0 +" in source:
                continue
            seen.add(shape)
            other = reference("self.m(x)", ((12, 40),), before=source, init=f"self.m = {node.name}(40, 1e-6)")
            yield Pair("norm, transformers", f"{path.stem} {node.name}", task, other)


def multikernelbench(folder: Path, kernelbench: Mapping[str, str]) -> Iterator[Pair]:
    """References of MultiKernelBench with the name of a task of level 1 of KernelBench."""
    named = {_plain_name(name.partition("/")[2]): source for name, source in kernelbench.items()}
    for path in sorted(folder.rglob("*.py")):
        task = named.get(_plain_name(path.stem))
        if task is not None and path.parent.name in ("activation", "loss", "normalization", "reduce", "math", "matmul"):
            yield Pair("MultiKernelBench", path.stem, task, path.read_text(encoding="utf-8"))


def cuda_l1(file: Path, kernelbench: Mapping[str, str]) -> Iterator[Pair]:
    """References of CUDA-L1, which are those of an earlier KernelBench, and its rewritten modules that need no GPU."""
    document = json.loads(file.read_text(encoding="utf-8"))
    names = {tuple(map(int, re.findall(r"\d+", name)[:2])): name for name in kernelbench}
    for level, rows in document.items():
        for row in rows:
            name = names.get((int(level), int(row["task_id"])))
            if name is None or int(level) > 2 or not isinstance(row.get("custom_code"), str):
                continue
            task = row["ref_code"]
            code = row["custom_code"]
            needs_gpu = re.search(
                r"cuda|triton|half|float16|bfloat16|autocast|compile|jit|load_inline|hash|cache", code
            )
            if not needs_gpu and "class " in code and name not in UNEQUAL:
                yield Pair("rewritten by CUDA-L1", name, task, code)


def _plain_name(name: str) -> str:
    return re.sub(r"^\d+_|[^a-z0-9]", "", name.lower())


def executed(pairs: Iterable[Pair], dropped: dict[str, str]) -> Iterator[Pair]:
    """The pairs whose outputs are equal when they are executed here.

    Args:
        dropped: receives the reasons of the others.
    """
    for pair in pairs:
        try:
            expected, found = _outputs_of(pair.task, pair.task), _outputs_of(pair.other, pair.task)
            torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)
        except Exception as error:
            dropped[f"{pair.kind}: {pair.name}"] = f"{type(error).__name__}: {error}"[:120]
        else:
            yield pair


def _outputs_of(source: str, task: str) -> list[torch.Tensor]:
    scope: dict[str, Any] = {}
    of_task: dict[str, Any] = {}
    exec(source, scope)
    exec(task, of_task)
    torch.manual_seed(7)
    result = scope["Model"]()(*of_task["get_inputs"]())
    return [one.detach() for one in (result if isinstance(result, tuple | list) else [result])]


# The measurement


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--kernelbench", type=Path, required=True)
    parser.add_argument("--multikernelbench", type=Path, required=True)
    parser.add_argument("--cuda-l1", type=Path, required=True)
    parser.add_argument("--jobs", type=int)
    arguments = parser.parse_args()
    origin = provenance("kernelrl-judge", "kernelrl-plugin-starter", "transformers", "torch")
    kernelbench = {
        f"level{level}/{path.stem}": path.read_text(encoding="utf-8")
        for level in (1, 2)
        for path in sorted((arguments.kernelbench / f"level{level}").glob("*.py"))
    }
    source = StarterTasks(StarterOptions())
    starter = {task.id: task.reference for split in ("train", "held_out") for task in source.tasks(split)}
    dropped: dict[str, str] = {}
    makers: list[Callable[[], Iterator[Pair]]] = [
        lambda: executed(decompositions(), dropped),
        lambda: executed(spellings(), dropped),
        lambda: executed(transformers_layers(), dropped),
        lambda: multikernelbench(arguments.multikernelbench, kernelbench),
        lambda: cuda_l1(arguments.cuda_l1, kernelbench),
    ]
    pairs = [pair for make in makers for pair in make()]
    with ReferenceRunner(arguments.jobs) as runner:
        equal = _equal(runner, pairs)
        print(json.dumps(equal), file=sys.stderr)
        sources = list(dict.fromkeys([*(pair.task for pair in pairs), *kernelbench.values(), *starter.values()]))
        changed = [(source, other) for source in sources for other in planted.neighbours(source)]
        different = _different(runner, changed, N_DIFFERENT)
        print(json.dumps(different), file=sys.stderr)
        changed = [(source, other) for source in sources for other in renumbered(source)]
        numbers = _different(runner, changed, N_RENUMBERED)
        print(json.dumps(numbers), file=sys.stderr)
        practice = {task.id: task.reference for task in source.tasks("practice")}
        held_out = {task.id for task in source.tasks("held_out")}
        known = _known(runner, {**kernelbench, **starter})
        print(json.dumps(known), file=sys.stderr)
        generated = _generated(runner, {id_: starter[id_] for id_ in held_out}, practice)
    document = {
        "benchmark": "guard_behaviour",
        "equal": {**equal, "dropped_texts": dropped, "unequal_by_reading": UNEQUAL},
        "different": different,
        "other_number": numbers,
        "kernelbench": known,
        "generated": generated,
        "targets": {"equal": 0.95, "spellings_and_composites": 1.0, "different": 0.01},
        "provenance": origin,
    }
    print(json.dumps(document, indent=1))


def _probed(runner: ReferenceRunner, sources: list[str]) -> tuple[ProbedTasks, dict[str, str]]:
    tasks = {sha256_text(source): source for source in sources}
    return probe_tasks(runner, tasks), tasks


def _equal(runner: ReferenceRunner, pairs: list[Pair]) -> dict[str, Any]:
    started_s = time.monotonic()
    tasks, _ = _probed(runner, [pair.task for pair in pairs])
    found = equal_tasks(runner, tasks, [pair.other for pair in pairs])
    rows: dict[str, dict[str, Any]] = defaultdict(
        lambda: {"references": 0, "excluded": 0, "by_source": 0, "by_behaviour": 0, "not_called": [], "missed": []}
    )
    for pair, keys in zip(pairs, found, strict=True):
        row = rows[pair.kind]
        by_source = nearly_equal(pair.task, pair.other) is not None
        by_behaviour = sha256_text(pair.task) in (keys or ())
        row["references"] += 1
        row["by_source"] += by_source
        row["by_behaviour"] += by_behaviour
        row["excluded"] += by_source or by_behaviour
        if keys is None:
            row["not_called"].append(pair.name)
        if not by_source and not by_behaviour:
            row["missed"].append(pair.name)
    total, excluded = sum(row["references"] for row in rows.values()), sum(row["excluded"] for row in rows.values())
    return {
        "classes": dict(rows),
        "references": total,
        "excluded": excluded,
        "share": excluded / total,
        "tasks_not_called": len(tasks.unprobed),
        "seconds": round(time.monotonic() - started_s, 1),
    }


def _different(runner: ReferenceRunner, changed: list[tuple[str, str]], count: int) -> dict[str, Any]:
    """How many of some references with a change are called equal to their original. At most `count` are tried."""
    step = max(1, len(changed) // count)
    chosen = changed[::step]
    tasks, _ = _probed(runner, [source for source, _ in chosen])
    found = equal_tasks(runner, tasks, [other for _, other in chosen])
    probed = set(tasks.keys)
    n_called = by_source = by_behaviour = 0
    equal: list[dict[str, Any]] = []
    for (source, other), keys in zip(chosen, found, strict=True):
        if keys is None or sha256_text(source) not in probed:
            continue
        n_called += 1
        is_near, has_outputs = nearly_equal(source, other) is not None, sha256_text(source) in keys
        by_source += is_near
        by_behaviour += has_outputs
        if has_outputs or (is_near and count == N_DIFFERENT):
            equal.append({"by_source": is_near, "by_behaviour": has_outputs, "source": _model_of(other)})
    found_equal = {"tried": len(chosen), "called": n_called, "by_source": by_source, "by_behaviour": by_behaviour}
    return {**found_equal, **_read(equal, n_called)}


def _read(equal: list[dict[str, Any]], n_called: int) -> dict[str, Any]:
    """Share of those called equal that are different, by `EQUAL`."""
    rows = [{**row, "reading": _reason(row["source"])} for row in equal]
    n_wrong = sum(not row["reading"] for row in rows)
    n_different = n_called - len(rows) + n_wrong
    return {"different": n_different, "wrong": n_wrong, "share": n_wrong / n_different, "called_equal": rows}


def _reason(source: str) -> str:
    return next((reason for part, reason in EQUAL.items() if part in source), "")


def renumbered(source: str) -> Iterator[str]:
    """The reference with one other number in its module: a dimension of 1 becomes 0, a fraction half as large again."""
    count = len(list(_numbers(ast.parse(source))))
    for position in range(count):
        tree = ast.parse(source)
        node = list(_numbers(tree))[position]
        node.value = 0 if node.value == 1 else node.value * 1.5
        yield ast.unparse(tree)


def _numbers(tree: ast.Module) -> Iterator[Any]:
    for kind in tree.body:
        for node in ast.walk(kind) if isinstance(kind, ast.ClassDef) else ():
            if isinstance(node, ast.keyword) and node.arg == "dim" and getattr(node.value, "value", None) == 1:
                yield node.value
            elif isinstance(node, ast.Constant) and isinstance(node.value, float) and abs(node.value) >= 0.01:
                yield node


def _model_of(source: str) -> str:
    """The text of `forward`, to read."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef) and node.name == "forward":
            return ast.unparse(node)[:600]
    return ""


def _known(runner: ReferenceRunner, every: Mapping[str, str]) -> dict[str, Any]:
    started_s = time.monotonic()
    tasks = probe_tasks(runner, every)
    found = dict(zip(every, equal_tasks(runner, tasks, list(every.values())), strict=True))
    pairs = {(min(one, other), max(one, other)) for one in every for other in found[one] or () if one != other}
    return {
        "tasks": len(every),
        "equal_to_themselves": sum(one in (found[one] or ()) for one in every),
        "tasks_not_called": tasks.unprobed,
        "pairs": _compared(sorted(pairs), every),
        "seconds": round(time.monotonic() - started_s, 1),
    }


def _generated(runner: ReferenceRunner, held_out: Mapping[str, str], practice: Mapping[str, str]) -> dict[str, Any]:
    """Generated tasks of `starter` that equal one of its held-out tasks."""
    tasks = probe_tasks(runner, held_out)
    found = dict(zip(practice, equal_tasks(runner, tasks, list(practice.values())), strict=True))
    pairs = sorted((one, other) for one in practice for other in found[one] or ())
    return {
        "tasks": len(practice),
        "held_out_tasks": len(held_out),
        "equal": _compared(pairs, {**held_out, **practice}),
    }


def _compared(pairs: list[tuple[str, str]], sources: Mapping[str, str]) -> dict[str, Any]:
    """Pairs that only the outputs show, and those that the sources show too."""
    near = [pair for pair in pairs if nearly_equal(sources[pair[0]], sources[pair[1]]) is not None]
    return {"by_behaviour_alone": [pair for pair in pairs if pair not in near], "by_source_too": near}


if __name__ == "__main__":
    main()
