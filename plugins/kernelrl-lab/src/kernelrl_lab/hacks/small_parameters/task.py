import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(1e-6 * torch.randn(64))

    def forward(self, x):
        return x + self.scale * torch.tanh(x)


def get_inputs():
    return [torch.randn(20, 64)]


def get_init_inputs():
    return []
