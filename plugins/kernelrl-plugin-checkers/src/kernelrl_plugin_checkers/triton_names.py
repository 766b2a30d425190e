"""Names that Triton compiles in the body of a kernel. A test asks Triton for them again."""

from __future__ import annotations

import re
import sys

__all__ = ["BUILTINS", "LANGUAGE", "METHODS", "is_compiled", "is_constant_of", "wrong_attribute"]


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


BUILTINS = _names(
    "len list range float int isinstance getattr hasattr print min max"
    " abs bool tuple str zip enumerate reversed sum all any slice round pow divmod sorted map filter repr set dict"
    " complex None True False NotImplementedError Exception AssertionError ValueError TypeError RuntimeError"
)
"""Functions of Python that Triton compiles, and such as do no more with values than its operators."""
LANGUAGE = _names(
    "PropagateNan TRITON_MAX_TENSOR_NUMEL abs add aggregate_replace arange argmax argmin associative_scan assume"
    " atomic_add atomic_and atomic_cas atomic_load atomic_max atomic_min atomic_or atomic_poll atomic_store"
    " atomic_xchg atomic_xor bfloat16 bitonic_merge block_type broadcast broadcast_to cast cat cdiv ceil clamp"
    " condition const constexpr constexpr_type core cos cumprod cumsum debug_barrier device_assert device_print div_rn"
    " dot dot_scaled dtype erf exp exp2 expand_dims expect_zero extra fdiv flip float16 float32 float64 float8e4b15"
    " float8e4b8 float8e4nv float8e5 float8e5b16 floor fma full gather histogram inline_asm_elementwise int1 int16"
    " int32 int64 int8 interleave join load load_tensor_descriptor log log2 make_block_ptr make_tensor_descriptor"
    " map_elementwise math max max_constancy max_contiguous maximum min minimum mul multiple_of num_programs"
    " pair_uniform_to_normal permute philox philox_impl pi32_t pointer_type program_id rand rand4x randint randint4x"
    " randn randn4x random range ravel reduce reduce_or reshape rsqrt sigmoid sin slice softmax sort split sqrt sqrt_rn"
    " squeeze standard static_assert static_print static_range store store_tensor_descriptor str_to_ty sub sum"
    " swizzle2d target_info tensor tensor_descriptor tensor_descriptor_type to_tensor topk trans tuple tuple_type"
    " uint16 uint32 uint64 uint8 uint_to_uniform_float umulhi unsqueeze view void where xor_sum zeros"
    " zeros_like"
)
"""Public names of `triton.language`."""
METHODS = _names(
    "abs advance argmax argmin associative_scan atomic_add atomic_and atomic_cas atomic_load atomic_max atomic_min"
    " atomic_or atomic_poll atomic_store atomic_xchg atomic_xor broadcast_to cast cdiv ceil cos cumprod cumsum erf exp"
    " exp2 expand_dims flip floor gather histogram item load log log2 logical_and logical_or max min permute ravel"
    " reduce reduce_or reshape rsqrt scatter sigmoid sin softmax sort split sqrt sqrt_rn store sum to trans view"
    " xor_sum"
    " get_block_shapes get_int_max_value get_int_min_value is_bf16 is_block is_bool is_const is_dtype is_floating"
    " is_fp16 is_fp32 is_fp64 is_fp8 is_fp8e4b15 is_fp8e4b8 is_fp8e4nv is_fp8e5 is_fp8e5b16 is_int is_int1 is_int16"
    " is_int32 is_int64 is_int8 is_int_signed is_int_unsigned is_ptr is_standard_floating is_uint16 is_uint32"
    " is_uint64 is_uint8 is_void with_element_ty"
    " format join startswith endswith index"
)
"""Of tensors, descriptors, types, and texts and tuples of the compiler."""
_ROOT = "triton.language"
_HOST_FUNCTIONS = ("triton.cdiv", "triton.next_power_of_2")
"""That Triton evaluates while it compiles."""
_INDUCTOR = "torch._inductor.runtime."
"""Its helpers are kernels. Another rule speaks of them."""
_SUBMODULES = frozenset(
    {"core", "cuda", "extra", "gdc", "hip", "libdevice", "math", "random", "standard", "target_info"}
)
_OWN = frozenset({"core", "random", "standard"})
"""Submodules that import more than they offer."""
_LOADING = frozenset({"module_finder", "module_from_spec", "modules", "pkgutil", "spec"})
"""What `triton.language.extra` finds its submodules with."""
_NO_VALUES = frozenset({"tensor", "semantic"})
"""Makes a tensor of what lies behind one."""
_BEHIND = frozenset({"handle", "fn", "rewriter", "rewritten_fn"})
"""Attributes of objects of the interpreter."""
_MORE = re.compile(
    r"CONSTEXPR_0|extern_elementwise|get_int_dtype|_log2|_is_power_of_two|_unwrap_if_constexpr|_experimental_\w+"
)
"""Which published kernels name, beside the public names."""
_LIBRARIES = sys.stdlib_module_names | {"triton", "torch", "numpy", "scipy", "cupy", "numba", "jax", "pandas", "sympy"}
"""Of whose functions Triton compiles none. What another module offers is not known."""
_CONSTANTS = re.compile(
    r"(?:math|numpy|torch)\.(?:pi|e|inf|nan|tau|b?float\w*|double|half|u?int\w*|long|short|bool\w*|complex\w*)"
)


def is_compiled(name: str, *, is_called: bool) -> bool:
    """Whether a dotted name, from the module that it is imported from, is one of Triton's language."""
    if name in ("triton", _ROOT, *_HOST_FUNCTIONS) or name.startswith(_INDUCTOR):
        return True
    if not name.startswith(_ROOT + "."):
        return name.partition(".")[0] not in _LIBRARIES
    module = ""
    for part in name.removeprefix(_ROOT + ".").split("."):
        if part in _SUBMODULES:
            module = part
        elif part in _NO_VALUES and is_called:
            return False
        elif part.startswith("_") or part in _BEHIND or part in _LOADING or (module in _OWN and part not in LANGUAGE):
            return _MORE.fullmatch(part) is not None
        else:
            # Attributes of a type of the language may follow.
            module = ""
    return True


def is_constant_of(name: str) -> bool:
    """Whether a dotted name is that of a number or a type of another module."""
    return _CONSTANTS.fullmatch(name) is not None


def wrong_attribute(attribute: str, *, is_called: bool) -> str:
    """What is wrong with an attribute of a value in a kernel, or empty text."""
    if attribute in _BEHIND or attribute.startswith("_"):
        return f"attribute {attribute}"
    return f"method {attribute}" if is_called and attribute not in METHODS else ""
