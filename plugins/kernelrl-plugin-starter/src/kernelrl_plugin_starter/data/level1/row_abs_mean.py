import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        x = torch.abs(x)
        x = x.mean(dim=1)
        return x


def get_inputs():
    return [torch.randn(6, 45) * 2.0]


def get_init_inputs():
    return []
