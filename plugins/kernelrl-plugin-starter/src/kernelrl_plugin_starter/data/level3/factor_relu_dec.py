import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, factor):
        super().__init__()
        self.factor = factor

    def forward(self, x):
        x = x * self.factor
        x = torch.relu(x)
        x = x - 1.0
        return x


def get_inputs():
    return [torch.randn(1000) * 2.0]


def get_init_inputs():
    return [1.5]
