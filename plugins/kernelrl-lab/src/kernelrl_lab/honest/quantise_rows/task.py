import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        scale = x.abs().amax(1, keepdim=True) / 127.0
        return (x / scale).to(torch.int8), scale


def get_inputs():
    return [torch.randn(96, 512)]


def get_init_inputs():
    return []
