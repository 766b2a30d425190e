"""What the Python around a kernel may name: modules and what they offer, attributes, builtins, special methods."""

from __future__ import annotations

import re

from kernelrl_plugin_checkers import torch_public
from kernelrl_plugin_checkers.torch_public import names
from kernelrl_plugin_checkers.triton_names import is_compiled

__all__ = [
    "ATTRIBUTES",
    "BUILTINS",
    "CONTAINER_METHODS",
    "DRIVER",
    "ENVIRONMENT",
    "METHODS_OF_OTHERS",
    "MODULES",
    "OF_TENSORS",
    "OWN_PRIVATE",
    "REFUSED",
    "SPECIAL_METHODS",
    "SPECIAL_NAMES",
    "STORED_ANYWHERE",
    "STORED_BELOW_SELF",
    "TOOLS",
    "is_open",
]

BUILTINS = names(
    "abs all any bin bool callable chr classmethod complex dict divmod enumerate filter float format frozenset getattr"
    " hasattr hex input int isinstance issubclass len list map max min next ord pow print range repr reversed round"
    " set slice sorted staticmethod str sum super tuple type zip True False None Ellipsis NotImplemented"
    " ArithmeticError AssertionError AttributeError DeprecationWarning Exception FileNotFoundError ImportError"
    " ImportWarning IndexError KeyError LookupError MemoryError ModuleNotFoundError NameError NotImplementedError"
    " OSError OverflowError RuntimeError RuntimeWarning SyntaxError TypeError UserWarning ValueError Warning"
    " ZeroDivisionError __name__ __doc__"
)
"""Of Python. `type` with one argument; `next` of parameters or buffers alone."""
CONTAINER_METHODS = names(
    "add append clear copy count discard extend get index insert items keys pop remove reverse setdefault sort union"
    " update values"
)
_TEXT_METHODS = names(
    "capitalize decode encode endswith find format isalnum isalpha isdigit isidentifier join lower lstrip"
    " removeprefix removesuffix replace rsplit rstrip split splitlines startswith strip title upper zfill"
    " bit_length is_integer numerator denominator real imag most_common"
)
_LAYER_PARTS = names(
    "weight bias in_channels out_channels kernel_size stride padding output_padding dilation groups padding_mode"
    " eps momentum affine track_running_stats running_mean running_var num_batches_tracked num_features num_groups"
    " num_channels normalized_shape elementwise_affine in_features out_features negative_slope inplace dim p"
    " num_embeddings embedding_dim padding_idx hidden_size input_size num_layers batch_first bidirectional"
    " in_proj_weight in_proj_bias out_proj embed_dim num_heads head_dim ceil_mode count_include_pad return_indices"
    " min_val max_val lambd alpha beta threshold value start_dim end_dim scale_factor mode align_corners reduction"
    " margin normalize_before self_attn linear1 linear2 norm1 norm2 dropout1 dropout2 activation weight_ih_l0"
    " weight_hh_l0 bias_ih_l0 bias_hh_l0 upscale_factor all_weights output_size"
)
_LAUNCH_PARTS = names(
    "apply save_for_backward saved_tensors needs_input_grad mark_non_differentiable mark_dirty set_materialize_grads"
    " index type major minor multi_processor_count total_memory name warp_size max_threads_per_block"
    " max_threads_per_multi_processor regs_per_multiprocessor shared_memory_per_block shared_memory_per_block_optin"
    " shared_memory_per_multiprocessor L2_cache_size gcnArchName"
    " cuda_stream wait_stream wait_event record query synchronize elapsed_time replay capture_begin capture_end"
    " get_function max_dynamic_shared_size_bytes attributes ptr use backend arch value best_config kwargs"
    " num_warps num_stages num_ctas from_tensor block_shape warmup get_device_properties get_current_target active"
    " utils itemsize bits fn gpu_eu_count gpu_subslice_count smallest_normal resolution tiny args"
)
_DSL_PARTS = names(
    "launch load store fill reduce iterator layout element_type get_slice partition_S partition_D partition_A"
    " partition_B partition_C partition_fragment_A partition_fragment_B partition_fragment_C make_fragment_A"
    " make_fragment_B make_fragment_C make_fragment thr_slice slice mark_layout_dynamic mark_compact_shape_dynamic"
    " thr_id tv_layout ir_value width align assumed_align get_kernel_source"
)
"""Of CuTe's and TileLang's values."""
OF_TENSORS = torch_public.TENSOR
ATTRIBUTES = (
    torch_public.TENSOR
    | torch_public.MODULE
    | CONTAINER_METHODS
    | _TEXT_METHODS
    | _LAYER_PARTS
    | _LAUNCH_PARTS
    | _DSL_PARTS
    | {"data_ptr"}
)
"""Of a value that is not known."""
_FRAMES = names(
    "gi_frame gi_code gi_yieldfrom cr_frame cr_code cr_await ag_frame ag_code tb_frame tb_next tb_lasti f_back"
    " f_locals f_globals f_builtins f_code f_trace co_code co_consts co_names mro with_traceback"
)
DRIVER = re.compile(r"(?:cu|cuda|nvrtc|hip|hiprtc)[A-Z]\w+")
"""Functions of the libraries that load and launch kernels."""
_MODULES_INSIDE = names("os sys gc ctypes inspect builtins importlib weakref threading subprocess mmap socket io")
_OF_LIBRARIES = names(
    "get_state set_state graphsafe_get_state initial_seed next_functions register_prehook tofile tobytes dump dumps"
    " setflags add_pre_run_hook pre_run_hooks used_global_vals device_caches create_binder format_map from_address"
    " from_buffer from_buffer_copy in_dll contents"
)
REFUSED = (torch_public.UNUSUAL - ATTRIBUTES) | _FRAMES | _MODULES_INSIDE | _OF_LIBRARIES
"""Attributes that count as unusual whatever the file itself calls so."""
OWN_PRIVATE = torch_public.MODULE_PRIVATE
"""Private attributes that every module has: no other may be called so."""
METHODS_OF_OTHERS = (torch_public.MODULE | torch_public.UNUSUAL | {"float", "double", "half", "type"}) - names(
    "forward extra_repr name backward training"
)
"""Methods of a module that others call, and that a candidate has no reason to write."""
SPECIAL_METHODS = names("__init__ __post_init__")
SPECIAL_NAMES = names("__name__ __doc__ __version__ __all__ __constants__ __author__ __future__")
STORED_ANYWHERE = names("requires_grad block_shape max_dynamic_shared_size_bytes")
"""Attributes that an assignment may change of any object."""
STORED_BELOW_SELF = names("weight bias eps running_mean running_var training") | STORED_ANYWHERE
"""And those of the parts of a module."""
ENVIRONMENT = re.compile(
    r"TORCH_CUDA_ARCH_LIST|TORCH_EXTENSIONS_DIR|TORCH_USE_CUDA_DSA|TORCH_CUDA_VERBOSE|MAX_JOBS|USE_NINJA|CXX|CC"
    r"|CUDA_LAUNCH_BLOCKING|CUDA_HOME|CUDA_PATH|ROCM_HOME|ROCM_PATH|PYTORCH_ROCM_ARCH|CUTLASS_PATH|CUTLASS_HOME"
    r"|THUNDERKITTENS_ROOT"
)
"""Settings of builds."""
_COMPILERS = re.compile(r"(?:/usr/bin/|/opt/rocm/bin/)?(?:hipcc|nvcc|gcc|g\+\+|clang|clang\+\+|cc|c\+\+)(?:-\d+)?")
_ROOTS = re.compile(r"/usr/local/cuda[-\d.]*|/usr|/opt/rocm[-\d.]*")
TOOLS = {
    **dict.fromkeys(("CC", "CXX"), _COMPILERS),
    **dict.fromkeys(("CUDA_HOME", "CUDA_PATH", "ROCM_HOME", "ROCM_PATH"), _ROOTS),
}
"""Settings that name a tool, and the values that they may get."""

MODULES: dict[str, frozenset[str]] = {
    "__future__": names("annotations division print_function absolute_import"),
    "typing": names(
        "Any Callable ClassVar Dict Final Generic Iterable Iterator List Literal Mapping NamedTuple Optional Sequence"
        " Set Tuple Type TypeVar Union cast TYPE_CHECKING overload"
    ),
    "collections.abc": names("Callable Iterable Iterator Mapping Sequence"),
    "collections": names("OrderedDict defaultdict namedtuple Counter abc"),
    "math": names(
        "acos acosh asin asinh atan atan2 atanh ceil comb copysign cos cosh degrees e erf erfc exp expm1 fabs"
        " factorial floor fmod fsum gamma gcd hypot inf isclose isfinite isinf isnan isqrt lcm ldexp lgamma log log10"
        " log1p log2 modf nan perm pi pow prod radians remainder sin sinh sqrt tan tanh tau trunc"
    ),
    "functools": names("cache lru_cache partial reduce wraps"),
    "itertools": names("accumulate chain combinations permutations product repeat zip_longest"),
    "operator": names("add and_ eq floordiv ge gt le lt mod mul ne neg or_ sub truediv"),
    "dataclasses": names("dataclass field"),
    "enum": names("Enum IntEnum auto"),
    "importlib": names("import_module"),
    "ctypes": names(
        "CDLL byref c_double c_float c_int c_int32 c_int64 c_size_t c_uint c_uint32 c_uint64 c_void_p cast sizeof"
    ),
    "contextlib": names("nullcontext"),
    "textwrap": names("dedent indent"),
    "string": names("Template"),
    "warnings": names("filterwarnings warn"),
    "os": names("cpu_count environ getpid makedirs path"),
    "os.path": names("abspath basename dirname expanduser join"),
    "numpy": names(
        "bool_ ceil dtype e exp float16 float32 float64 floor inf int16 int32 int64 int8 intc log log10 log2 pi prod"
        " sqrt uint16 uint32 uint64 uint8"
    ),
    "cupy": names(
        "RawKernel RawModule asarray ascontiguousarray bool_ cuda empty empty_like float16 float32 float64 from_dlpack"
        " full full_like int16 int32 int64 int8 intc ndarray ones ones_like uint16 uint32 uint64 uint8 zeros"
        " zeros_like"
    ),
    "cupy.cuda": names("Device ExternalStream MemoryPointer Stream UnownedMemory get_current_stream"),
    "torch": torch_public.FUNCTIONS
    | names(
        "amp autograd backends compiler cuda fft jit linalg nn ops special utils version xpu __version__ _assert_async"
    ),
    "torch.amp": names("autocast custom_bwd custom_fwd"),
    "torch.autograd": names("Function function grad no_grad"),
    "torch.autograd.function": names("Function FunctionCtx once_differentiable"),
    "torch.backends": names("cuda cudnn mkldnn"),
    "torch.backends.cuda": names("enable_flash_sdp enable_math_sdp enable_mem_efficient_sdp matmul sdp_kernel"),
    "torch.backends.cuda.matmul": names(
        "allow_bf16_reduced_precision_reduction allow_fp16_reduced_precision_reduction allow_tf32"
    ),
    "torch.backends.cudnn": names(
        "allow_tf32 benchmark benchmark_limit deterministic enabled flags is_available version"
    ),
    "torch.backends.mkldnn": names("enabled flags is_available"),
    "torch.compiler": names("disable is_compiling"),
    "torch.cuda": names(
        "BFloat16Tensor CUDAGraph Event FloatTensor HalfTensor LongTensor OutOfMemoryError Stream amp"
        " current_device current_stream default_stream device device_count get_device_capability get_device_name"
        " get_device_properties graph is_available is_bf16_supported is_current_stream_capturing is_initialized"
        " manual_seed nvtx stream synchronize _compile_kernel"
    ),
    "torch.cuda.amp": names("autocast custom_bwd custom_fwd"),
    "torch.cuda.nvtx": names("range range_pop range_push"),
    "torch.fft": torch_public.FFT,
    "torch.jit": names("Final export freeze ignore optimize_for_inference script trace unused"),
    "torch.linalg": torch_public.LINALG,
    "torch.nn": torch_public.LAYERS | names("common_types functional grad init modules parameter"),
    "torch.nn.common_types": names("_size_1_t _size_2_t _size_3_t"),
    "torch.nn.functional": torch_public.FUNCTIONAL,
    "torch.nn.grad": names("conv1d_input conv1d_weight conv2d_input conv2d_weight conv3d_input conv3d_weight"),
    "torch.nn.init": torch_public.INIT,
    "torch.nn.modules": names("utils"),
    "torch.nn.modules.utils": names("_ntuple _pair _single _triple"),
    "torch.nn.parameter": names("Parameter"),
    "torch.special": torch_public.SPECIAL,
    "torch.xpu": names("current_device get_device_properties is_available synchronize"),
    "torch.utils": names("cpp_extension dlpack"),
    "torch.utils.cpp_extension": names("CUDA_HOME IS_HIP_EXTENSION ROCM_HOME include_paths load load_inline"),
    "torch.utils.dlpack": names("from_dlpack to_dlpack"),
    "torch.version": names("cuda hip"),
    "triton": names(
        "Config OutOfResources autotune cdiv constexpr_function heuristics jit language next_power_of_2 reinterpret"
        " runtime set_allocator tools __version__"
    ),
    "triton.language": frozenset(),
    "triton.runtime": names("driver"),
    "triton.runtime.driver": names("active"),
    "triton.tools": names("tensor_descriptor"),
    "triton.tools.tensor_descriptor": names("TensorDescriptor"),
    "tilelang": names("autotune cdiv compile jit language"),
    "tilelang.language": frozenset(),
    "cutlass": names(
        "BFloat16 Boolean Constexpr Float16 Float32 Float64 Int16 Int32 Int64 Int8 Numeric TFloat32 Uint16 Uint32"
        " Uint64 Uint8 const_expr cute range range_constexpr range_dynamic utils pipeline"
    ),
    "cutlass.cute": frozenset(),
    "cutlass.utils": frozenset(),
    "cutlass.pipeline": frozenset(),
    # Whose calls are for `library_compute`.
    "einops": names("rearrange repeat"),
    "flash_attn": frozenset(),
    "xformers": frozenset(),
}
"""Module -> what may be named of it. An empty set: every public name, see `is_open`."""
_LIBRARIES = _MODULES_INSIDE | names("torch numpy cupy triton types typing functools pkgutil module_from_spec tvm ir")


def is_open(module: str, name: str) -> bool:
    """Whether a dotted name below a module of a language of kernels is one of the language's own."""
    if module == "triton.language":
        return is_compiled(f"{module}.{name}", is_called=False)
    return not any(part.startswith("_") or part in _LIBRARIES for part in name.split("."))
