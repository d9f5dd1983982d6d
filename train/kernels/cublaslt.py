"""Matrix products of cuBLASLt that do more than multiply, which torch does not offer: GELU and its gradient within.

The library is the one that torch itself has loaded; its C interface is called by ctypes (cuBLAS's documentation,
"Using the cuBLASLt API"; figures of the enumerations are those of cublasLt.h, where they have stayed since 11.0).

cuBLASLt counts in columns: a tensor (R, C) of rows is to it a matrix of C rows and R columns, and X·Wᵀ, written as
rows, is W·Xᵀ. Everything is bf16, with sums in fp32. Shapes below are torch's: M rows, K and N columns.
"""

import ctypes
import threading
from ctypes import byref, c_float, c_int, c_int32, c_int64, c_size_t, c_uint64, c_void_p
from dataclasses import dataclass, field
from enum import IntEnum
from functools import cache
from itertools import pairwise
from operator import itemgetter
from typing import Any

import torch
from torch import Tensor

_SUCCESS = 0
_COMPUTE_32F, _REAL_32F, _REAL_16BF = 68, 0, 14
_MAX_WORKSPACE_BYTES = 1  # of a preference
_WORKSPACE_BYTES = 32 << 20  # what cuBLAS takes on Hopper by itself
_ALIGNED = 8  # elements: 16 bytes
_TRIED, _TIMES = 8, 5  # ways that are timed, and how often each
_HOPPER = 9


class _Key(IntEnum):
    """Attributes of a product."""

    TRANSPOSE_A = 3
    TRANSPOSE_B = 4
    EPILOGUE = 7
    BIAS = 8
    AUXILIARY = 11
    AUXILIARY_COLUMNS = 12
    BIAS_TYPE = 26


class _Epilogue(IntEnum):
    """What a product does with its sums before they are written."""

    GELU_KEEPING_BIAS = 164  # adds a bias, writes that (auxiliary), and its GELU, by tanh
    GELU_GRADIENT = 192  # multiplies by the slope of GELU at the auxiliary


class _Found(ctypes.Structure):
    """One way to compute a product, of those that the library suggests."""

    _fields_ = (("algorithm", c_uint64 * 8), ("workspace_bytes", c_size_t), ("status", c_int), ("waves", c_float),
                ("reserved", c_int * 4))  # fmt: skip


@torch.compiler.assume_constant_result
def has_gelu_products(device: torch.device) -> bool:
    """Return whether these products are to be had on a device: on NVIDIA's Hopper, where they were measured."""
    if device.type != "cuda" or torch.version.hip is not None or _library() is None:
        return False
    return torch.cuda.get_device_capability(device)[0] == _HOPPER


def linear_gelu(x: Tensor, weight: Tensor, bias: Tensor) -> tuple[Tensor, Tensor] | None:
    """Return GELU(y) and y = x·weightᵀ + bias, both (M, N): x (M, K), weight (N, K), bias (N,), rows without gaps.

    None where cuBLASLt knows no way: of sizes that are no multiples of eight, say.
    """
    (rows, inner), columns = x.shape, len(weight)
    product = _product(x.device.index, columns, rows, inner, True, _Epilogue.GELU_KEEPING_BIAS)
    if not product.ways:
        return None
    activated, kept = x.new_empty(rows, columns), x.new_empty(rows, columns)
    product.run(weight, x, activated, kept, bias)
    return activated, kept


def product_gelu_gradient(gradient: Tensor, weight: Tensor, kept: Tensor) -> Tensor | None:
    """Return (gradient·weight) × GELU′(kept), (M, N): gradient (M, K), weight (K, N), kept (M, N), rows without gaps.

    None as of `linear_gelu`.
    """
    (rows, inner), columns = gradient.shape, weight.shape[1]
    product = _product(gradient.device.index, columns, rows, inner, False, _Epilogue.GELU_GRADIENT)
    if not product.ways:
        return None
    result = torch.empty_like(kept)
    product.run(weight, gradient, result, kept)
    return result


@dataclass
class _Product:
    """A product as cuBLASLt is told of it, and the ways to compute it, the fastest first; none where it knows none.

    `lock`: what the description points to changes with each call.
    """

    handle: c_void_p
    description: c_void_p
    left: c_void_p
    right: c_void_p
    result: c_void_p
    ways: list[_Found]
    timed: bool = False
    lock: threading.Lock = field(default_factory=threading.Lock)

    def run(self, left: Tensor, right: Tensor, result: Tensor, auxiliary: Tensor, bias: Tensor | None = None) -> None:
        """Compute on the current stream; raises RuntimeError where cuBLASLt refuses."""
        with self.lock:
            _set(self.description, _Key.AUXILIARY, c_void_p(auxiliary.data_ptr()))
            if bias is not None:
                _set(self.description, _Key.BIAS, c_void_p(bias.data_ptr()))
            if not self.timed and not torch.cuda.is_current_stream_capturing():
                times = [self._time(way, left, right, result) for way in self.ways]
                self.ways = [way for _, way in sorted(zip(times, self.ways, strict=True), key=itemgetter(0))]
                self.timed = True
            self._compute(self.ways[0], left, right, result)

    def _time(self, way: _Found, left: Tensor, right: Tensor, result: Tensor) -> float:
        """Return a way's shortest time in ms: what it comes first by, for as many calls as the job makes."""
        marks = [torch.cuda.Event(enable_timing=True) for _ in range(_TIMES + 1)]
        for mark in marks[:-1]:
            mark.record()
            self._compute(way, left, right, result)
        marks[-1].record()
        marks[-1].synchronize()
        return min(begin.elapsed_time(end) for begin, end in pairwise(marks))

    def _compute(self, way: _Found, left: Tensor, right: Tensor, result: Tensor) -> None:
        workspace = torch.empty(way.workspace_bytes, dtype=torch.uint8, device=result.device)
        one, zero, out = c_float(1.0), c_float(0.0), c_void_p(result.data_ptr())
        stream = torch.cuda.current_stream(result.device).cuda_stream
        _call("cublasLtMatmul", self.handle, self.description, byref(one), c_void_p(left.data_ptr()), self.left,
              c_void_p(right.data_ptr()), self.right, byref(zero), out, self.result, out, self.result,
              byref(way.algorithm), c_void_p(workspace.data_ptr()), c_size_t(way.workspace_bytes),
              c_void_p(stream))  # fmt: skip


@cache
def _product(device: int, rows: int, columns: int, inner: int, transpose_left: bool, epilogue: _Epilogue) -> _Product:
    """Return a product of cuBLASLt's shape, `rows` × `columns`, with the ways that it suggests."""
    description = c_void_p()
    _call("cublasLtMatmulDescCreate", byref(description), c_int(_COMPUTE_32F), c_int(_REAL_32F))
    _set(description, _Key.TRANSPOSE_A, c_int32(transpose_left))
    _set(description, _Key.TRANSPOSE_B, c_int32(False))
    _set(description, _Key.EPILOGUE, c_int32(epilogue))
    _set(description, _Key.AUXILIARY_COLUMNS, c_int64(rows))
    _set(description, _Key.BIAS_TYPE, c_int32(_REAL_16BF))
    left = _layout(inner, rows) if transpose_left else _layout(rows, inner)
    right, result, handle = _layout(inner, columns), _layout(rows, columns), _handle(device)
    aligned = not any(size % _ALIGNED for size in (rows, columns, inner))
    ways = _suggested(handle, description, left, right, result) if aligned else []
    return _Product(handle, description, left, right, result, ways)


def _suggested(
    handle: c_void_p, description: c_void_p, left: c_void_p, right: c_void_p, result: c_void_p
) -> list[_Found]:
    """Return the ways that cuBLASLt suggests, what it takes for the fastest first."""
    preference, found, count = c_void_p(), (_Found * _TRIED)(), c_int()
    _call("cublasLtMatmulPreferenceCreate", byref(preference))
    limit = c_uint64(_WORKSPACE_BYTES)
    _call("cublasLtMatmulPreferenceSetAttribute", preference, c_int(_MAX_WORKSPACE_BYTES), byref(limit), c_size_t(8))
    library = _library()
    assert library is not None
    status = library.cublasLtMatmulAlgoGetHeuristic(handle, description, left, right, result, result, preference,
                                                    c_int(_TRIED), found, byref(count))  # fmt: skip
    _call("cublasLtMatmulPreferenceDestroy", preference)
    return [one for one in found[: count.value] if one.status == _SUCCESS] if status == _SUCCESS else []


def _layout(rows: int, columns: int) -> c_void_p:
    made = c_void_p()
    _call("cublasLtMatrixLayoutCreate", byref(made), c_int(_REAL_16BF), c_uint64(rows), c_uint64(columns),
          c_int64(rows))  # fmt: skip
    return made


def _set(description: c_void_p, key: _Key, value: Any) -> None:
    _call("cublasLtMatmulDescSetAttribute", description, c_int(key), byref(value), c_size_t(ctypes.sizeof(value)))


@cache
def _handle(device: int) -> c_void_p:
    made = c_void_p()
    with torch.cuda.device(device):
        _call("cublasLtCreate", byref(made))
    return made


def _call(function: str, *arguments: Any) -> None:
    """Raise RuntimeError with what cuBLASLt returned, unless it succeeded."""
    library = _library()
    assert library is not None
    if status := getattr(library, function)(*arguments):
        raise RuntimeError(f"{function} returned status {status} (cublasStatus_t)")


@cache
def _library() -> ctypes.CDLL | None:
    """Return cuBLASLt of the CUDA that torch was built with; None where there is none."""
    if torch.version.cuda is None:
        return None
    try:
        return ctypes.CDLL(f"libcublasLt.so.{torch.version.cuda.partition('.')[0]}")
    except OSError:
        return None
