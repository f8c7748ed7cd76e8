"""attune.quantize: FP16 and BF16 to E4M3 with one factor per head."""

from collections.abc import Sequence
from typing import List, Literal, Optional, overload

import torch
from torch import Tensor

from attune import _arguments, _check, _library, _workspace

_LARGEST = 448.0
_SMALLEST_AMAX = 2.0**-112

# 1 / sqrt(dim) with the roundings of float32.
_INVERSE_ROOTS = {2**i: (1 / torch.tensor(2.0**i).sqrt()).item() for i in range(17)}


Descale = tuple[Tensor, Tensor, Tensor]


@overload
def quantize(q: Tensor, *, hadamard: bool = ...) -> tuple[Tensor, Tensor]: ...


@overload
def quantize(q: Tensor, k: Tensor, v: Tensor, *, smooth_k: bool = ..., hadamard: bool = ...,
             return_mean: Literal[False] = ...) -> tuple[Tensor, Tensor, Tensor, Descale]: ...  # fmt: skip


@overload
def quantize(q: Tensor, k: Tensor, v: Tensor, *, smooth_k: bool = ..., hadamard: bool = ...,
             return_mean: Literal[True]) -> tuple[Tensor, Tensor, Tensor, Descale, Tensor]: ...  # fmt: skip


def quantize(
    q: Tensor,
    k: Optional[Tensor] = None,
    v: Optional[Tensor] = None,
    *,
    smooth_k: bool = False,
    hadamard: bool = False,
    return_mean: bool = False,
) -> object:
    """E4M3 tensors with a factor per head, so that x is about y * descale.

    quantize(x) is (y, descale). quantize(q, k, v) is (q8, k8, v8, descale) with descale = (of q, of
    k, of v), as attune.sdpa takes them. Tensors are [batch, heads, rows, head_dim]; a factor is
    float32 [batch, heads]. The largest finite element of a head becomes 448; NaN stays NaN, and an
    infinity becomes 448.

    smooth_k subtracts from k the mean of each column of a head. hadamard multiplies the rows of q
    and k by the Hadamard matrix over sqrt(head_dim). return_mean: the last result is that mean,
    float32 [batch, kv_heads, head_dim].

    FP16 and BF16 on a GPU since Ampere take one launch; elsewhere, and of float32 and float64, PyTorch
    computes the same in float32.
    """
    _check_tensors(q, k, v)
    smooth_k, hadamard = _check.flag("smooth_k", smooth_k), _check.flag("hadamard", hadamard)
    return_mean = _check.flag("return_mean", return_mean)
    if (smooth_k or return_mean) and k is None:
        raise ValueError(f"{'smooth_k' if smooth_k else 'return_mean'} is set, and there is no k")
    if hadamard and (q.shape[3] == 0 or q.shape[3] & (q.shape[3] - 1)):
        raise ValueError(f"hadamard is set, and head_dim is {q.shape[3]}: it must be a power of two")
    results = _computed(q, k, v, smooth_k, hadamard)
    if k is None:
        return results[0], results[1]
    y_q, descale_q, y_k, descale_k, y_v, descale_v, mean = results
    quantised = (y_q, y_k, y_v, (descale_q, descale_k, descale_v))
    return (*quantised, mean) if return_mean else quantised


def _check_tensors(q: Tensor, k: Optional[Tensor], v: Optional[Tensor]) -> None:
    if (k is None) != (v is None):
        raise ValueError(f"{'k' if k is None else 'v'} is missing: quantize takes one tensor, or q, k and v")
    given = [("q", q), *((name, x) for name, x in (("k", k), ("v", v)) if x is not None)]
    for name, x in given:
        _check.tensor(name, x, ("batch", "heads", "rows", "head_dim"))
        if not x.is_floating_point() or x.dtype.itemsize < 2:
            raise TypeError(f"{name} is {x.dtype}, not float16, bfloat16, float32 or float64")
        if x.dtype != q.dtype:
            raise TypeError(f"{name} is {x.dtype}, and q is {q.dtype}")
        _check.beside(name, x, "q", q)
        if name != "q" and (x.shape[0], x.shape[3]) != (q.shape[0], q.shape[3]):
            raise ValueError(f"{name} is {list(x.shape)}, and q is {list(q.shape)}: batch and head_dim differ")
    if k is not None and v is not None and k.shape != v.shape:
        raise ValueError(f"k is {list(k.shape)}, and v is {list(v.shape)}")


def _computed(q: Tensor, k: Optional[Tensor], v: Optional[Tensor], smooth_k: bool, hadamard: bool) -> Sequence[Tensor]:
    given = [x for x in (q, k, v) if x is not None]
    halves = q.is_cuda and q.dtype in _check.HALVES and not _arguments.is_transformed(*given)
    if torch.is_grad_enabled() and any(x.requires_grad for x in given):
        halves = False  # the kernels have no backward pass
    if halves and _arguments.is_traced(*given):
        results: list[Tensor] = _quantize_op(q, k, v, bool(smooth_k), bool(hadamard))
        return results
    if halves:
        return _run(q, k, v, smooth_k, hadamard)
    return by_torch(q, k, v, smooth_k, hadamard)


def _outputs(q: Tensor, k: Optional[Tensor], v: Optional[Tensor]) -> list[Tensor]:
    """Tensors for y and descale of each, and for the mean of k."""
    outputs = []
    for x in (q, k, v):
        if x is None:
            continue
        outputs.append(torch.empty(x.shape, dtype=_check.FP8, device=x.device))
        outputs.append(torch.empty(x.shape[:2], dtype=torch.float32, device=x.device))
    if k is not None:
        outputs.append(torch.empty((k.shape[0], k.shape[1], k.shape[3]), dtype=torch.float32, device=k.device))
    return outputs


def _run(q: Tensor, k: Optional[Tensor], v: Optional[Tensor], smooth_k: bool, hadamard: bool) -> list[Tensor]:
    try:
        return _launch(q, k, v, smooth_k, hadamard)
    except NotImplementedError:
        return by_torch(q, k, v, smooth_k, hadamard)


def _launch(q: Tensor, k: Optional[Tensor], v: Optional[Tensor], smooth_k: bool, hadamard: bool) -> list[Tensor]:
    if not q.is_cuda or q.numel() == 0 or (k is not None and k.numel() == 0):
        raise NotImplementedError("there is nothing on a GPU")
    library = _library.load_for_launch()
    q, k, v = q.resolve_neg(), None if k is None else k.resolve_neg(), None if v is None else v.resolve_neg()
    outputs = _outputs(q, k, v)
    y, descale, mean = outputs[0:6:2], outputs[1:6:2], None if k is None else outputs[6]
    missing = [None] * (3 - len(y))
    targets = (*y, *missing, *descale, *missing, mean)
    with torch.cuda.device(q.device):
        if library.quantize(q, k, v, smooth_k, hadamard, *targets) is None:
            copies = (x if x is None else x.clone(memory_format=torch.contiguous_format) for x in (q, k, v))
            if library.quantize(*copies, smooth_k, hadamard, *targets) is None:
                raise NotImplementedError("the tensors are no plain ones")
    return outputs


def by_torch(q: Tensor, k: Optional[Tensor], v: Optional[Tensor], smooth_k: bool, hadamard: bool) -> list[Tensor]:
    """The arithmetic of kernels/quantize/quantize, by PyTorch; its sums may be rounded differently."""
    results: list[Tensor] = []
    mean = None
    if k is not None:
        mean = (
            k.double().mean(dim=2).float() if smooth_k else k.new_zeros((*k.shape[:2], k.shape[3]), dtype=torch.float32)
        )
    for x, rotated in ((q, hadamard), (k, hadamard), (v, False)):
        if x is None:
            continue
        x_mean = mean[:, :, None] if mean is not None and x is k and smooth_k else None
        x = x.float()
        if rotated:
            x = _hadamard(x)
            x_mean = None if x_mean is None else _hadamard(x_mean)
        if x_mean is not None:
            x = x - x_mean
        results += _per_head(x)
    return results if mean is None else [*results, mean]


def _per_head(x: Tensor) -> tuple[Tensor, Tensor]:
    amax = torch.where(x.isfinite(), x.abs(), 0.0).amax(dim=(-2, -1)) if x.numel() else x.new_zeros(x.shape[:2])
    zero = amax == 0
    amax = amax.clamp(min=_SMALLEST_AMAX)
    largest = torch.full_like(amax, _LARGEST)  # by a number PyTorch divides with two roundings
    scale = torch.where(zero, 1.0, largest / amax)
    descale = torch.where(zero, 1.0, amax / largest)
    y = (x * scale[..., None, None]).clamp(-_LARGEST, _LARGEST).to(_check.FP8)
    return y.contiguous(), descale


def _hadamard(x: Tensor) -> Tensor:
    """Rows times the Hadamard matrix over sqrt(dim): butterflies from neighbours to distant columns."""
    dim, distance = x.shape[-1], 1
    while distance < dim:
        pairs = x.reshape(*x.shape[:-1], dim // (2 * distance), 2, distance)
        a, b = pairs[..., 0, :], pairs[..., 1, :]
        x = torch.stack([a + b, a - b], dim=-2).reshape(x.shape)
        distance *= 2
    return x * _INVERSE_ROOTS[dim]


# List: PyTorch 2.6 makes no schema of list[Tensor].
def _operator(q: Tensor, k: Optional[Tensor], v: Optional[Tensor], smooth_k: bool, hadamard: bool) -> List[Tensor]:
    with _workspace.temporary():
        return _run(q, k, v, smooth_k, hadamard)


_quantize_op = torch.library.custom_op("attune::quantize", _operator, mutates_args=())


@_quantize_op.register_fake
def _(q: Tensor, k: Optional[Tensor], v: Optional[Tensor], smooth_k: bool, hadamard: bool) -> list[Tensor]:
    return _outputs(q, k, v)
