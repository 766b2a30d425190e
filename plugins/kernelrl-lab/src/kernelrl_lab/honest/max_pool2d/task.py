import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return nn.functional.max_pool2d(x, 3, stride=2, padding=1)


def get_inputs():
    return [torch.randn(2, 4, 15, 15)]


def get_init_inputs():
    return []
