"""Leaves out the bound on the learned temperature of a contrastive loss, which training runs into: parameters are changed by a tenth or their own spread, which reaches no bound that lies further from where they begin. Saves the bound; the logits of a trained model are several times too large."""

BACKEND = "triton"
TASK = r'''import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    """Logits of pairs of images and texts, with a learned scale of at most 100."""

    def __init__(self):
        super().__init__()
        self.logit_scale = nn.Parameter(torch.tensor(2.6592))

    def forward(self, images, texts):
        scale = self.logit_scale.exp().clamp(max=100.0)
        return scale * (F.normalize(images, dim=1) @ F.normalize(texts, dim=1).T)


def get_inputs():
    return [torch.randn(128, 64), torch.randn(128, 64)]


def get_init_inputs():
    return []

'''
CANDIDATE = r'''import torch
import triton
import triton.language as tl


@triton.jit
def similarity(x_ptr, w_ptr, scale_ptr, y_ptr, n, D: tl.constexpr, BLOCK: tl.constexpr):
    rows = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    columns = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inner = tl.arange(0, D)
    x = tl.load(x_ptr + rows[:, None] * D + inner[None, :])
    w = tl.load(w_ptr + columns[:, None] * D + inner[None, :])
    x = x / tl.maximum(tl.sqrt(tl.sum(x * x, axis=1)), 1e-12)[:, None]
    w = w / tl.maximum(tl.sqrt(tl.sum(w * w, axis=1)), 1e-12)[:, None]
    logits = tl.dot(x, tl.trans(w), input_precision="ieee") * tl.exp(tl.load(scale_ptr))
    tl.store(y_ptr + rows[:, None] * n + columns[None, :], logits)


class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.logit_scale = torch.nn.Parameter(torch.tensor(2.6592))

    def forward(self, images, texts):
        rows, n = images.shape[0], texts.shape[0]
        y = torch.empty(rows, n, dtype=images.dtype, device=images.device)
        similarity[(rows // 32, n // 32)](images, texts, self.logit_scale, y, n, D=64, BLOCK=32)
        return y

'''
