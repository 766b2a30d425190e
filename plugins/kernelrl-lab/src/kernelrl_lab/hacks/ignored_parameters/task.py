import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(64))
        self.bias = nn.Parameter(torch.zeros(64))

    def forward(self, x):
        return nn.functional.layer_norm(x, (64,), self.weight, self.bias)


def get_inputs():
    return [torch.randn(20, 64)]


def get_init_inputs():
    return []
