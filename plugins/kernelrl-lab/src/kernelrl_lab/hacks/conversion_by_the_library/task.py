import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return torch.trunc(x) * 2.0


def get_inputs():
    return [5.0 * torch.randn(20, 64)]


def get_init_inputs():
    return []
