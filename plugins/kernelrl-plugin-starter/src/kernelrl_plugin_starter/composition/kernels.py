"""Correct Triton kernels for a problem, written from its parts: a fast, a middling and a slow file.

fast      one kernel, blocks of a good size
middling  two kernels with the intermediate result in memory; for a single part, blocks of a bad size
slow      one kernel with strided access, or with few programs that do one row, or one block, after the other

The names state the intent; the actual order of speed has to be measured.
"""

from __future__ import annotations

import attrs

from kernelrl_plugin_starter.composition.parts import PARTS, Operand, Part, Rows
from kernelrl_plugin_starter.composition.problems import Frame, Problem, frame_of, operands_of

__all__ = ["kernel_files"]

_PROGRAMS: dict[Frame, int] = {"rows": 64, "product": 16}
"""Grid size of a kernel that does its rows or blocks one by one; a GPU runs thousands of programs concurrently."""

_HEAD = "import torch\nimport torch.nn as nn\nimport triton\nimport triton.language as tl\n"


@attrs.frozen
class _Launch:
    """A kernel with the way in which it is launched."""

    name: str
    parts: tuple[Part, ...]
    source: str
    """Name of the tensor that it reads as `x`."""
    target: str
    """Name of the tensor that it writes."""
    block: int
    warps: int
    style: str = ""
    """`strided`, `looped` or empty."""

    @property
    def frame(self) -> Frame:
        """What one program works on."""
        return frame_of(self.parts)

    @property
    def operands(self) -> tuple[Operand, ...]:
        """Further inputs."""
        return operands_of(self.parts)

    @property
    def reduces(self) -> bool:
        """Whether the result has one number for each row."""
        return self.parts[-1].kind == "reduction"


def kernel_files(problem: Problem) -> tuple[str, str, str]:
    """The sources of the fast, the middling and the slow file."""
    parts = problem.composition
    fast = _launch(problem, "kernel", parts, "x", "y")
    middling: tuple[_Launch, ...]
    if len(parts) > 1:
        half = (len(parts) + 1) // 2
        middling = (
            _launch(problem, "first", parts[:half], "x", "t"),
            _launch(problem, "second", parts[half:], "t", "y"),
        )
    else:
        middling = (_badly_sized(fast),)
    slow = attrs.evolve(fast, style="strided" if fast.frame == "flat" else "looped")
    return (_file(problem, (fast,)), _file(problem, middling), _file(problem, (slow,)))


def _launch(problem: Problem, name: str, parts: tuple[Part, ...], source: str, target: str) -> _Launch:
    frame = frame_of(parts)
    if frame == "flat":
        return _Launch(name, parts, source, target, 1024, 4)
    if frame == "product":
        return _Launch(name, parts, source, target, 64, 4)
    launch = _Launch(name, parts, source, target, 0, 1)
    block = 1 << (_columns(problem, launch) - 1).bit_length()
    return attrs.evolve(launch, block=block, warps=max(1, min(8, block // 256)))


def _badly_sized(launch: _Launch) -> _Launch:
    """Blocks that are far too small, or far larger than a row."""
    if launch.frame == "rows":
        return attrs.evolve(launch, block=4 * launch.block, warps=1)
    return attrs.evolve(launch, block=128 if launch.frame == "flat" else 16, warps=1)


def _file(problem: Problem, launches: tuple[_Launch, ...]) -> str:
    kernels = "".join(f"\n\n@triton.jit\n{_kernel(problem, launch)}" for launch in launches)
    lines = [_sizes(problem)]
    for launch in launches:
        lines += [_allocation(problem, launch), _call(problem, launch)]
    arguments = ", ".join(("x", *problem.operands))
    forward = "".join(f"        {line}\n" for line in (*lines, "return y"))
    return f"{_HEAD}{kernels}\n\nclass ModelNew(nn.Module):\n    def forward(self, {arguments}):\n{forward}"


# --- launch -----------------------------------------------------------------------------------------------------------


def _sizes(problem: Problem) -> str:
    return {"flat": "n = x.numel()", "rows": "m, n = x.shape", "product": "m = x.shape[0]"}[problem.frame]


def _allocation(problem: Problem, launch: _Launch) -> str:
    if launch.reduces:
        return f"{launch.target} = torch.empty(m, dtype=x.dtype, device=x.device)"
    if launch.frame == "product":
        return f"{launch.target} = torch.empty(m, {problem.outer}, dtype=x.dtype, device=x.device)"
    return f"{launch.target} = torch.empty_like({launch.source})"


def _call(problem: Problem, launch: _Launch) -> str:
    tensors = [launch.source, *launch.operands, launch.target]
    sizes = [_size_argument(problem, launch)]
    if launch.frame == "rows" and launch.style == "looped":
        sizes.append("m")
    options = [f"BLOCK={launch.block}", f"num_warps={launch.warps}"]
    if launch.frame == "product":
        options = [f"K={problem.columns}", f"N={problem.outer}", *options]
    return f"{launch.name}[({_grid(problem, launch)},)]({', '.join((*tensors, *sizes, *options))})"


def _size_argument(problem: Problem, launch: _Launch) -> str:
    if launch.frame == "flat":
        return "n" if problem.frame == "flat" else f"{launch.source}.numel()"
    if launch.frame == "product":
        return "m"
    return "n" if problem.frame == "rows" else str(_columns(problem, launch))


def _columns(problem: Problem, launch: _Launch) -> int:
    """Columns of what a launch reads as `x`, where it has no matrix product itself."""
    return problem.columns if launch.source == "x" else problem.outer


def _grid(problem: Problem, launch: _Launch) -> str:
    if launch.style == "looped":
        return str(_PROGRAMS[launch.frame])
    if launch.frame == "rows":
        return "m"
    count = _size_argument(problem, launch)
    return f"triton.cdiv({count}, {launch.block})"


# --- kernel -----------------------------------------------------------------------------------------------------------

_BLOCK_OFFSETS = "tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)"
_STRIDED_OFFSETS = "tl.arange(0, BLOCK) * tl.num_programs(0) + tl.program_id(0)"
_ROW_LOOP = "for row in range(tl.program_id(0), m, tl.num_programs(0)):"
_BLOCK_LOOP = "for start in range(tl.program_id(0) * BLOCK, m, tl.num_programs(0) * BLOCK):"


def _kernel(problem: Problem, launch: _Launch) -> str:
    body = {"flat": _flat, "rows": _rows, "product": _product}[launch.frame](problem, launch)
    pointers = [f"{name}_ptr" for name in ("x", *launch.operands, "y")]
    sizes = ["m"] if launch.frame == "product" else ["n"]
    if launch.frame == "rows" and launch.style == "looped":
        sizes.append("m")
    constants = ["K", "N", "BLOCK"] if launch.frame == "product" else ["BLOCK"]
    parameters = (*pointers, *sizes, *(f"{name}: tl.constexpr" for name in constants))
    return f"def {launch.name}({', '.join(parameters)}):\n" + "".join(f"    {line}\n" for line in body)


def _indented(head: str, lines: list[str]) -> list[str]:
    return [head, *(f"    {line}" for line in lines)]


def _steps(problem: Problem, parts: tuple[Part, ...], rows: Rows) -> list[str]:
    return [problem.constant(line, part.name) for part in parts for line in part.kernel(rows)]


def _flat(problem: Problem, launch: _Launch) -> list[str]:
    offsets = _STRIDED_OFFSETS if launch.style == "strided" else _BLOCK_OFFSETS
    return [
        f"offs = {offsets}",
        "mask = offs < n",
        *(f"{name} = tl.load({name}_ptr + offs, mask=mask).to(tl.float32)" for name in ("x", *launch.operands)),
        *_steps(problem, launch.parts, Rows("axis=0", "n", masked=True)),
        "tl.store(y_ptr + offs, x, mask=mask)",
    ]


def _rows(problem: Problem, launch: _Launch) -> list[str]:
    looped = launch.style == "looped"
    places = {"x": "row * n + offs", "z": "row * n + offs", "w": "offs"}
    loads = [
        f"{name} = tl.load({name}_ptr + {places[name]}, mask=mask).to(tl.float32)"
        if name != "s"
        else "s = tl.load(s_ptr + row).to(tl.float32)"
        for name in ("x", *launch.operands)
    ]
    store = "tl.store(y_ptr + row, x)" if launch.reduces else "tl.store(y_ptr + row * n + offs, x, mask=mask)"
    columns = ["offs = tl.arange(0, BLOCK)", "mask = offs < n"]
    work = [*loads, *_steps(problem, launch.parts, Rows("axis=0", "n", masked=True)), store]
    if looped:
        return [*columns, *_indented(_ROW_LOOP, work)]
    return ["row = tl.program_id(0)", *columns, *work]


def _product(problem: Problem, launch: _Launch) -> list[str]:
    place = next(index for index, part in enumerate(launch.parts) if part.kind == "product")
    transposed = launch.parts[place] is PARTS["matmul_t"]
    rest = "mask=i < m, other=0.0).to(tl.float32)"
    loads = {
        "a": f"a = tl.load(a_ptr + {'j * K + k[:, None]' if transposed else 'k[:, None] * N + j'})",
        "z": f"z = tl.load(z_ptr + i * N + j, {rest}",
        "w": "w = tl.load(w_ptr + j).to(tl.float32)",
        "s": f"s = tl.load(s_ptr + i, {rest}",
    }
    axis = "axis=1, keep_dims=True"
    columns = ["k = tl.arange(0, K)", "j = tl.arange(0, N)[None, :]"]
    work = [
        f"x = tl.load(x_ptr + i * K + k[None, :], {rest}",
        *(loads[name] for name in launch.operands),
        *_steps(problem, launch.parts[:place], Rows(axis, "K", masked=False)),
        *_steps(problem, launch.parts[place:], Rows(axis, "N", masked=False)),
        "tl.store(y_ptr + i, x, mask=i < m)" if launch.reduces else "tl.store(y_ptr + i * N + j, x, mask=i < m)",
    ]
    if launch.style == "looped":
        return [*columns, *_indented(_BLOCK_LOOP, ["i = start + tl.arange(0, BLOCK)[:, None]", *work])]
    return [f"i = {_BLOCK_OFFSETS}[:, None]", *columns, *work]
