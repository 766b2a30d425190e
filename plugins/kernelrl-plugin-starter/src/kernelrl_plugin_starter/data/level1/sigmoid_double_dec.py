import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        x = torch.sigmoid(x)
        x = x * 2.0
        x = x - 1.0
        return x


def get_inputs():
    return [torch.randn(1000) * 3.0]


def get_init_inputs():
    return []
