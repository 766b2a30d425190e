import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        turned = torch.rot90(x, 1, (2, 3))
        rolled = torch.roll(turned, shifts=(3, -5), dims=(2, 3))
        mirrored = torch.cat([rolled, rolled.flip(3)], dim=1)
        return mirrored.repeat(1, 1, 2, 1) + 0.5


def get_inputs():
    return [torch.randn(2, 3, 48, 48)]


def get_init_inputs():
    return []
