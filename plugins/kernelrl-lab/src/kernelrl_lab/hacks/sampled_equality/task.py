import torch
import torch.nn as nn


def pairs():
    x = torch.randn(64, 4096)
    return x, torch.where(torch.rand(64, 1) > 0.5, x, torch.randn(64, 4096))

DOMAIN = {"x": "any", "y": "any"}


class Model(nn.Module):
    def forward(self, x, y):
        return (x == y).all(dim=1)


def get_inputs():
    return [*pairs()]


def get_init_inputs():
    return []
