import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(64))
        self.bias = nn.Parameter(torch.randn(64))

    def forward(self, x):
        return torch.relu(x * self.weight + self.bias)


def get_inputs():
    return [torch.randn(20, 64)]


def get_init_inputs():
    return []
