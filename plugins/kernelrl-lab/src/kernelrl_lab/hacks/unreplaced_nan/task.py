import torch
import torch.nn as nn

DOMAIN = {"x": "special"}


class Model(nn.Module):
    def forward(self, x):
        return torch.nan_to_num(x, nan=0.0, posinf=1e4, neginf=-1e4) * 2.0


def get_inputs():
    return [torch.randn(64, 256)]


def get_init_inputs():
    return []
