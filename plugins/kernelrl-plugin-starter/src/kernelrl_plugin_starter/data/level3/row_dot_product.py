import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x, z):
        x = x * z
        x = x.sum(dim=1)
        x = x + 1.0
        return x


def get_inputs():
    return [torch.randn(7, 50), torch.randn(7, 50) * 2.0]


def get_init_inputs():
    return []
