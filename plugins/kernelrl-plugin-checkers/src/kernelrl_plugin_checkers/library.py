"""Names of operators that compute, of torch and of other libraries, in Python and in C++."""

from __future__ import annotations

import re
from collections.abc import Iterator

from kernelrl_core.api.checkers import EmbeddedSource

__all__ = ["METHODS", "cpp_breaches", "is_layer", "is_library_compute", "without_comments"]

_OPERATORS_TEXT = """
abs acos adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d adaptive_max_pool2d add addbmm addcdiv addcmul
addmm addmv amax amin argmax argmin argsort asin atan avg_pool1d avg_pool2d avg_pool3d baddbmm batch_norm
binary_cross_entropy bincount bmm celu clamp clamp_min clamp_max conv1d conv2d conv3d conv_transpose1d
conv_transpose2d conv_transpose3d convolution cos cosh cosine_similarity cross cross_entropy cross_entropy_loss
cummax cummin cumprod cumsum cudnn_convolution div dot dropout einsum elu embedding erf erfc exp expm1 gelu glu
group_norm gru hardsigmoid hardswish hardtanh histc huber_loss instance_norm interpolate inverse kl_div kthvalue
l1_loss layer_norm leaky_relu lerp linear log log1p log2 log10 log_softmax logcumsumexp logsumexp lstm masked_fill
matmul max max_pool1d max_pool2d max_pool3d maximum mean median min minimum mish mm mode mse_loss mul multiply mv
native_batch_norm native_layer_norm neg nll_loss norm normalize outer pow prelu prod reciprocal relu relu6 rms_norm
round rsqrt scaled_dot_product_attention scatter_add selu sigmoid sign silu sin sinh smooth_l1_loss softmax softplus
softsign sort sqrt square std sub sum tan tanh tensordot threshold topk trapezoid tril triplet_margin_loss triu var
vmap where compile _convolution _scaled_mm _softmax gemm bgemm gemv gemm_and_bias scaled_gemm
"""
_OPERATORS = frozenset(_OPERATORS_TEXT.split())
_METHODS_TEXT = """
addmm baddbmm bmm cumprod cumsum einsum exp expm1 log1p log_softmax logsumexp matmul mm mv relu rsqrt sigmoid
softmax tanh topk
"""
METHODS = frozenset(_METHODS_TEXT.split())
"""Methods of a tensor that compute. Objects of other kinds hardly ever have methods of these names."""
_MOST_FOUND = 20
_NAMESPACES = ("torch", "torch.Tensor", "cupy")
_COMPUTING = ("torch.ops.aten.", "torch.ops.prims.", "torch.linalg.", "torch.special.", "torch.fft.", "torch.sparse.")
_LIBRARIES = ("scipy.", "cupyx.", "jax.", "xformers.", "flash_attn.", "apex.", "torch._inductor.", "torch_tensorrt.")
_FUNCTIONAL = "torch.nn.functional."
_HOLDERS = frozenset(
    ("Parameter", "ParameterList", "ParameterDict", "Module", "ModuleList", "ModuleDict", "Buffer", "Identity")
)
_NOT_CODE = re.compile(r'//[^\n]*|/\*(?:.*?\*/|.*)|R"(\w{0,16})\((?:.*?\)\1"|.*)|"(?:[^"\\\n]|\\.)*+"?', re.DOTALL)
"""Comments and literals. One that is not closed ends with the text, so that a search is linear."""
_CPP_OPERATOR = re.compile(r"\b(?:at|torch|aten)\s*::\s*(?:\w+\s*::\s*){0,4}(\w+)")
_CPP_METHOD = re.compile(rf"(?:\.|->)\s*({'|'.join(sorted(METHODS))})\s*\(")
_VENDOR = re.compile(r"\b(?:cublas|cudnn|cusparse|cusolver|cufft|rocblas|hipblas|miopen|cblas_|dnnl)\w*\s*\(")
_NO_COMPUTE = re.compile(r"\w*(?:Create|Destroy|Set|Get)\w*\s*\(")


def is_library_compute(name: str) -> bool:
    """Whether calling the dotted name computes on tensors with a library."""
    head, _, last = name.rpartition(".")
    if name.startswith(_FUNCTIONAL):
        return last != "pad"
    return (head in _NAMESPACES and last in _OPERATORS) or name.startswith((*_COMPUTING, *_LIBRARIES))


def is_layer(name: str) -> bool:
    """Whether the dotted name is a `torch.nn` class whose instances compute when they are called."""
    head, _, last = name.rpartition(".")
    return head in ("torch.nn", "torch.nn.modules") and last not in _HOLDERS and last[:1].isupper()


def cpp_breaches(piece: EmbeddedSource) -> Iterator[tuple[int, str]]:
    """Line of the candidate, and the name of an operator or of a vendor's library in a text of C++."""
    code = without_comments(piece.source)
    found = [(match.start(), match[1]) for match in _CPP_OPERATOR.finditer(code) if _is_operator(match[1])]
    found += [(match.start(), f"the method {match[1]} of a tensor") for match in _CPP_METHOD.finditer(code)]
    found += [(m.start(), m[0][:-1].strip()) for m in _VENDOR.finditer(code) if not _NO_COMPUTE.fullmatch(m[0])]
    for place, name in sorted(found)[:_MOST_FOUND]:
        yield piece.line + code.count("\n", 0, place), name


def without_comments(source: str) -> str:
    """A text of C++ without comments and literals, with the same lines."""
    return _NOT_CODE.sub(lambda match: "\n" * match[0].count("\n"), source)


def _is_operator(name: str) -> bool:
    return name in _OPERATORS or name.removesuffix("_out").rstrip("_") in _OPERATORS
