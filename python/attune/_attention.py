"""attune.sdpa: checks, quantisation, the operators of torch.library and the call of the C library."""

import torch
from torch import Tensor

from attune import _library, _reference

_FP8 = torch.float8_e4m3fn
_CODES = {torch.float16: _library.FP16, torch.bfloat16: _library.BF16}
_E4M3_MAX = 448.0


def sdpa(
    q,
    k,
    v,
    *,
    causal=False,
    scale=None,
    window=None,
    sinks=None,
    descale=None,
    return_lse=False,
    out=None,
    fallback=False,
):
    """softmax(scale * q @ k^T) @ v in FP8, on the current CUDA stream.

    q is [batch, heads, queries, head_dim]; k and v are [batch, kv_heads, keys, head_dim], and
    kv_heads divides heads. FP16 and BF16 tensors are quantised to E4M3 with one factor per head;
    the output has their dtype. E4M3 tensors come with descale = (of q, of k, of v), float32
    [batch, heads] or [batch, kv_heads], and give FP16, or the dtype of out.

    causal: query i attends to the keys up to i + keys - queries. scale: 1 / sqrt(head_dim) by
    default. window: (left, right) keys beside the query's own, None for no limit. sinks: float32
    [heads], logits without a value. return_lse: the result is (o, lse), lse float32
    [batch, heads, queries].

    There is no backward pass. With fallback=True PyTorch computes what attune does not support.
    """
    window_left, window_right = _window(window)
    arguments = (q, k, v, descale, causal, scale, window_left, window_right, sinks)
    try:
        _check(q, k, v, descale, sinks, out)
        if _is_traced(q):
            result = _through_dispatcher(*arguments, return_lse, out)
        else:
            result = _forward(*arguments, return_lse, out)
    except NotImplementedError:
        if not fallback:
            raise
        result = _reference.attention(*arguments, return_lse, out)
    return result


def quantize(x):
    """x in E4M3 with a factor per head, so that x is about y * descale: (y, descale).

    x is [batch, heads, rows, head_dim]; descale is float32 [batch, heads].
    """
    amax = x.abs().amax(dim=(-2, -1)).float()
    descale = torch.where(amax > 0, amax / _E4M3_MAX, 1.0)
    y = (x.float() / descale[..., None, None]).clamp(-_E4M3_MAX, _E4M3_MAX).to(_FP8)
    return y.contiguous(), descale


def _window(window):
    if window is None:
        return -1, -1
    left, right = window
    sides = [-1 if side is None else int(side) for side in (left, right)]
    if min(sides) < -1:
        raise ValueError(f"window is {window!r}: numbers of keys are not negative; None is no limit")
    return sides


def _check(q, k, v, descale, sinks, out):
    """Raises ValueError or TypeError for what no library could compute."""
    for name, x in (("q", q), ("k", k), ("v", v)):
        if not isinstance(x, Tensor):
            raise TypeError(f"{name} is a {type(x).__name__}, not a tensor")
        if x.dim() != 4:
            raise ValueError(f"{name} has {x.dim()} dimensions, not 4: [batch, heads, rows, head_dim]")
    if q.dtype not in _CODES and q.dtype != _FP8:
        raise TypeError(f"q is {q.dtype}, not float16, bfloat16 or float8_e4m3fn")
    for name, x in (("k", k), ("v", v)):
        if x.dtype != q.dtype:
            raise TypeError(f"{name} is {x.dtype}, and q is {q.dtype}")
        if x.device != q.device:
            raise ValueError(f"{name} is on {x.device}, and q is on {q.device}")
        if (x.shape[0], x.shape[3]) != (q.shape[0], q.shape[3]):
            raise ValueError(f"{name} is {list(x.shape)}, and q is {list(q.shape)}: batch and head_dim differ")
    if k.shape != v.shape:
        raise ValueError(f"k is {list(k.shape)}, and v is {list(v.shape)}")
    if k.shape[1] == 0 or q.shape[1] % k.shape[1]:
        raise ValueError(f"q has {q.shape[1]} heads, which the {k.shape[1]} of k do not divide")
    _check_descale(q, k, descale)
    if sinks is not None and (tuple(sinks.shape) != (q.shape[1],) or sinks.dtype != torch.float32):
        raise ValueError(f"sinks is {sinks.dtype} {list(sinks.shape)}, not float32 [{q.shape[1]}]")
    _check_out(q, out)
    if torch.is_grad_enabled() and (q.requires_grad or k.requires_grad or v.requires_grad):
        raise NotImplementedError("q, k or v requires a gradient, and there is no backward pass; call it under torch.no_grad()")


def _check_descale(q, k, descale):
    if q.dtype != _FP8:
        if descale is not None:
            raise ValueError(f"descale is given, and q is {q.dtype}: only E4M3 tensors have factors")
        return
    if descale is None:
        raise ValueError("descale is missing: E4M3 tensors come with (of q, of k, of v)")
    if len(descale) != 3:
        raise ValueError(f"descale has {len(descale)} tensors, not 3: of q, of k, of v")
    for name, x, heads in zip("qkv", descale, (q.shape[1], k.shape[1], k.shape[1])):
        if x.dtype != torch.float32 or tuple(x.shape) != (q.shape[0], heads):
            raise ValueError(f"descale of {name} is {x.dtype} {list(x.shape)}, not float32 [{q.shape[0]}, {heads}]")
        if x.device != q.device:
            raise ValueError(f"descale of {name} is on {x.device}, and q is on {q.device}")


def _check_out(q, out):
    if out is None:
        return
    if out.shape != q.shape or out.device != q.device:
        raise ValueError(f"out is {list(out.shape)} on {out.device}, and q is {list(q.shape)} on {q.device}")
    if out.dtype not in _CODES:
        raise TypeError(f"out is {out.dtype}, not float16 or bfloat16")
    if not out.is_contiguous():
        raise ValueError(f"out has strides {list(out.stride())}: it must be contiguous")


def _is_traced(q):
    """Whether PyTorch must see the call: it compiles, traces, or runs a mode or a subclass."""
    if torch.compiler.is_compiling() or torch._C._len_torch_dispatch_stack() > 0:
        return True
    return type(q) is not Tensor and type(q) is not torch.nn.Parameter


def _output_dtype(q, out):
    if out is not None:
        return out.dtype
    return torch.float16 if q.dtype == _FP8 else q.dtype


def _forward(q, k, v, descale, causal, scale, window_left, window_right, sinks, return_lse, out):
    if not q.is_cuda:
        raise NotImplementedError(f"q is on {q.device}: attune runs on CUDA devices; fallback=True computes it by PyTorch")
    dtype = _output_dtype(q, out)
    if q.dtype != _FP8:
        (q, descale_q), (k, descale_k), (v, descale_v) = quantize(q), quantize(k), quantize(v)
    else:
        q, k, v = q.contiguous(), k.contiguous(), v.contiguous()
        descale_q, descale_k, descale_v = (x.contiguous() for x in descale)
    batch, heads, queries, head_dim = q.shape
    kv_heads, keys = k.shape[1], k.shape[2]
    o = out if out is not None else torch.empty(q.shape, dtype=dtype, device=q.device)
    lse = torch.empty((batch, heads, queries), dtype=torch.float32, device=q.device) if return_lse else None
    if sinks is not None:
        sinks = sinks.contiguous()

    def pack(workspace, size):
        return _library.PARAMS.pack(
            _library.PARAMS.size,
            q.data_ptr(), k.data_ptr(), v.data_ptr(), o.data_ptr(), 0 if lse is None else lse.data_ptr(),
            descale_q.data_ptr(), descale_k.data_ptr(), descale_v.data_ptr(),
            batch, heads, kv_heads, queries, keys, head_dim,
            0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
            _library.E4M3, _CODES[dtype], int(causal), 0.0 if scale is None else scale, window_left, window_right,
            0 if sinks is None else sinks.data_ptr(), workspace, size,
        )  # fmt: skip

    library = _library.load()
    params = pack(0, 0)
    with torch.cuda.device(q.device):
        stream = torch.cuda.current_stream().cuda_stream
        workspace = None
        if size := library.attune_sdpa_workspace_bytes(params):
            workspace = torch.empty(size, dtype=torch.uint8, device=q.device)
            params = pack(workspace.data_ptr(), size)
        _library.check(library.attune_sdpa_forward(params, stream))
    return (o, lse) if return_lse else o


# ---- operators, for torch.compile and tracing ----------------------------------------------------
# An operator returns no optional tensors, so that lse is empty where it was not asked for.


def _operator(q: Tensor, k: Tensor, v: Tensor, descale_q: Tensor | None, descale_k: Tensor | None, descale_v: Tensor | None,
              causal: bool, scale: float, window_left: int, window_right: int, sinks: Tensor | None,
              return_lse: bool) -> tuple[Tensor, Tensor]:  # fmt: skip
    descale = None if descale_q is None else (descale_q, descale_k, descale_v)
    result = _forward(q, k, v, descale, causal, scale or None, window_left, window_right, sinks, return_lse, None)
    return result if return_lse else (result, q.new_empty(0, dtype=torch.float32))


def _operator_out(q: Tensor, k: Tensor, v: Tensor, descale_q: Tensor | None, descale_k: Tensor | None,
                  descale_v: Tensor | None, causal: bool, scale: float, window_left: int, window_right: int,
                  sinks: Tensor | None, return_lse: bool, out: Tensor) -> Tensor:  # fmt: skip
    descale = None if descale_q is None else (descale_q, descale_k, descale_v)
    result = _forward(q, k, v, descale, causal, scale or None, window_left, window_right, sinks, return_lse, out)
    return result[1] if return_lse else q.new_empty(0, dtype=torch.float32)


def _fake_lse(q, return_lse):
    return q.new_empty(q.shape[:3] if return_lse else (0,), dtype=torch.float32)


_sdpa_op = torch.library.custom_op("attune::sdpa", _operator, mutates_args=(), device_types="cuda")
_sdpa_out_op = torch.library.custom_op("attune::sdpa_out", _operator_out, mutates_args=("out",), device_types="cuda")


@_sdpa_op.register_fake
def _(q, k, v, descale_q, descale_k, descale_v, causal, scale, window_left, window_right, sinks, return_lse):
    o = torch.empty(q.shape, dtype=_output_dtype(q, None), device=q.device)
    return o, _fake_lse(q, return_lse)


@_sdpa_out_op.register_fake
def _(q, k, v, descale_q, descale_k, descale_v, causal, scale, window_left, window_right, sinks, return_lse, out):
    return _fake_lse(q, return_lse)


def _through_dispatcher(q, k, v, descale, causal, scale, window_left, window_right, sinks, return_lse, out):
    factors = (None, None, None) if descale is None else descale
    arguments = (q, k, v, *factors, bool(causal), 0.0 if scale is None else float(scale), window_left, window_right, sinks, return_lse)
    if out is None:
        o, lse = _sdpa_op(*arguments)
    else:
        o, lse = out, _sdpa_out_op(*arguments, out)
    return (o, lse) if return_lse else o

