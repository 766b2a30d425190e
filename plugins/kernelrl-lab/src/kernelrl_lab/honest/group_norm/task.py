import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.rand(16) + 0.5)
        self.bias = nn.Parameter(torch.randn(16))

    def forward(self, x):
        return nn.functional.group_norm(x, 4, self.weight, self.bias)


def get_inputs():
    return [torch.randn(4, 16, 50)]


def get_init_inputs():
    return []
