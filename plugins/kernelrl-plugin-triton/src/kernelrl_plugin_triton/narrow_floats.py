"""bfloat16 and float8 in Triton's interpreter, with the results of a device.

NumPy lacks these types. Triton's interpreter keeps their bits in integers, and would calculate with the integers.

Here a block of a narrow type is an array of float32, of which every value exists in the narrow type. Loads, stores and
bitcasts convert between values and bits. Operators compute in float32, and each result is rounded where the interpreter
wraps it (`TensorHandle`): to the nearest value, to the even one of two. Reductions and scans round after each addition
or product, as the device code does; their order is that of a tree, since the one of a device depends on its threads.

Triton compiles no arithmetic and no comparison of float8, so neither is interpreted.
"""

from __future__ import annotations

import functools
import operator
from typing import Any

import attrs
import numpy as np
import triton.language as tl
from triton._C.libtriton import ir
from triton.compiler.errors import CompilationError
from triton.runtime import interpreter

__all__ = ["install"]


@attrs.frozen
class _Format:
    """A narrow type."""

    digits: int
    """Binary digits of a normal value."""
    least: int
    """Exponent of the smallest normal value, as `frexp` returns it."""
    greatest: float
    """Largest finite value."""
    codes: Any
    """Type of the language with the same number of bits."""

    @property
    def is_float8(self) -> bool:
        return bool(self.codes is tl.uint8)

    def rounded(self, values: Any, toward_zero: bool = False) -> Any:
        """The values of this format that are nearest to `values`, in float32."""
        if values.dtype == np.float32 and not (self.is_float8 or toward_zero):
            return _in_bfloat16(values)
        with np.errstate(over="ignore", invalid="ignore"):
            # Of float16, a larger neighbour may not exist; integers of 32 bits are exact in float64.
            wide = np.float32 if values.dtype == np.float16 else np.float64
            values = values if values.dtype in (np.float32, np.float64) else values.astype(wide)
            exponents = np.frexp(values)[1]
            # The distance of neighbouring values of the format is 2 ** step.
            steps = np.maximum(exponents, self.least) - self.digits
            whole = np.trunc if toward_zero else np.rint
            rounded = np.ldexp(whole(np.ldexp(values, -steps)), steps).astype(np.float32)
            # Operations on a NaN could change its payload.
            return np.where(np.isnan(values), values.astype(np.float32), rounded)

    def encoded(self, values: Any) -> Any:
        """Bits of values of this format."""
        if self.is_float8:
            known = _positive(self)
            codes = np.where(np.isnan(values), 0x7F, np.searchsorted(known, np.abs(values)))
            return (codes + 0x80 * np.signbit(values)).astype(np.uint8)
        codes = (values.view(np.uint32) >> 16).astype(np.uint16)
        # Without its payload, a NaN would be an infinity.
        is_lost = np.isnan(values) & (codes & np.uint16(0x7F) == 0)
        return np.where(is_lost, codes | np.uint16(0x40), codes)

    def decoded(self, codes: Any) -> Any:
        """Values of bits of this format."""
        if self.is_float8:
            known = _positive(self)
            return np.where(codes & 0x80, -known[codes & 0x7F], known[codes & 0x7F])
        return (codes.astype(np.uint32) << 16).view(np.float32)


_FORMATS = {
    tl.bfloat16.name: _Format(digits=8, least=-125, greatest=float.fromhex("0x1.fep127"), codes=tl.uint16),
    tl.float8e4nv.name: _Format(digits=4, least=-5, greatest=448.0, codes=tl.uint8),
    tl.float8e5.name: _Format(digits=3, least=-13, greatest=57344.0, codes=tl.uint8),
}
"""Narrow types that Triton compiles for NVIDIA GPUs since Hopper. Its front end refuses the others, except for
float8e4b15."""


def _in_bfloat16(values: Any) -> Any:
    """The same as `rounded`, several times as fast: bfloat16 is the first half of float32."""
    bits = values.view(np.uint32)
    if not (bits & np.uint32(0xFFFF)).any():
        return values
    # Rounded up if the second half is above the middle, or at the middle and the first half is odd.
    rounded = bits + np.uint32(0x7FFF) + ((bits >> 16) & np.uint32(1)) & np.uint32(0xFFFF0000)
    return np.where(np.isnan(values), values, rounded.view(np.float32))


@functools.cache
def _positive(kind: _Format) -> Any:
    """Values of the codes 0 to 127 of a float8: zero, finite values in ascending order, infinity if it exists, NaN."""
    codes = np.arange(128)
    mantissa_bits = kind.digits - 1
    exponents = codes >> mantissa_bits
    digits = (codes & ((1 << mantissa_bits) - 1)) + ((exponents > 0) << mantissa_bits)
    values = np.ldexp(digits.astype(np.float32), np.maximum(exponents, 1) + kind.least - 1 - kind.digits)
    values[values > kind.greatest] = np.nan
    if kind is _FORMATS[tl.float8e5.name]:
        values[0x7C] = np.inf
    return values


def _format(dtype: Any) -> _Format | None:
    return _FORMATS.get(dtype.scalar.name)


def _handle(values: Any, dtype: Any) -> Any:
    return interpreter.TensorHandle(values, dtype)


def install() -> None:
    """Interpret narrow types in every launch of this process from now on."""
    interpreter._get_np_dtype = _in_float32(interpreter._get_np_dtype)
    interpreter._validate_np_data_size = _of_any_size(interpreter._validate_np_data_size)
    interpreter.TensorHandle.__post_init__ = _rounding(interpreter.TensorHandle.__post_init__)
    builder = interpreter.InterpreterBuilder
    builder.create_masked_load = _decoding(builder.create_masked_load)
    builder.create_masked_store = _encoding(builder.create_masked_store)
    builder.create_bitcast = _bitcast(builder.create_bitcast)
    builder.create_int_to_ptr = builder.create_ptr_to_int = builder.create_bitcast
    builder.cast_impl = _cast(builder.cast_impl)
    builder.create_fp_to_fp = _cast(builder.create_fp_to_fp)
    for name in ("binary_op", "unary_op", "create_clampf"):
        setattr(builder, name, _not_of_float8(getattr(builder, name)))
    builder.create_fma = _not_of_float8(_fused(builder.create_fma))
    builder.create_fabs = _absolute(builder.create_fabs)
    builder.create_dot = _product(builder.create_dot)
    builder.create_atomic_rmw = _added(builder.create_atomic_rmw)
    builder.create_atomic_cas = _compared(builder.create_atomic_cas)
    for name in ("_mxfp_value_handle_to_float32", "_dot_scaled_scale_to_f32"):
        # They are new in later versions of Triton.
        if hasattr(interpreter, name):
            setattr(interpreter, name, _already_float32(getattr(interpreter, name)))
    if not hasattr(builder, "get_bf16"):  # before Triton 3.9
        builder.get_bf16 = _bfloat16
    interpreter.ReduceOps.apply_impl = _in_pairs(interpreter.ReduceOps.apply_impl)
    interpreter.ScanOps.cumsum = _doubling(interpreter.ScanOps.cumsum, np.add)
    interpreter.ScanOps.cumprod = _doubling(interpreter.ScanOps.cumprod, np.multiply)


# Representation


def _in_float32(choose: Any) -> Any:
    @functools.wraps(choose)
    def wrapper(dtype: Any) -> Any:
        return np.dtype(np.float32) if _format(dtype) else choose(dtype)

    return wrapper


def _of_any_size(validate: Any) -> Any:
    @functools.wraps(validate)
    def wrapper(values: Any, dtype: Any) -> Any:
        return bool(_format(dtype)) or validate(values, dtype)

    return wrapper


def _rounding(check: Any) -> Any:
    @functools.wraps(check)
    def wrapper(self: Any) -> None:
        kind = _format(self.dtype)
        # Comparisons have the type of their operands at first.
        if kind is not None and self.data.dtype.kind != "b":
            self.data = kind.rounded(self.data)
        check(self)

    return wrapper


def _bfloat16(builder: Any, value: float) -> Any:
    """A constant in bfloat16."""
    return builder.create_fp_trunc(builder.get_fp32(value), tl.bfloat16)


def _bits(values: Any) -> Any:
    """The bits of a block of a narrow type, as integers; another block as it is."""
    kind = _format(values.dtype)
    return values if kind is None else _handle(kind.encoded(values.data), kind.codes)


def _places(pointers: Any, kind: _Format) -> Any:
    """Pointers to values of a narrow type, as pointers to their bits."""
    return _handle(pointers.data, tl.pointer_type(kind.codes))


def _decoding(load: Any) -> Any:
    @functools.wraps(load)
    def wrapper(self: Any, pointers: Any, mask: Any, other: Any, *more: Any, **named: Any) -> Any:
        dtype = pointers.get_element_ty()
        kind = _format(dtype)
        if kind is None:
            return load(self, pointers, mask, other, *more, **named)
        other = None if other is None else _bits(other)
        found = load(self, _places(pointers, kind), mask, other, *more, **named)
        return _handle(kind.decoded(found.data), dtype)

    return wrapper


def _encoding(store: Any) -> Any:
    @functools.wraps(store)
    def wrapper(self: Any, pointers: Any, value: Any, *more: Any, **named: Any) -> Any:
        kind = _format(value.dtype)
        places = pointers if kind is None else _places(pointers, kind)
        return store(self, places, _bits(value), *more, **named)

    return wrapper


def _bitcast(cast: Any) -> Any:
    @functools.wraps(cast)
    def wrapper(self: Any, source: Any, dtype: Any) -> Any:
        kind = _format(dtype)
        if kind is None:
            return cast(self, _bits(source), dtype)
        return _handle(kind.decoded(cast(self, _bits(source), kind.codes).data), dtype.scalar)

    return wrapper


# Casts


def _cast(cast: Any) -> Any:
    @functools.wraps(cast)
    def wrapper(self: Any, source: Any, dtype: Any, mode: Any = None) -> Any:
        before, after, toward_zero = source.dtype.scalar, dtype.scalar, mode == ir.ROUNDING_MODE.RTZ
        if tl.float8e4b15 in (before, after):
            raise NotImplementedError("float8e4b15 is not interpreted; use float8e4nv or float8e5")
        if not (_format(before) or _format(after)):
            return cast(self, source, dtype) if mode is None else cast(self, source, dtype, mode)
        _refuse_cast(before, after, toward_zero)
        kind = _format(after)
        if kind is not None:
            values = kind.rounded(source.data, toward_zero)
            if kind.is_float8:
                # Devices saturate; toward zero, infinity remains.
                finite = np.clip(values, -kind.greatest, kind.greatest)
                values = np.where(np.isinf(source.data), values, finite) if toward_zero else finite
            return _handle(values, after)
        with np.errstate(over="ignore", invalid="ignore"):
            return _handle(source.data.astype(interpreter._get_np_dtype(after)), after)

    return wrapper


def _refuse_cast(before: Any, after: Any, toward_zero: bool) -> None:
    """Raise an error for a cast that Triton does not compile."""
    rounding = " with rounding toward zero" if toward_zero else ""
    has_float8 = any(kind is not None and kind.is_float8 for kind in (_format(before), _format(after)))
    compiled = (tl.float16, tl.bfloat16, tl.float32)
    if toward_zero and (before != tl.float32 or after == tl.float8e4nv):
        raise _not_compiled(f"no cast of {before} to {after}{rounding}; cast to float32 first, or round to nearest")
    if has_float8 and before not in compiled and after not in compiled:
        raise _not_compiled(f"no cast of {before} to {after}; cast to float32 first")


def _not_compiled(what: str) -> Any:
    return CompilationError(f"Triton compiles {what}", None)


# Operators


def _not_of_float8(operate: Any) -> Any:
    @functools.wraps(operate)
    def wrapper(self: Any, *given: Any, **named: Any) -> Any:
        _refuse_float8(given[0].dtype)
        return operate(self, *given, **named)

    return wrapper


def _refuse_float8(dtype: Any) -> None:
    kind = _format(dtype)
    if (kind is not None and kind.is_float8) or dtype.scalar == tl.float8e4b15:
        raise _not_compiled(f"no arithmetic and no comparison of {dtype.scalar}; cast to float32 or float16 first")


def _fused(fma: Any) -> Any:
    """Multiply and add exactly (in float64), and round once."""

    @functools.wraps(fma)
    def wrapper(self: Any, left: Any, right: Any, more: Any) -> Any:
        kind = _format(more.dtype)
        if kind is None:
            return fma(self, left, right, more)
        total = left.data.astype(np.float64) * right.data + more.data
        return _handle(kind.rounded(total), more.dtype)

    return wrapper


def _absolute(absolute: Any) -> Any:
    @functools.wraps(absolute)
    def wrapper(self: Any, given: Any) -> Any:
        return _handle(np.abs(given.data), given.dtype) if _format(given.dtype) else absolute(self, given)

    return wrapper


def _product(dot: Any) -> Any:
    """Multiply in float32, in which products of narrow values are exact."""

    @functools.wraps(dot)
    def wrapper(self: Any, left: Any, right: Any, *more: Any, **named: Any) -> Any:
        wide = (_handle(factor.data, tl.float32) if _format(factor.dtype) else factor for factor in (left, right))
        return dot(self, *wide, *more, **named)

    return wrapper


def _already_float32(convert: Any) -> Any:
    @functools.wraps(convert)
    def wrapper(given: Any, *more: Any) -> Any:
        return given.data if _format(given.dtype) else convert(given, *more)

    return wrapper


# Atomic operations


def _added(operate: Any) -> Any:
    """Add element by element: several lanes may have one address, and each addition rounds."""

    @functools.wraps(operate)
    def wrapper(self: Any, operation: Any, pointers: Any, value: Any, mask: Any, *more: Any) -> Any:
        kind = _format(value.dtype)
        if kind is None or operation != ir.ATOMIC_OP.FADD:
            # Triton compiles no other one for narrow types.
            return operate(self, operation, pointers, value, mask, *more)
        memory, places = interpreter._interpreter, pointers.data
        active = np.broadcast_to(mask.data, places.shape).astype(bool)
        before = np.zeros(places.shape, dtype=np.float32)
        ranks = _ranks(places)
        for rank in np.unique(ranks[active]):
            lanes = active & (ranks == rank)
            codes = memory.load(places, lanes, kind.encoded(before), interpreter._get_np_dtype(kind.codes))
            before[lanes] = kind.decoded(codes)[lanes]
            memory.store(places, kind.encoded(kind.rounded(before + value.data)), lanes)
        return _handle(before, value.dtype)

    return wrapper


def _ranks(places: Any) -> Any:
    """Number of earlier lanes with the same address."""
    flat = places.reshape(-1)
    order = np.argsort(flat, kind="stable")
    ranks = np.empty(flat.size, dtype=np.int64)
    ranks[order] = np.arange(flat.size) - np.searchsorted(flat[order], flat[order])
    return ranks.reshape(places.shape)


def _compared(operate: Any) -> Any:
    @functools.wraps(operate)
    def wrapper(self: Any, pointers: Any, expected: Any, value: Any, *more: Any) -> Any:
        kind = _format(value.dtype)
        if kind is None:
            return operate(self, pointers, expected, value, *more)
        found = operate(self, _places(pointers, kind), _bits(expected), _bits(value), *more)
        return _handle(kind.decoded(found.data), value.dtype)

    return wrapper


# Reductions and scans


def _in_pairs(reduce: Any) -> Any:
    """Combine neighbours, then neighbouring results, and so on."""

    @functools.wraps(reduce)
    def wrapper(self: Any, given: Any) -> Any:
        if not any(_format(each.dtype) for each in given):
            return reduce(self, given)
        if _is_of_language(self.combine_fn):
            for each in given:
                _refuse_float8(each.dtype)
            if self.combine_fn is not tl.standard._sum_combine:
                # Least and largest values need no rounding.
                return reduce(self, given)
        shape = given[0].handle.data.shape
        axes = range(len(shape)) if self.axis is None else [operator.index(self.axis) % len(shape)]
        for axis in axes:
            inner = interpreter.ReduceOps(axis + 1, self.combine_fn, False)
            while given[0].handle.data.shape[axis] > 1:
                halved = reduce(inner, tuple(_paired(self, each, axis) for each in given))
                given = tuple(halved) if isinstance(halved, list | tuple) else (halved,)
        return reduce(self, given)

    return wrapper


def _is_of_language(combine: Any) -> bool:
    return str(combine.fn.__module__).startswith("triton.language")


def _paired(reduction: Any, given: Any, axis: int) -> Any:
    """A block with a new axis behind `axis`, of two neighbours each."""
    values = given.handle.data
    shape = (*values.shape[:axis], values.shape[axis] // 2, 2, *values.shape[axis + 1 :])
    return reduction.to_tensor(values.reshape(shape), given.dtype)


def _doubling(scan: Any, operation: Any) -> Any:
    """Combine each element with its predecessor, then with the second one before it, the fourth, and so on."""

    @functools.wraps(scan)
    def wrapper(self: Any, given: Any) -> Any:
        kind = _format(given.dtype)
        if kind is None:
            return scan(self, given)
        _refuse_float8(given.dtype)
        values = np.array(given.handle.data)
        along = np.moveaxis(values, operator.index(self.axis), 0)
        distance = 1
        while distance < len(along):
            along[distance:] = kind.rounded(operation(along[distance:], along[:-distance]))
            distance *= 2
        return [self.to_tensor(values, given.dtype)]

    return wrapper
