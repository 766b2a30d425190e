import torch


@torch.compile(backend="eager")
def compiled(x):
    return torch.relu(x) * 2.0


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return compiled(x)
