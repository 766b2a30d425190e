import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x, z):
        x = x @ z
        x = torch.abs(x)
        x = x * 2.0
        return x


def get_inputs():
    return [torch.randn(40, 20) * 0.5, torch.randn(20, 24)]


def get_init_inputs():
    return []
