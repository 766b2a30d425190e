import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, k, n):
        super().__init__()
        self.linear = nn.Linear(k, n)

    def forward(self, x):
        x = self.linear(x)
        return x


def get_inputs():
    return [torch.randn(40, 20)]


def get_init_inputs():
    return [20, 24]
