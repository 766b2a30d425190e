"""Names of torch that an honest candidate may use: what allocates, arranges, computes and looks at shapes.

Whether it may compute with them is for `library_compute` to say. Left out is what gives access to the memory of a
tensor, to its class, to hooks, files, threads, quantised types or the state of torch. A test asks torch for the names.
"""

from __future__ import annotations

__all__ = [
    "FFT",
    "FUNCTIONAL",
    "FUNCTIONS",
    "INIT",
    "LAYERS",
    "LINALG",
    "MODULE",
    "MODULE_PRIVATE",
    "SPECIAL",
    "TENSOR",
    "UNUSUAL",
    "names",
]


def names(text: str) -> frozenset[str]:
    """The words of a text."""
    return frozenset(text.split())


TENSOR = names(
    "T abs abs_ absolute absolute_ acos acos_ acosh acosh_ add add_ addbmm addbmm_ addcdiv addcdiv_ addcmul"
    " addcmul_ addmm addmm_ addmv addmv_ addr addr_ all allclose amax amin aminmax angle any arccos arccos_"
    " arccosh arccosh_ arcsin arcsin_ arcsinh arcsinh_ arctan arctan2 arctan2_ arctan_ arctanh arctanh_ argmax"
    " argmin argsort argwhere as_strided as_strided_ as_strided_scatter asin asin_ asinh asinh_ atan atan2"
    " atan2_ atan_ atanh atanh_ backward baddbmm baddbmm_ bernoulli bernoulli_ bfloat16 bincount bitwise_and"
    " bitwise_and_ bitwise_left_shift bitwise_left_shift_ bitwise_not bitwise_not_ bitwise_or bitwise_or_"
    " bitwise_right_shift bitwise_right_shift_ bitwise_xor bitwise_xor_ bmm bool broadcast_to byte cdouble ceil"
    " ceil_ cfloat chalf char cholesky cholesky_inverse cholesky_solve chunk clamp clamp_ clamp_max clamp_max_"
    " clamp_min clamp_min_ clip clip_ clone contiguous copy_ copysign copysign_ corrcoef cos cos_ cosh cosh_"
    " count_nonzero cov cpu cross cuda cummax cummin cumprod cumprod_ cumsum cumsum_ data deg2rad deg2rad_ det"
    " detach detach_ device diag diag_embed diagflat diagonal diagonal_scatter diff digamma digamma_ dim dist"
    " div div_ divide divide_ dot double dsplit dtype element_size eq eq_ equal erf erf_ erfc erfc_ erfinv"
    " erfinv_ exp exp2 exp2_ exp_ expand expand_as expm1 expm1_ exponential_ fill_ fill_diagonal_ fix fix_"
    " flatten flip fliplr flipud float float_power float_power_ floor floor_ floor_divide floor_divide_ fmax"
    " fmin fmod fmod_ frac frac_ frexp gather gcd gcd_ ge ge_ geqrf ger get_device grad greater greater_"
    " greater_equal greater_equal_ gt gt_ half hardshrink heaviside heaviside_ histc histogram hsplit hypot"
    " hypot_ i0 i0_ igamma igamma_ igammac igammac_ imag index index_add index_add_ index_copy index_copy_"
    " index_fill index_fill_ index_put index_put_ index_reduce index_reduce_ index_select inner int inverse"
    " is_complex is_contiguous is_cpu is_cuda is_floating_point is_inference is_leaf is_nonzero is_pinned"
    " is_same_size is_signed is_sparse isclose isfinite isinf isnan isneginf isposinf isreal item itemsize kron"
    " kthvalue layout lcm lcm_ ldexp ldexp_ le le_ lerp lerp_ less less_ less_equal less_equal_ lgamma lgamma_"
    " log log10 log10_ log1p log1p_ log2 log2_ log_ log_softmax logaddexp logaddexp2 logcumsumexp logdet"
    " logical_and logical_and_ logical_not logical_not_ logical_or logical_or_ logical_xor logical_xor_ logit"
    " logit_ logsumexp long lt lt_ lu lu_solve mT masked_fill masked_fill_ masked_scatter masked_scatter_"
    " masked_select matmul matrix_exp matrix_power max maximum mean median min minimum mm mode moveaxis movedim"
    " msort mul mul_ multinomial multiply multiply_ mv mvlgamma mvlgamma_ nan_to_num nan_to_num_ nanmean"
    " nanmedian nanquantile nansum narrow narrow_copy nbytes ndim ndimension ne ne_ neg neg_ negative negative_"
    " new_empty new_empty_strided new_full new_ones new_tensor new_zeros nextafter nextafter_ nonzero norm"
    " normal_ not_equal not_equal_ numel orgqr ormqr outer permute pin_memory pinverse polygamma polygamma_"
    " positive pow pow_ prelu prod put put_ qr quantile rad2deg rad2deg_ random_ ravel real reciprocal"
    " reciprocal_ record_stream relu relu_ remainder remainder_ renorm renorm_ repeat repeat_interleave"
    " requires_grad requires_grad_ reshape reshape_as roll rot90 round round_ rsqrt rsqrt_ scatter scatter_"
    " scatter_add scatter_add_ scatter_reduce scatter_reduce_ select select_scatter sgn sgn_ shape short sigmoid"
    " sigmoid_ sign sign_ signbit sin sin_ sinc sinc_ sinh sinh_ size slice_scatter slogdet softmax sort split"
    " split_with_sizes sqrt sqrt_ square square_ squeeze squeeze_ std storage_offset stride sub sub_ subtract"
    " subtract_ sum sum_to_size svd swapaxes swapaxes_ swapdims swapdims_ t t_ take take_along_dim tan tan_ tanh"
    " tanh_ tensor_split tile to to_dense tolist topk trace transpose transpose_ triangular_solve tril tril_"
    " triu triu_ true_divide true_divide_ trunc trunc_ type type_as unbind unflatten unfold uniform_ unique"
    " unique_consecutive unsqueeze unsqueeze_ values var vdot view view_as vsplit where xlogy xlogy_ zero_"
)
"""Attributes of a tensor."""
_ALSO_FUNCTIONS = names(
    "BFloat16Tensor BoolTensor ByteTensor DoubleTensor Event FloatTensor Generator HalfTensor IntTensor"
    " LongTensor OutOfMemoryError ShortTensor Size Stream SymInt Tensor adaptive_avg_pool1d adaptive_max_pool1d"
    " alpha_dropout alpha_dropout_ arange as_tensor asarray atleast_1d atleast_2d atleast_3d autocast avg_pool1d"
    " bartlett_window batch_norm bilinear binary_cross_entropy_with_logits blackman_window block_diag"
    " broadcast_shapes broadcast_tensors bucketize can_cast cartesian_prod cat cdist celu celu_ channel_shuffle"
    " channels_last channels_last_3d column_stack combinations compile complex complex128 complex32 complex64"
    " concat concatenate constant_pad_nd contiguous_format conv1d conv2d conv3d conv_transpose1d"
    " conv_transpose2d conv_transpose3d convolution cosine_embedding_loss cosine_similarity cumulative_trapezoid"
    " device dropout dropout_ dstack dtype e einsum embedding embedding_bag empty empty_like empty_permuted"
    " empty_strided enable_grad eye feature_alpha_dropout feature_alpha_dropout_ feature_dropout"
    " feature_dropout_ fill finfo float16 float32 float64 float8_e4m3fn float8_e4m3fnuz float8_e5m2"
    " float8_e5m2fnuz float8_e8m0fnu frobenius_norm from_dlpack full full_like get_autocast_dtype"
    " get_autocast_gpu_dtype get_default_device get_default_dtype get_float32_matmul_precision get_num_threads"
    " gradient grid_sampler grid_sampler_2d grid_sampler_3d group_norm gru hamming_window hann_window"
    " hinge_embedding_loss histogramdd hstack iinfo inf inference_mode instance_norm int1 int16 int2 int32 int4"
    " int64 int8 is_autocast_enabled is_grad_enabled is_tensor isin kaiser_window kl_div layer_norm layout"
    " linspace logspace lstm lu_unpack manual_seed margin_ranking_loss max_pool1d max_pool1d_with_indices"
    " max_pool2d max_pool3d memory_format meshgrid nan native_batch_norm native_dropout native_group_norm"
    " native_layer_norm newaxis no_grad normal nuclear_norm ones ones_like pairwise_distance pdist pi"
    " pixel_shuffle pixel_unshuffle poisson_nll_loss polar preserve_format promote_types rand rand_like randint"
    " randint_like randn randn_like randperm range result_type rms_norm row_stack rrelu rrelu_ rsub searchsorted"
    " selu selu_ set_default_dtype set_float32_matmul_precision set_grad_enabled stack std_mean strided tensor"
    " tensordot threshold threshold_ trapezoid trapz tril_indices triplet_margin_loss triu_indices uint16 uint32"
    " uint64 uint8 unravel_index use_deterministic_algorithms vander var_mean view_as_complex view_as_real vmap"
    " vstack zeros zeros_like"
)
"""Of `torch` alone."""
_ONLY_METHODS = names(
    "T absolute_ add_ addbmm_ addcdiv_ addcmul_ addmm_ addr_ arctan2_ atan2_ backward baddbmm_ bernoulli_"
    " bitwise_and_ bitwise_left_shift_ bitwise_not_ bitwise_or_ bitwise_right_shift_ bitwise_xor_ byte char"
    " contiguous copy_ copysign_ cpu cuda cumprod_ cumsum_ data digamma_ dim div_ divide_ element_size eq_"
    " erfinv_ expand expand_as exponential_ fill_diagonal_ float_power_ floor_divide_ fmod_ ge_ grad greater_"
    " greater_equal_ gt_ heaviside_ hypot_ igamma_ igammac_ index index_add_ index_copy_ index_fill_"
    " index_reduce_ is_contiguous is_cpu is_cuda is_leaf is_pinned is_sparse item itemsize le_ lerp_ less_"
    " less_equal_ lgamma_ logical_and_ logical_not_ logical_or_ logical_xor_ lt_ mT masked_fill_ masked_scatter_"
    " mul_ multiply_ mvlgamma_ nbytes ndim ndimension ne_ new_empty new_empty_strided new_full new_ones"
    " new_tensor new_zeros nextafter_ normal_ not_equal_ pin_memory polygamma_ pow_ put_ random_ record_stream"
    " remainder_ renorm_ repeat requires_grad requires_grad_ reshape_as scatter_ scatter_add_ scatter_reduce_"
    " sgn_ shape sign_ size squeeze_ storage_offset stride sub_ subtract_ sum_to_size swapaxes_ swapdims_ t_ to"
    " to_dense tolist transpose_ tril_ triu_ true_divide_ type type_as unfold uniform_ unsqueeze_ values view"
    " view_as"
)
"""Attributes of a tensor that `torch` has not, or that it has with another meaning."""
FUNCTIONS = (TENSOR - _ONLY_METHODS) | _ALSO_FUNCTIONS
"""Functions, types and constants of `torch`."""
LAYERS = names(
    "AdaptiveAvgPool1d AdaptiveAvgPool2d AdaptiveAvgPool3d AdaptiveLogSoftmaxWithLoss AdaptiveMaxPool1d"
    " AdaptiveMaxPool2d AdaptiveMaxPool3d AlphaDropout AvgPool1d AvgPool2d AvgPool3d BCELoss BCEWithLogitsLoss"
    " BatchNorm1d BatchNorm2d BatchNorm3d Bilinear Buffer CELU CTCLoss ChannelShuffle CircularPad1d"
    " CircularPad2d CircularPad3d ConstantPad1d ConstantPad2d ConstantPad3d Conv1d Conv2d Conv3d ConvTranspose1d"
    " ConvTranspose2d ConvTranspose3d CosineEmbeddingLoss CosineSimilarity CrossEntropyLoss CrossMapLRN2d"
    " Dropout Dropout1d Dropout2d Dropout3d ELU Embedding EmbeddingBag FeatureAlphaDropout Flatten Fold"
    " FractionalMaxPool2d FractionalMaxPool3d GELU GLU GRU GRUCell GaussianNLLLoss GroupNorm Hardshrink"
    " Hardsigmoid Hardswish Hardtanh HingeEmbeddingLoss HuberLoss Identity InstanceNorm1d InstanceNorm2d"
    " InstanceNorm3d KLDivLoss L1Loss LPPool1d LPPool2d LPPool3d LSTM LSTMCell LayerNorm LeakyReLU Linear"
    " LinearCrossEntropyLoss LinearCrossEntropyOptions LocalResponseNorm LogSigmoid LogSoftmax MSELoss"
    " MarginRankingLoss MaxPool1d MaxPool2d MaxPool3d MaxUnpool1d MaxUnpool2d MaxUnpool3d Mish Module ModuleDict"
    " ModuleList MultiLabelMarginLoss MultiLabelSoftMarginLoss MultiMarginLoss MultiheadAttention NLLLoss"
    " NLLLoss2d PReLU PairwiseDistance Parameter ParameterDict ParameterList PixelShuffle PixelUnshuffle"
    " PoissonNLLLoss RMSNorm RNN RNNBase RNNCell RNNCellBase RReLU ReLU ReLU6 ReflectionPad1d ReflectionPad2d"
    " ReflectionPad3d ReplicationPad1d ReplicationPad2d ReplicationPad3d SELU Sequential SiLU Sigmoid"
    " SmoothL1Loss SoftMarginLoss Softmax Softmax2d Softmin Softplus Softshrink Softsign SyncBatchNorm Tanh"
    " Tanhshrink Threshold Transformer TransformerDecoder TransformerDecoderLayer TransformerEncoder"
    " TransformerEncoderLayer TripletMarginLoss TripletMarginWithDistanceLoss Unflatten Unfold Upsample"
    " UpsamplingBilinear2d UpsamplingNearest2d ZeroPad1d ZeroPad2d ZeroPad3d"
)
"""Classes of `torch.nn`."""
FUNCTIONAL = names(
    "adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d adaptive_max_pool1d"
    " adaptive_max_pool1d_with_indices adaptive_max_pool2d adaptive_max_pool2d_with_indices adaptive_max_pool3d"
    " adaptive_max_pool3d_with_indices affine_grid alpha_dropout avg_pool1d avg_pool2d avg_pool3d batch_norm"
    " bilinear binary_cross_entropy binary_cross_entropy_with_logits celu celu_ channel_shuffle conv1d conv2d"
    " conv3d conv_tbc conv_transpose1d conv_transpose2d conv_transpose3d cosine_embedding_loss cosine_similarity"
    " cross_entropy ctc_loss dropout dropout1d dropout2d dropout3d elu elu_ embedding embedding_bag"
    " feature_alpha_dropout fold fractional_max_pool2d fractional_max_pool2d_with_indices fractional_max_pool3d"
    " fractional_max_pool3d_with_indices gaussian_nll_loss gelu glu grid_sample group_norm grouped_mm"
    " gumbel_softmax hardshrink hardsigmoid hardswish hardtanh hardtanh_ hinge_embedding_loss huber_loss"
    " instance_norm interpolate kl_div l1_loss layer_norm leaky_relu leaky_relu_ linear linear_cross_entropy"
    " local_response_norm log_softmax logsigmoid lp_pool1d lp_pool2d lp_pool3d margin_ranking_loss max_pool1d"
    " max_pool1d_with_indices max_pool2d max_pool2d_with_indices max_pool3d max_pool3d_with_indices max_unpool1d"
    " max_unpool2d max_unpool3d mish mse_loss multi_head_attention_forward multi_margin_loss"
    " multilabel_margin_loss multilabel_soft_margin_loss native_channel_shuffle nll_loss normalize one_hot pad"
    " pairwise_distance pdist pixel_shuffle pixel_unshuffle poisson_nll_loss prelu relu relu6 relu_ rms_norm"
    " rrelu rrelu_ scaled_dot_product_attention scaled_grouped_mm scaled_mm selu selu_ sigmoid silu"
    " smooth_l1_loss soft_margin_loss softmax softmin softplus softshrink softsign tanh tanhshrink threshold"
    " threshold_ triplet_margin_loss triplet_margin_with_distance_loss unfold upsample upsample_bilinear"
    " upsample_nearest"
)
"""Functions of `torch.nn.functional`."""
INIT = names(
    "_calculate_correct_fan _calculate_fan_in_and_fan_out calculate_gain constant constant_ dirac dirac_ eye"
    " eye_ kaiming_normal kaiming_normal_ kaiming_uniform kaiming_uniform_ normal normal_ ones_ orthogonal"
    " orthogonal_ sparse sparse_ trunc_normal_ uniform uniform_ xavier_normal xavier_normal_ xavier_uniform"
    " xavier_uniform_ zeros_"
)
"""Functions of `torch.nn.init`."""
LINALG = names(
    "cholesky cholesky_ex cond cross det diagonal eig eigh eigvals eigvalsh householder_product inv inv_ex"
    " ldl_factor ldl_factor_ex ldl_solve lstsq lu lu_factor lu_factor_ex lu_solve matmul matrix_exp matrix_norm"
    " matrix_power matrix_rank multi_dot norm pinv qr slogdet solve solve_ex solve_triangular svd svdvals"
    " tensorinv tensorsolve vander vecdot vector_norm"
)
"""Functions of `torch.linalg`."""
SPECIAL = names(
    "airy_ai bessel_j0 bessel_j1 bessel_y0 bessel_y1 chebyshev_polynomial_t chebyshev_polynomial_u"
    " chebyshev_polynomial_v chebyshev_polynomial_w digamma entr erf erfc erfcx erfinv exp2 expit expm1 gammainc"
    " gammaincc gammaln hermite_polynomial_h hermite_polynomial_he i0 i0e i1 i1e laguerre_polynomial_l"
    " legendre_polynomial_p log1p log_ndtr log_softmax logit logsumexp modified_bessel_i0 modified_bessel_i1"
    " modified_bessel_k0 modified_bessel_k1 multigammaln ndtr ndtri polygamma psi round"
    " scaled_modified_bessel_k0 scaled_modified_bessel_k1 shifted_chebyshev_polynomial_t"
    " shifted_chebyshev_polynomial_u shifted_chebyshev_polynomial_v shifted_chebyshev_polynomial_w sinc softmax"
    " spherical_bessel_j0 xlog1py xlogy zeta"
)
"""Functions of `torch.special`."""
FFT = names(
    "fft fft2 fftfreq fftn fftshift hfft hfft2 hfftn ifft ifft2 ifftn ifftshift ihfft ihfft2 ihfftn irfft"
    " irfft2 irfftn rfft rfft2 rfftfreq rfftn"
)
"""Functions of `torch.fft`."""
UNUSUAL = names(
    "H T_destination adjoint apply_ as_subclass call_super_init cauchy_ ccol_indices coalesce col_indices"
    " compile conj conj_physical conj_physical_ const_data_ptr crow_indices dense_dim dequantize dim_order"
    " dump_patches eig geometric_ get_extra_state get_submodule grad_dtype grad_fn hash_tensor indices int_repr"
    " ipu is_coalesced is_conj is_distributed is_ipu is_maia is_meta is_mkldnn is_mps is_mtia is_neg is_nested"
    " is_quantized is_set_to is_shared is_sparse_csr is_vulkan is_xla is_xpu istft log_normal_ lstsq mH map2_"
    " map_ module_load mtia name nelement new nonzero_static numpy output_nr q_per_channel_axis"
    " q_per_channel_scales q_per_channel_zero_points q_scale q_zero_point qscheme register_backward_hook"
    " register_forward_hook register_forward_pre_hook register_full_backward_hook"
    " register_full_backward_pre_hook register_hook register_load_state_dict_post_hook"
    " register_load_state_dict_pre_hook register_post_accumulate_grad_hook register_state_dict_post_hook"
    " register_state_dict_pre_hook reinforce resize resize_ resize_as resize_as_ resize_as_sparse_ resolve_conj"
    " resolve_neg retain_grad retains_grad row_indices set_ set_extra_state set_submodule share_memory"
    " share_memory_ slice_inverse smm solve sparse_dim sparse_mask sparse_resize_ sparse_resize_and_clear_"
    " sspaddmm stft storage storage_type symeig to_empty to_mkldnn to_padded_tensor to_sparse to_sparse_bsc"
    " to_sparse_bsr to_sparse_coo to_sparse_csc to_sparse_csr unsafe_chunk unsafe_split unsafe_split_with_sizes"
    " untyped_storage volatile xpu"
)
"""Attributes of tensors and modules that no kernel needs."""
MODULE = names(
    "add_module apply buffers children eval extra_repr forward get_buffer get_parameter load_state_dict modules"
    " named_buffers named_children named_modules named_parameters parameters register_buffer register_module"
    " register_parameter state_dict train training zero_grad"
)
"""Attributes of a module."""
MODULE_PRIVATE = names(
    "_apply _backward_hooks _backward_pre_hooks _buffers _call_impl _compiled_call_impl _forward_hooks"
    " _forward_hooks_always_called _forward_hooks_with_kwargs _forward_pre_hooks _forward_pre_hooks_with_kwargs"
    " _get_backward_hooks _get_backward_pre_hooks _get_name _is_full_backward_hook _load_from_state_dict"
    " _load_state_dict_post_hooks _load_state_dict_pre_hooks _maybe_warn_non_full_backward_hook _modules"
    " _named_members _non_persistent_buffers_set _parameters _register_load_state_dict_pre_hook"
    " _register_state_dict_hook _replicate_for_data_parallel _save_to_state_dict _slow_forward _state_dict_hooks"
    " _state_dict_pre_hooks _version _wrapped_call_impl"
)
"""What a module keeps of its own."""
