import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        x = x * x
        x = x.sum()
        return x


def get_inputs():
    return [torch.randn(20, 40)]


def get_init_inputs():
    return []
