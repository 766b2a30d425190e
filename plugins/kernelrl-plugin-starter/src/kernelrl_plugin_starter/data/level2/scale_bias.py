import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.scale = nn.Parameter(torch.randn(n))
        self.bias = nn.Parameter(torch.randn(n))

    def forward(self, x):
        x = x * self.scale
        x = x + self.bias
        return x


def get_inputs():
    return [torch.randn(6, 50) * 2.0]


def get_init_inputs():
    return [50]
