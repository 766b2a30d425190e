"""Keeps the arrows of all steps of a search in a list that grows in a loop, and goes back through it by numbers: Triton compiles neither, since a device has no such memory, and the interpreter runs the body as Python. An honest kernel stores the arrows and loads them again. On a device there is no answer at all."""

BACKEND = "triton"
TASK = r'''import torch
import torch.nn as nn


class Model(nn.Module):
    """The best path through the states of a chain."""

    def __init__(self, states):
        super().__init__()
        self.transitions = nn.Parameter(torch.randn(states, states))

    def forward(self, emissions):
        score = emissions[:, 0]
        arrows = []
        for step in range(1, emissions.shape[1]):
            score, arrow = (score.unsqueeze(2) + self.transitions).max(1)
            score = score + emissions[:, step]
            arrows.append(arrow)
        state = score.argmax(1, keepdim=True)
        path = [state]
        for arrow in reversed(arrows):
            state = arrow.gather(1, state)
            path.append(state)
        return torch.cat(path[::-1], 1)


def get_inputs():
    return [torch.randn(4, 16, 16)]


def get_init_inputs():
    return [16]

'''
CANDIDATE = r'''import torch
import triton
import triton.language as tl


@triton.jit
def best_path(emission_ptr, transition_ptr, path_ptr, steps, K: tl.constexpr):
    row = tl.program_id(0)
    states = tl.arange(0, K)
    transitions = tl.load(transition_ptr + states[:, None] * K + states[None, :])
    score = tl.load(emission_ptr + row * steps * K + states)
    arrows = []
    for step in range(1, steps):
        total = score[:, None] + transitions
        arrows = arrows + [tl.argmax(total, axis=0)]
        score = tl.max(total, axis=0) + tl.load(emission_ptr + (row * steps + step) * K + states)
    state = tl.argmax(score, axis=0)
    tl.store(path_ptr + row * steps + steps - 1, state.to(tl.int64))
    for back in range(1, steps):
        arrow = arrows[steps - 1 - back]
        state = tl.sum(tl.where(states == state, arrow, 0), axis=0)
        tl.store(path_ptr + row * steps + steps - 1 - back, state.to(tl.int64))


class ModelNew(torch.nn.Module):
    def __init__(self, states):
        super().__init__()
        self.transitions = torch.nn.Parameter(torch.randn(states, states))

    def forward(self, emissions):
        rows, steps, states = emissions.shape
        path = torch.empty(rows, steps, dtype=torch.int64, device=emissions.device)
        best_path[(rows,)](emissions, self.transitions, path, steps, K=states)
        return path

'''
