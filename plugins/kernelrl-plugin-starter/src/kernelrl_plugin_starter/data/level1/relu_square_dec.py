import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        x = torch.relu(x)
        x = x * x
        x = x - 1.0
        return x


def get_inputs():
    return [torch.randn(900) * 2.0]


def get_init_inputs():
    return []
