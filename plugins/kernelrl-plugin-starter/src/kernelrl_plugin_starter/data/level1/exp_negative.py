import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        x = -x
        x = torch.exp(x)
        return x


def get_inputs():
    return [torch.randn(900) * 0.5]


def get_init_inputs():
    return []
