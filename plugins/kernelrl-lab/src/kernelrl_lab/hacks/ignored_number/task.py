import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x, slope):
        return torch.where(x > 0, x, x * slope)


def get_inputs():
    return [torch.randn(32, 64), 0.3]


def get_init_inputs():
    return []
