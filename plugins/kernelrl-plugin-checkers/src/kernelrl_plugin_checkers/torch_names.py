"""Which names of torch and cupy compute, and which only allocate, look at or arrange tensors."""

from __future__ import annotations

__all__ = [
    "ALLOCATORS",
    "ARRANGING_METHODS",
    "COMPUTING_METHODS",
    "OPERATORS",
    "REDUCTIONS",
    "TENSOR_METHODS",
    "WRAPPERS",
    "is_computing_module",
    "is_library_compute",
]

_ARRANGING_TEXT = """
arange as_strided as_tensor broadcast_shapes broadcast_tensors broadcast_to cat chunk concat contiguous device
dtype empty empty_like empty_strided expand eye finfo flatten from_dlpack full full_like get_default_dtype iinfo
is_tensor jit movedim narrow no_grad numel inference_mode ones ones_like permute ravel reshape select set_grad_enabled
size split squeeze stack swapaxes t tensor transpose unbind unflatten unsqueeze view_as_real view_as_complex
zeros zeros_like manual_seed Tensor Size float16 float32 float64 bfloat16 half float double int8 int16 int32
int64 uint8 long int bool strided contiguous_format channels_last preserve_format Generator enable_grad
"""
_ARRANGING = frozenset(_ARRANGING_TEXT.split())
_MODULES_WITHOUT_COMPUTE = ("torch.cuda", "torch.utils", "torch.autograd", "torch.library", "torch.version")
_ALLOWED_FUNCTIONS = frozenset({"pad"})
_MODULES_THAT_COMPUTE = ("torch.ops", "torch.linalg", "torch.special", "torch.fft", "torch.sparse")
_LIBRARIES = ("scipy", "cupy_backends", "cupyx", "jax", "xformers", "flash_attn", "apex", "cublas", "numpy.linalg")
_CUPY_ARRANGING_TEXT = """
RawKernel RawModule array asarray ascontiguousarray asnumpy broadcast_to concatenate copyto dtype empty empty_like
expand_dims from_dlpack fromDlpack full full_like get_default_memory_pool get_default_pinned_memory_pool
is_available moveaxis ndarray ones ones_like ravel reshape squeeze stack transpose zeros zeros_like bool_ float16
float32 float64 int8 int16 int32 int64 intc intp uint8 uint16 uint32 uint64 complex64 complex128
"""
_CUPY_ARRANGING = frozenset(_CUPY_ARRANGING_TEXT.split())
_CUPY_LIBRARIES = frozenset(["cub", "cublas", "cufft", "curand", "cusolver", "cusparse", "cutensor", "thrust"])
"""Modules of `cupy.cuda` that compute; the rest of it are devices, streams, events and memory."""
_NUMPY_OF_NUMBERS_TEXT = """
array asarray ascontiguousarray asfortranarray bool_ ceil cos cumsum diff dtype empty empty_like exp float16 float32
float64 floor frombuffer full iinfo finfo int8 int16 int32 int64 intc intp issubdtype log log2 log10 ones power prod
reshape sin sqrt stack transpose uint8 uint16 uint32 uint64 zeros zeros_like arange concatenate from_dlpack isscalar
ndim ndarray result_type can_cast number integer floating tile
"""
_NUMPY_OF_NUMBERS = frozenset(_NUMPY_OF_NUMBERS_TEXT.split())
"""What kernels' launchers do with sizes and constants."""
_HOLDERS = frozenset(
    {"Parameter", "ParameterList", "ParameterDict", "Module", "ModuleList", "ModuleDict", "Buffer", "Identity", "init"}
)

_ALLOCATING = ("empty", "empty_like", "zeros", "zeros_like", "full")
ALLOCATORS = frozenset(
    {f"{library}.{name}" for library in ("torch", "cupy") for name in _ALLOCATING}
    | {"torch.full_like", "torch.empty_strided", "cupy.full_like", "cupy.ndarray"}
)
_ARRANGING_METHODS_TEXT = """
clone contiguous detach expand flatten float half permute reshape squeeze t to transpose unsqueeze view
"""
ARRANGING_METHODS = frozenset(_ARRANGING_METHODS_TEXT.split())
REDUCTIONS = frozenset({"sum", "mean"})
WRAPPERS = ("cupy.asarray", "cupy.ascontiguousarray", "cupy.from_dlpack", "torch.as_tensor", "torch.from_dlpack")
"""Functions that give an array of one library the looks of another's."""

_COMPUTING_METHODS_TEXT = """
abs acos add add_ addbmm addcdiv addcmul addmm addmv amax amin aminmax argmax argmin argsort asin atan baddbmm
bmm clamp clamp_ clamp_max clamp_min cos cosh cross cummax cummin cumprod cumsum diff dist div div_ dot einsum
erf erfc exp exp_ expm1 fmod gelu hardtanh inverse kthvalue leaky_relu lerp log log1p log2 log10 log_softmax
logcumsumexp logsumexp masked_fill masked_fill_ matmul max maximum mean median min minimum mm mode mul mul_
multiply mv neg norm pow prod reciprocal relu relu_ renorm round rsqrt sigmoid sigmoid_ sign silu sin sinh
softmax softplus sort sqrt square std sub sub_ subtract sum tan tanh tanh_ topk tril triu trunc var where
"""
COMPUTING_METHODS = frozenset(_COMPUTING_METHODS_TEXT.split())
"""Methods of a tensor that compute. The names that plain Python objects have, too (`index`, `copy`), are left out."""

TENSOR_METHODS = frozenset(
    {"addmm", "baddbmm", "bmm", "conv2d", "cumprod", "cumsum", "gelu", "log_softmax", "logsumexp"}
    | {"matmul", "mm", "relu", "sigmoid", "softmax", "tanh", "topk"}
)
"""Methods of a tensor that compute, and that nothing else in C++ is likely to have."""

_OPERATORS_TEXT = """
abs acos adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d adaptive_max_pool2d add addbmm addcdiv addcmul
addmm addmv addr alpha_dropout amax amin argmax argmin argsort asin atan avg_pool1d avg_pool2d avg_pool3d baddbmm
batch_norm binary_cross_entropy bmm celu clamp conv1d conv2d conv3d conv_transpose1d conv_transpose2d
conv_transpose3d convolution cos cosh cosine_similarity cross_entropy cross_entropy_loss cumprod cumsum
cudnn_convolution div dot dropout einsum elu embedding erf exp fft_fft gelu glu group_norm gru hardsigmoid hardswish
hardtanh
huber_loss instance_norm interpolate kl_div kthvalue l1_loss layer_norm leaky_relu linear log log_softmax logsumexp
lstm masked_fill matmul max max_pool1d max_pool2d max_pool3d median min mish mm mse_loss mul mv native_batch_norm
native_layer_norm nll_loss norm normalize pow prelu prod reciprocal relu relu6 rms_norm rsqrt
scaled_dot_product_attention selu sigmoid sign silu sin sinh smooth_l1_loss softmax softplus softsign sort sqrt std
sub tan tanh tensordot threshold topk tril triplet_margin_loss triu var where _convolution _scaled_mm _softmax
gemm bgemm gemv gemm_and_bias scaled_gemm
"""
OPERATORS = frozenset(_OPERATORS_TEXT.split())
"""Operators of torch by name, without the endings of their variants."""


def is_library_compute(name: str) -> bool:
    """Whether calling the dotted name computes on tensors with a library.

    `torch.nn` classes count when they are called as functions of tensors, which the caller finds out.
    """
    head, _, last = name.rpartition(".")
    if name in ("torch.compile", "torch.vmap"):
        return True
    if name.startswith(_LIBRARIES):
        return True
    if name.startswith("cupy."):
        return _is_cupy_compute(name.removeprefix("cupy."))
    if head == "numpy":
        return last not in _NUMPY_OF_NUMBERS
    if head == "torch":
        return last not in _ARRANGING
    if head == "torch.nn.functional":
        return last not in _ALLOWED_FUNCTIONS
    if head == "torch.Tensor":
        return last in COMPUTING_METHODS
    return name.startswith(_MODULES_THAT_COMPUTE) and not name.startswith(_MODULES_WITHOUT_COMPUTE)


def _is_cupy_compute(name: str) -> bool:
    first, _, rest = name.partition(".")
    if first == "cuda":
        return rest.partition(".")[0] in _CUPY_LIBRARIES
    if first == "ndarray":
        return rest in COMPUTING_METHODS
    return first not in _CUPY_ARRANGING


def is_computing_module(name: str) -> bool:
    """Whether the dotted name is a `torch.nn` class whose instances compute when they are called."""
    head, _, last = name.rpartition(".")
    return head in ("torch.nn", "torch.nn.modules") and last not in _HOLDERS and last[:1].isupper()
