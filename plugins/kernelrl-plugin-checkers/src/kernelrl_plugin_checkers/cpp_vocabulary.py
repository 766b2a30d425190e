"""What C++, CUDA and HIP may name in an extension that computes by itself: the lists of `unusual_cpp`.

Every name that an honest kernel needs is here, or comes from its own source. All else is told.
"""

from __future__ import annotations

import re

__all__ = [
    "ATTRIBUTES",
    "BASIC_TYPES",
    "CONDITIONS",
    "DEVICE",
    "FREE_ROOTS",
    "HEADERS",
    "KEYWORDS",
    "MEMBERS",
    "OPEN_NAMESPACES",
    "PATTERNS",
    "PRAGMAS",
    "QUALIFIERS",
    "ROOTS",
    "UNQUALIFIED",
    "VENDOR",
    "is_known",
    "words",
]


def words(text: str) -> frozenset[str]:
    """The words of a text."""
    return frozenset(text.split())


BASIC_TYPES = words("""
auto bool char char8_t char16_t char32_t double float int long short signed unsigned void wchar_t decltype __int128
__fp16 _Float16 __bf16
""")
QUALIFIERS = words("""
const constexpr consteval constinit extern inline mutable register static thread_local typename volatile explicit
friend virtual struct class union enum __constant__ __device__ __forceinline__ __global__ __host__ __inline__
__managed__ __noinline__ __restrict__ __restrict restrict __shared__ __inline __grid_constant__
""")
KEYWORDS = (
    BASIC_TYPES
    | QUALIFIERS
    | words("""
alignas alignof break case catch const_cast continue default delete do dynamic_cast else false final for goto if
namespace new noexcept nullptr operator override private protected public reinterpret_cast return sizeof static_assert
static_cast switch template this throw true try typedef typeid using while concept requires and or not xor bitand
bitor compl and_eq or_eq xor_eq not_eq __launch_bounds__ __align__ __attribute__ __cluster_dims__ _Pragma
__extension__
""")
)

_STANDARD_HEADERS = words("""
algorithm array atomic bit bitset cassert cctype cfloat cinttypes climits cmath complex complex.h concepts cstddef
cstdint cstdio cstdlib cstring float.h functional inttypes.h initializer_list iostream iterator limits limits.h math.h
memory mutex numbers numeric optional ostream span sstream stdbool.h stddef.h stdexcept stdint.h stdio.h stdlib.h
string string.h string_view thread tuple type_traits map unordered_map utility vector stdfloat assert.h
""")
HEADERS = re.compile(
    "|".join(
        [
            *map(re.escape, sorted(_STANDARD_HEADERS)),
            r"torch/(?:extension|torch|all|types|python|script|serialize/tensor)\.h",
            r"(?:ATen|c10)/(?:cuda|hip)/(?:impl/)?(?:CUDA|HIP)(?:Context|ContextLight|Stream|Guard|Exception|Functions"
            r"|Macros|Math\w*|Blas|Utils|DeviceUtils|GuardImplMasqueradingAsCUDA|StreamMasqueradingAsCUDA)\.h(?:hpp)?",
            r"(?:ATen|c10)/(?:cuda|hip)/(?:Exceptions|Atomic|DeviceUtils|detail/\w+)\.(?:cuh|h)",
            r"ATen/(?:ATen|AccumulateType|Dispatch|Dispatch_v2|NumericUtils|OpMathType|Parallel|TensorUtils|Utils"
            r"|TensorAccessor|core/Tensor|core/TensorBase|core/TensorAccessor|cuda/Atomic|native/cuda/KernelUtils"
            r"|cpu/vec/vec|Config)\.(?:h|cuh)",
            r"c10/(?:core/(?:ScalarType|Device|TensorOptions|DeviceGuard|MemoryFormat)|macros/\w+"
            r"|util/(?:Exception|Half|BFloat16|Optional|ArrayRef|irange|complex|Float8_\w+))\.h",
            r"cuda(?:_runtime(?:_api)?|_fp16|_bf16|_fp8|_fp6|_fp4|_pipeline(?:_primitives)?|_awbarrier)?\.(?:h|hpp)",
            r"(?:crt/)?(?:mma|sm_\w+_(?:intrinsics|functions)|device_functions|math_functions|host_defines"
            r"|device_launch"
            r"_parameters|vector_types|vector_functions|driver_types|math_constants|cuComplex|builtin_types"
            r"|texture_types"
            r"|device_atomic_functions|cuda_texture_types|math_functions)\.(?:h|hpp)",
            r"cooperative_groups(?:/\w+)?(?:\.h)?",
            r"cub/(?:cub|config|util_\w+|(?:block|warp|thread)/\w+)\.cuh",
            r"cuda/(?:std/\w+|pipeline|barrier|atomic|ptx|functional|annotated_ptr|cmath|bit)",
            r"(?:cutlass|cute)/[\w/]+\.(?:h|hpp)|kittens\.cuh",
            r"hip/(?:hip_\w+|amd_detail/\w+)\.h(?:pp)?|hipcub/(?:hipcub|(?:block|warp)/\w+)\.hpp|rocwmma/\w+\.hpp"
            r"|amd_hip_\w+\.h|ck_tile/[\w/]+\.hpp",
            r"(?:imm|x|e|p|t|s|w|n|a|f16c|avx|avx512)\w*intrin\.h|arm_(?:neon|sve|fp16|bf16)\.h|omp\.h",
            r"pybind11/(?:pybind11|stl)\.h",
            r"cublas(?:Lt|_v2)?\.h|cudnn(?:_\w+)?\.h|hipblas(?:/hipblas)?\.h|rocblas/rocblas\.h",
        ]
    )
)
"""Headers that give what the other lists name."""

CONDITIONS = re.compile(
    r"(?:__(?:CUDA|HIP|NVCC|AMDGCN|gfx|AVX|SSE|FMA|F16C|ARM|aarch64|x86_64|GNUC|clang|GFX)\w*|CUDA_VERSION"
    r"|CUDART_VERSION|USE_ROCM"
    r"|USE_CUDA|CUDA_\w+|HIP_VERSION\w*|TORCH_\w*VERSION\w*|__cplusplus|_OPENMP|_MSC_VER|WIN32|_WIN32|M_\w+|FLT_\w+"
    r"|DBL_\w+|INFINITY|defined|__has_include|NDEBUG|\w+_(?:H|H_|CUH|CUH_|HPP)|1900)"
)
"""What a condition of the preprocessor may ask for, besides the source's own names."""
PRAGMAS = re.compile(
    r"\s*(?:unroll|nounroll|once|nv_diag\w*|nv_exec_check_disable|hd_warning_disable|diag_\w+|STDC\s+FP_CONTRACT|ivdep"
    r"|GCC\s+(?:ivdep|unroll|optimize|target|diagnostic|push_options|pop_options)|clang\s+(?:loop|diagnostic|fp)"
    r"|omp\s+(?:parallel|for|simd|critical|atomic|barrier|single|master|masked|sections?|ordered|declare\s+simd"
    r"|declare\s+reduction)|vector\s+aligned|warning)\b"
)
ATTRIBUTES = words("""
aligned always_inline noinline packed vector_size unused used target hot cold optimize may_alias pure flatten
assume_aligned const noreturn maybe_unused nodiscard likely unlikely fallthrough no_unique_address gnu device host
global shared amdgpu_flat_work_group_size amdgpu_waves_per_eu amdgpu_num_vgpr ext_vector_type __vector_size__
__aligned__ __may_alias__ __always_inline__ __noinline__ __unused__ forceinline flatten restrict deprecated artificial
leaf nothrow nonnull
""")
"""Words within `__attribute__((...))` and `[[...]]`; no section, alias, constructor, weak symbol or cleanup."""

_STD = words("""
abs acos acosh all_of any_of array asin asinh atan atan2 atanh atomic bit_cast byte cbrt ceil clamp clog2 complex conj
polar arg norm proj conditional conditional_t copy copy_n copysign cos cosh count countl_zero countr_zero decay_t
declval defer_lock distance div enable_if enable_if_t endl equal erf erfc errc exception exp exp2 expm1 fabs
false_type fill fill_n find floor fma fmax fmin fmod forward frexp gcd generate get greater has_single_bit hypot ilogb
index_sequence initializer_list inner_product integer_sequence integral_constant invalid_argument iota is_arithmetic_v
is_floating_point is_floating_point_v is_integral is_integral_v is_same is_same_v is_signed_v isfinite isinf isnan
ldexp lcm less lgamma llround log log10 log1p log2 logic_error lrint lround make_index_sequence make_integer_sequence
make_pair make_tuple make_unsigned_t max max_element memcmp memcpy memmove memory_order_acquire memory_order_release
memory_order_relaxed memory_order_acq_rel memory_order_seq_cst memset min min_element minmax modf move multiplies nan
nearbyint nextafter none_of nth_element nullopt nullptr_t numeric_limits optional out_of_range overflow_error pair
partial_sort partial_sum plus pow ptrdiff_t reduce remainder remquo remove_const_t remove_cv_t remove_reference_t
remove_cvref_t remove_pointer_t result_of reverse rint rotl rotr round runtime_error signbit sin sinh size size_t sort
span sqrt stable_sort map unordered_map exit stringstream ostringstream string string_view swap tan tanh tgamma
tie to_string transform trunc
true_type tuple tuple_element_t tuple_size tuple_size_v type_identity_t unique_ptr make_unique underlying_type_t
upper_bound lower_bound vector void_t accumulate int8_t int16_t int32_t int64_t uint8_t uint16_t uint32_t uint64_t
intptr_t uintptr_t float_t double_t numbers cout cerr printf fprintf hypotf expf logf sqrtf fabsf fmaxf fminf powf
tanhf sinf cosf erff assume_aligned atomic_ref atomic_thread_fence bool_constant negate divides minus logical_and
logical_or align align_val_t hex popcount bit_ceil bit_floor bit_width midpoint lerp exclusive_scan inclusive_scan
transform_reduce begin end
""")
_STD |= {"thread::hardware_concurrency", "numbers::pi", "numbers::pi_v", "numbers::e", "numbers::sqrt2", "memory_order"}
_NUMBERS = words("""
kFloat kFloat16 kFloat32 kFloat64 kDouble kHalf kBFloat16 kInt kInt8 kInt16 kInt32 kInt64 kLong kShort kChar kByte
kBool kUInt8 kUInt16 kUInt32 kUInt64 kFloat8_e4m3fn kFloat8_e5m2 kFloat8_e4m3fnuz kFloat8_e5m2fnuz kCUDA kCPU kHIP
kStrided kComplexFloat kComplexDouble
""")
_TENSORS = words("""
Tensor TensorOptions TensorList TensorAccessor PackedTensorAccessor PackedTensorAccessor32 PackedTensorAccessor64
GenericPackedTensorAccessor TensorBase RestrictPtrTraits DefaultPtrTraits ScalarType Scalar Dtype dtype device Device
DeviceType DeviceIndex DeviceGuard OptionalDeviceGuard IntArrayRef ArrayRef MemoryFormat Layout Half BFloat16
Float8_e4m3fn Float8_e5m2 Float8_e4m3fnuz Float8_e5m2fnuz optional nullopt NoGradGuard OptionalTensorRef elementSize
toString str layout requires_grad empty empty_like empty_strided zeros zeros_like ones ones_like full full_like tensor
arange stack cat chunk split parallel_for parallel_reduce get_num_threads get_thread_num in_parallel_region acc_type
opmath_type OpMathType ScalarTypeToCPPType ScalarTypeToCPPTypeT Error ceil_div divup isIntegralType isFloatingType
isComplexType InferenceMode AutoDispatchBelowADInplaceOrView AutoDispatchBelowAutograd IntList complex irange SymInt
SymIntArrayRef OptionalIntArrayRef OptionalArrayRef value_or_else multiply_integers DeviceType::CUDA DeviceType::CPU
DeviceType::HIP nullopt_t make_optional promoteTypes CppTypeToScalarType typeMetaToScalarType StringView string_view
SmallVector quint8 qint8 qint32 checkAllSameGPU is_complex CUDA CPU HIP Long Float Double Int
""")
"""What `at`, `torch` and `c10` have that is no operation on elements."""
_SCALAR_TYPES = words("""
Float Double Half BFloat16 Int Long Short Char Byte Bool Float8_e4m3fn Float8_e5m2 Undefined ComplexFloat
ComplexDouble UInt16 UInt32 UInt64 Float8_e4m3fnuz Float8_e5m2fnuz
""")
_ON_DEVICE = words("""
getCurrentCUDAStream getDefaultCUDAStream CUDAStream CUDAGuard OptionalCUDAGuard CUDAStreamGuard CUDAException
getCurrentDeviceProperties getDeviceProperties current_device device_count getCurrentHIPStream HIPStream HIPGuard
OptionalHIPGuard OptionalHIPGuardMasqueradingAsCUDA HIPGuardMasqueradingAsCUDA getCurrentHIPStreamMasqueradingAsCUDA
warp_size ATenCeilDiv getApplyGrid atomicAdd CUDA_KERNEL_LAUNCH device_synchronize set_device MaybeSetDevice
OptionalCUDAStreamGuard getDevice CUDA_NUM_THREADS GET_BLOCKS compat::max compat::min compat::abs compat::exp
""")
_COOPERATIVE = words("""
this_thread_block this_grid this_thread this_multi_grid this_cluster thread_block thread_group grid_group
cluster_group thread_block_tile coalesced_group coalesced_threads tiled_partition labeled_partition binary_partition
sync reduce plus less greater bit_and bit_or bit_xor inclusive_scan exclusive_scan memcpy_async wait wait_prior
invoke_one block_tile_memory experimental details
""")
_WMMA = words("""
fragment matrix_a matrix_b accumulator row_major col_major mem_row_major mem_col_major load_matrix_sync fill_fragment
store_matrix_sync mma_sync __float_to_tf32 bmma_sync layout_t
""")
_WMMA |= {f"precision::{name}" for name in ("tf32", "u4", "s4", "b1")} | {"precision"}
_CUB = re.compile(
    r"(?:Block|Warp)\w+|BLOCK_\w+|WARP_\w+|Sum|Max|Min|ArgMax|ArgMin|CacheModified\w+|LOAD_\w+|STORE_\w+|KeyValuePair"
    r"|Traits|LaneId|WarpId|ShuffleDown|ShuffleUp|ShuffleIndex|ThreadLoad|ThreadStore|ThreadReduce|Equality"
    r"|Less|Int2Type"
)


def _named(*groups: frozenset[str]) -> re.Pattern[str]:
    return re.compile("|".join(sorted(map(re.escape, frozenset().union(*groups)), key=len, reverse=True)))


_SCALAR = {f"ScalarType::{name}" for name in _SCALAR_TYPES}
_FORMATS = {f"MemoryFormat::{name}" for name in ("Contiguous", "ChannelsLast", "ChannelsLast3d", "Preserve")}
_FORMATS |= {f"DeviceType::{name}" for name in ("CUDA", "CPU", "HIP")} | {
    "Layout::Strided",
    "Device::Type",
    "Device::CPU",
}
_GUARDS = {"cuda::CUDAGuard", "cuda::getCurrentCUDAStream"}
_ATEN = _named(
    _TENSORS,
    _NUMBERS,
    frozenset(_SCALAR | _FORMATS),
    frozenset(f"{place}::{name}" for place in ("cuda", "hip", "cuda::detail") for name in _ON_DEVICE),
    words("""
indexing::Slice indexing::None indexing::TensorIndex indexing::Ellipsis headeronly::ScalarType opmath_type
native::ceil_div detail::Array vec::Vectorized cuda::getCurrentCUDABlasHandle autograd::AutoGradMode
utils::set_num_threads cuda::getCurrentDeviceProperties cuda::warp_size cuda::stream_synchronize
cuda::c10_cuda_check_implementation cuda::synchronize cuda::c10_retrieve_device_side_assertion_info cuda::is_available
numeric_limits
    """),
)
_PYBIND = _named(words("arg gil_scoped_release call_guard none module_ module init arg_v"))
_C = _named(_STD | {f"numeric_limits::{n}" for n in ("infinity", "max", "min", "lowest", "epsilon", "quiet_NaN")})

ROOTS: dict[str, re.Pattern[str]] = {
    "at": _ATEN,
    "torch": _ATEN,
    "c10": _ATEN,
    "std": _C,
    "py": _PYBIND,
    "pybind11": _PYBIND,
    "cooperative_groups": _named(_COOPERATIVE),
    "nvcuda": _named(frozenset({f"wmma::{name}" for name in _WMMA} | {"wmma"})),
    "rocwmma": _named(_WMMA),
    "cub": _CUB,
    "hipcub": _CUB,
    "cuda": re.compile(
        r"std::\w+(?:::\w+)*|(?:pipeline|barrier|ptx|device|aligned_size_t|atomic|atomic_ref|memcpy_async"
        r"|thread_scope|memory_order"
        r"|annotated_ptr|access_property|make_pipeline|thread_scope_\w+|memory_order_\w+|ceil_div)(?:::\w+)*"
    ),
}
"""Namespaces of libraries, and which of their names may be named; the rest are free."""
FREE_ROOTS = words("cute cutlass kittens ck_tile")
"""Libraries whose names build kernels in the source's own translation; their operations on whole tensors are told."""
_WHOLE = re.compile(r"(?:gemm|conv|reduction)::(?:device|kernel)::.*|device::.*|library::.*|py::.*")
OPEN_NAMESPACES = words("""
std nvcuda nvcuda::wmma cooperative_groups torch at c10 cub rocwmma cute cutlass kittens torch::indexing wmma
std::literals at::indexing cuda
""")

MEMBERS = words("""
emplace try_emplace contains insert_or_assign
data_ptr const_data_ptr mutable_data_ptr size sizes stride strides dim ndimension numel nbytes itemsize element_size
storage_offset sym_size options dtype scalar_type device device_type layout is_cuda is_cpu is_hip is_contiguous
is_floating_point is_complex is_same_size is_non_overlapping_and_dense requires_grad defined has_value value value_or
get_device suggest_memory_format contiguous clone detach to toType type_as cuda cpu view view_as reshape reshape_as
expand expand_as permute transpose t squeeze unsqueeze flatten narrow select slice chunk split unbind movedim swapaxes
alias as_strided unfold item accessor packed_accessor packed_accessor32 packed_accessor64 generic_packed_accessor
memory_format requires_grad_ pinned_memory zero_ fill_ copy_ new_empty new_zeros new_full new_ones type index is_same
dtype_initialized resize_ T mT float half bfloat16 stream device_index id has_index str reset reset_device
current_device original_device unwrap priority synchronize query def doc x y z w r g b a begin end cbegin cend rbegin
rend data front back at push_back emplace_back pop_back insert erase resize reserve empty clear fill length capacity
c_str first second append substr swap get load store exchange fetch_add fetch_sub fetch_max fetch_min
compare_exchange_weak compare_exchange_strong what vec real imag find count infinity max min lowest epsilon quiet_NaN
digits max_digits10 is_integer is_signed type value_type precision width iterator const_iterator test_and_set assign
shrink_to_fit equals starts_with ends_with vec_view slice_ptr set_requires_grad is_quantized ndim num_elements
num_storage_elements num_threads thread_rank block_rank cluster_size num_blocks group_index thread_index group_dim
dim_threads dim_blocks shfl shfl_down shfl_up shfl_xor any all ballot match_any match_all meta_group_rank
meta_group_size sync is_valid map_shared_rank barrier_arrive barrier_wait arrive wait arrive_and_wait arrive_and_drop
producer_acquire producer_commit consumer_wait consumer_release quit block_index dim_grid barrier_wait num_clusters
Reduce Sum InclusiveSum ExclusiveSum InclusiveScan ExclusiveScan Sort SortDescending Load Store StripedToBlocked
BlockedToStriped SortBlockedToStriped SortDescendingBlockedToStriped HeadSegmentedReduce TailSegmentedReduce Broadcast
Composite InitHistogram Histogram TempStorage Flagged FlagHeads FlagTails Scan Up Down key BlockToStriped
WarpStripedToBlocked real_ imag_ multiProcessorCount sharedMemPerBlock sharedMemPerBlockOptin
sharedMemPerMultiprocessor maxThreadsPerBlock major minor maxThreadsPerMultiProcessor maxGridSize maxThreadsDim
maxBlocksPerMultiProcessor regsPerBlock regsPerMultiprocessor warpSize totalGlobalMem totalConstMem l2CacheSize
persistingL2CacheMaxSize accessPolicyMaxWindowSize clockRate memoryClockRate memoryBusWidth gcnArchName name
concurrentKernels cooperativeLaunch asyncEngineCount gridDim blockDim dynamicSmemBytes attrs numAttrs cooperative
clusterDim val programmaticStreamSerializationAllowed accessPolicyWindow base_ptr num_bytes hitRatio hitProp missProp
num_elements storage_element_count loadu blend size_in_bytes
""")
"""What may stand after `.` and `->`: of tensors what allocates, arranges and asks, and what containers, vectors, groups
of threads and device properties have. Fields and functions of the source's own structs come beside it."""

_C_NAMES = words("""
exit EXIT_FAILURE EXIT_SUCCESS
int8_t int16_t int32_t int64_t uint8_t uint16_t uint32_t uint64_t size_t ssize_t ptrdiff_t intptr_t uintptr_t uint
ushort uchar ulong longlong ulonglong int_fast32_t intmax_t uintmax_t INT8_MAX INT8_MIN INT16_MAX INT16_MIN INT32_MAX
INT32_MIN INT64_MAX INT64_MIN UINT8_MAX UINT16_MAX UINT32_MAX UINT64_MAX INT_MAX INT_MIN UINT_MAX LONG_MAX LONG_MIN
LLONG_MAX LLONG_MIN ULLONG_MAX SIZE_MAX CHAR_BIT FLT_MAX FLT_MIN FLT_EPSILON DBL_MAX DBL_MIN DBL_EPSILON INFINITY NAN
HUGE_VAL HUGE_VALF NULL M_PI M_PI_2 M_PI_4 M_1_PI M_2_PI M_E M_LN2 M_LN10 M_LOG2E M_LOG10E M_SQRT2 M_SQRT1_2
M_2_SQRTPI CUDART_INF_F CUDART_INF CUDART_NAN_F CUDART_PI_F CUDART_L2E_F CUDART_LN2_F CUDART_SQRT_HALF_F CUDART_ZERO_F
CUDART_ONE_F CUDART_MAX_NORMAL_F CUDART_MIN_DENORM_F M_PIf __FLT_MAX__ __FLT_EPSILON__ printf assert memcpy memset
memmove memcmp strcmp strlen malloc free aligned_alloc abort fprintf stderr stdout abs labs llabs __FILE__ __LINE__
__func__ __FUNCTION__ __VA_ARGS__ __VA_OPT__ __PRETTY_FUNCTION__ __COUNTER__ __builtin_expect __builtin_prefetch
__builtin_assume_aligned __builtin_unreachable __builtin_assume __builtin_popcount __builtin_popcountll __builtin_clz
__builtin_clzll __builtin_ctz __builtin_ctzll __builtin_bswap32 __builtin_memcpy __builtin_memset __builtin_inff
__builtin_huge_valf __builtin_nanf __builtin_shufflevector __builtin_shuffle __builtin_convertvector __builtin_fabsf
__builtin_fmaxf __builtin_fminf __builtin_sqrtf __builtin_expf __builtin_is_constant_evaluated __builtin_constant_p
_mm_malloc _mm_free rsqrt rsqrtf rcbrt rcbrtf
""")
_MATH = words("""
acos acosh asin asinh atan atan2 atanh cbrt ceil copysign cos cosh cospi cyl_bessel_i0 cyl_bessel_i1 erf erfc erfcinv
erfcx erfinv exp exp10 exp2 expm1 fabs fdim fdivide floor fma fmax fmin fmod frexp hypot ilogb j0 j1 jn ldexp lgamma
llrint llround log log10 log1p log2 logb lrint lround modf nan nearbyint nextafter norm norm3d norm4d normcdf
normcdfinv pow rcbrt remainder remquo rhypot rint round rsqrt scalbn scalbln sin sincos sincospi sinh sinpi sqrt tan
tanh tgamma trunc y0 y1 yn signbit isnan isinf isfinite isnormal max min fmaximum fminimum clamp saturate powi exp10f
""")
_CUDA_NAMES = words("""
threadIdx blockIdx blockDim gridDim warpSize dim3 clusterIdx half half2 __half __half2 half4 half_raw __half_raw
nv_bfloat16 nv_bfloat162 __nv_bfloat16 __nv_bfloat162 __nv_bfloat16_raw __hip_bfloat16 __hip_bfloat162 hip_bfloat16
bfloat16 bfloat162 cudaStream_t cudaError_t cudaEvent_t cudaSuccess cudaGetLastError cudaPeekAtLastError
cudaGetErrorString cudaGetErrorName device_of cudaDeviceProp cudaGetDevice cudaSetDevice cudaGetDeviceCount
cudaGetDeviceProperties cudaDeviceGetAttribute cudaFuncSetAttribute cudaFuncSetCacheConfig cudaFuncSetSharedMemConfig
cudaFuncGetAttributes cudaFuncAttributes cudaDeviceSynchronize cudaStreamSynchronize cudaMemcpy cudaMemcpyAsync
cudaMemcpy2D cudaMemcpy2DAsync cudaMemset cudaMemsetAsync cudaMemcpyToSymbol cudaMemcpyToSymbolAsync
cudaMemcpyFromSymbol cudaGetSymbolAddress cudaMalloc cudaFree cudaMallocAsync cudaFreeAsync cudaMallocManaged
cudaMallocHost cudaFreeHost cudaHostAlloc cudaMemPrefetchAsync cudaLaunchKernel cudaLaunchKernelEx cudaLaunchKernelExC
cudaLaunchCooperativeKernel cudaLaunchConfig_t cudaLaunchAttribute cudaOccupancyMaxPotentialBlockSize
cudaOccupancyMaxActiveBlocksPerMultiprocessor cudaOccupancyMaxActiveClusters cudaStreamCreate
cudaStreamCreateWithFlags cudaStreamCreateWithPriority cudaStreamNonBlocking cudaStreamDefault cudaStreamDestroy
cudaStreamWaitEvent cudaEventCreate cudaEventCreateWithFlags cudaEventDisableTiming cudaEventRecord
cudaEventSynchronize cudaEventDestroy cudaGridDependencySynchronize cudaTriggerProgrammaticLaunchCompletion
cudaStreamPerThread cudaStreamLegacy cudaDeviceSetCacheConfig cudaDeviceSetSharedMemConfig
cudaDeviceGetStreamPriorityRange cudaDeviceSetLimit cudaAccessPropertyPersisting cudaAccessPropertyStreaming
cudaAccessPropertyNormal cudaStreamAttrValue cudaStreamSetAttribute cudaStreamAttributeAccessPolicyWindow
cudaTextureObject_t __float2half __half2float
""")
_CUDA_NAMES |= {
    "hip" + name.removeprefix("cuda")
    for name in _CUDA_NAMES
    if name.startswith("cuda") and name != "cudaLaunchKernelExC"
} | words("""
hipLaunchKernelGGL hipThreadIdx_x hipThreadIdx_y hipThreadIdx_z hipBlockIdx_x hipBlockIdx_y hipBlockIdx_z
hipBlockDim_x hipBlockDim_y hipBlockDim_z hipGridDim_x hipGridDim_y hipGridDim_z HIP_KERNEL_NAME HIP_DYNAMIC_SHARED
hipDeviceProp_t
""")
_MACROS = words("""
TORCH_CHECK TORCH_CHECK_EQ TORCH_CHECK_VALUE TORCH_CHECK_TYPE TORCH_CHECK_INDEX TORCH_CHECK_NOT_IMPLEMENTED
TORCH_CHECK_GE TORCH_CHECK_GT TORCH_CHECK_LE TORCH_CHECK_LT TORCH_CHECK_NE TORCH_INTERNAL_ASSERT
TORCH_INTERNAL_ASSERT_DEBUG_ONLY AT_ASSERT AT_ASSERTM AT_ERROR AT_CHECK TORCH_WARN TORCH_WARN_ONCE C10_CUDA_CHECK
C10_CUDA_KERNEL_LAUNCH_CHECK AT_CUDA_CHECK C10_HIP_CHECK C10_HIP_KERNEL_LAUNCH_CHECK AT_CUDA_KERNEL_LAUNCH_CHECK
CUDA_KERNEL_ASSERT CUDA_KERNEL_LOOP CUDA_KERNEL_LOOP_TYPE CUDA_1D_KERNEL_LOOP C10_RESTRICT C10_HOST_DEVICE C10_DEVICE
C10_HOST C10_LAUNCH_BOUNDS_1 C10_LAUNCH_BOUNDS_2 C10_UNLIKELY C10_LIKELY C10_ALWAYS_INLINE C10_UNUSED C10_WARP_SIZE
PYBIND11_MODULE TORCH_EXTENSION_NAME scalar_t index_t integral_t AT_PRIVATE_CASE_TYPE CUDA_VERSION CUDART_VERSION
""")
_OMP = words("""
omp_get_max_threads omp_get_num_threads omp_get_thread_num omp_set_num_threads omp_in_parallel omp_get_num_procs
omp_set_dynamic
""")
_BARE_STD = _STD - {"find", "count", "copy", "get", "reduce", "plus", "less", "greater", "move", "size"}
UNQUALIFIED = (
    KEYWORDS
    | _C_NAMES
    | _MATH
    | {f"{name}f" for name in _MATH}
    | _CUDA_NAMES
    | _MACROS
    | _OMP
    | _STD
    | (_TENSORS - {"stack", "cat", "chunk", "split"})
    | _NUMBERS
    | _WMMA
    | _COOPERATIVE
    | {"std", "wmma", "Slice", "None", "h2div"}
)
"""Names that may stand alone in any code."""
PATTERNS = re.compile(
    r"(?:char|uchar|short|ushort|int|uint|long|ulong|longlong|ulonglong|float|double|half|bfloat16)(?:1|2|3|4|8|16)"
    r"|make_(?:char|uchar|short|ushort|int|uint|long|ulong|longlong|ulonglong|float|double|half|bfloat16|cuComplex"
    r"|cuFloatComplex)(?:1|2|3|4|8|16)?|make_cudaExtent"
    r"|AT_DISPATCH_\w+|C10_(?:HOST|DEVICE|RESTRICT|MAX|UNROLL)\w*|AT_EXPAND\w*|__CUDA\w*__|__HIP\w*__|__CUDA_ARCH\w*"
    r"|(?:cuda|hip)(?:FuncAttribute|FuncCache|DevAttr|Memcpy(?:Host|Device|Default)To?|Memcpy(?:Host|Device)To|Error"
    r"|LaunchAttribute|Occupancy|SharedMem)\w*|(?:cuda|hip)MemcpyDefault|(?:cuda|hip)Limit\w*"
    r"|_mm(?:256|512)?_\w+|__m(?:64|128|256|512)(?:i|d|h|bh)?|__mmask\d+|_MM_\w+|_CMP_\w+|v(?:ld|st|dup|add|mul"
    r"|fma|mla|max"
    r"|min|sub|get|set|cvt|abs|neg|reinterpret|div|sqrt|recp|rsqrt|and|or|eor|bsl|ceq|cgt|clt|padd|shl|shr)\w*_\w+"
    r"|(?:float|int|uint|bfloat)\d+x\d+(?:x\d)?_t"
    r"|__(?:float|half|int|uint|ll|ull|short|ushort|double|bfloat|nv|hip|fp8|h|hisnan|high|low|lows|highs"
    r"|halves|hal)\w*"
    r"|(?:CUBLAS|HIPBLAS|CUDNN)_\w+|CUDA_[RC]_\d\d?\w+|HIP(?:BLAS)?_[RC]_\w+|(?:cublas|hipblas"
    r"|cudnn)(?:Lt)?(?:Create|Destroy|Set|Get)\w*"
    r"|(?:cublas|hipblas|cudnn)\w*_t|(?:cuda|hip)LimitPersistingL2CacheSize"
    r"|cu(?:Float|Double)?Complex|cuC\w+f?|__launch_bounds__"
)
DEVICE = re.compile(
    r"__(?:shfl|sync|ballot|any|all|active|ld|st|f|d|u?mul|u?mad|u?sad|u?add|u?hadd|u?rhadd|popc|clz|ffs|fns"
    r"|brev|byte_perm|exp|exp10|log|sin|cos"
    r"|tan|tanh|pow|saturate|v|dp[24]a|threadfence|reduce|match|cvta|pipeline|isGlobal|isShared|usad|mem|trap"
    r"|assume|isConstant|funnelshift"
    r"|builtin_(?:amdgcn|nontemporal|assume|ia32)|lane|mbcnt|nvvm|rsqrt|sqrt|rcp|frsqrt|ocml|ockl|prof|brkpt"
    r"|maxnreg|cluster|isCluster"
    r"|syncthreads|syncwarp|grid_constant)\w*"
    r"|atomic\w+|h(?:exp|exp2|exp10|log|log2|log10|sqrt|rsqrt|rcp|sin|cos|tanh|floor|ceil|trunc|rint|div)(?:_approx)?"
    r"|h2(?:exp|exp2|exp10|log|log2|log10|sqrt|rsqrt|rcp|sin|cos|tanh|floor|ceil|trunc|rint|div)(?:_approx)?"
    r"|u?ll(?:max|min|abs)"
    r"|u(?:max|min)|tex\w+|surf\w+|unsafeAtomicAdd|safeAtomicAdd|gpuAtomic\w+|fastAtomicAdd"
    r"|fastSpecializedAtomicAdd|WARP_SHFL\w*|asm|__asm__|volatile|amd_\w+|mul24"
    r"|__umul24|mulhi|__umulhi|__reduce_\w+|clusterIdx|clusterDim|is_same"
)
"""Names that code of the device may use besides."""

VENDOR = re.compile(
    r"(?:cublas|hipblas|rocblas_|cblas_)\w*(?:[Gg]emm|[Gg]emv|GEMM|Matmul|[Ss]ymm|[Tt]rsm|[Ss]yrk|[Dd]ot"
    r"|[Aa]xpy|[Nn]rm2"
    r"|[Aa]sum|geam|[Ss]cal)\w*"
    r"|(?:cudnn|miopen)(?!Create|Destroy|Set|Get)\w*(?:Forward|Transform\w*|Reduce\w*|OpTensor|AddTensor"
    r"|Execute|Backward)"
    r"\w*|cufftExec\w+|hipfftExec\w+|cusparseSp\w+|cusolverDn\w+|dnnl_sgemm|cutensorContract\w*"
)
"""Functions of vendors' libraries that compute."""


def is_known(path: tuple[str, ...]) -> bool:
    """Whether a qualified name, its aliases resolved, is on the lists.

    Args:
        path: its parts; the first is a root, the rest may end in a static member of a listed type.
    """
    root, rest = path[0], "::".join(path[1:])
    if root in FREE_ROOTS:
        return not _WHOLE.fullmatch(rest)
    pattern = ROOTS[root]
    if pattern.fullmatch(rest) is not None:
        return True
    head, _, last = rest.rpartition("::")
    return bool(head) and last in MEMBERS and pattern.fullmatch(head) is not None
