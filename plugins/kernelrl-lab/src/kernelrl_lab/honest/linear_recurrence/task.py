import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, a, b):
        h, states = torch.zeros_like(b[:, 0]), []
        for t in range(b.shape[1]):
            h = a[:, t] * h + b[:, t]
            states.append(h)
        return torch.stack(states, dim=1)


def get_inputs():
    return [torch.rand(2, 16, 8), torch.randn(2, 16, 8)]


def get_init_inputs():
    return []
