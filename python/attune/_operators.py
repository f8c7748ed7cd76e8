"""The way of a call that is not plain: copies, other devices, operators of torch.library, fallback."""

from typing import Optional, cast

import torch
from torch import Tensor

from attune import _arguments, _check, _library, _quantize, _reference, _workspace
from attune._arguments import Call
from attune._check import Precision, Result


# The arguments that are contiguous where the library reads them, q, k, v and their factors aside.
ARRAYS = ("sinks", "cu_seqlens_q", "cu_seqlens_k", "lengths", "page_table", "alibi_slopes", "tree_mask")


def attention(call: Call, fallback: bool) -> Result:
    """A call whose arguments were checked, fallback aside."""
    fallback = _check.flag("fallback", fallback)
    if torch.compiler.is_compiling() and not _arguments.wants_gradient(call):
        return _through_dispatcher(call, fallback)  # which says in a line, when it runs, what is refused
    reason = refusal(call)
    if reason is not None and not fallback:
        raise NotImplementedError(reason)
    if _is_transformed(call):
        return _reference.attention(call, basic=True)
    traced = _arguments.is_traced(call.q, call.k, call.v)
    if not traced:
        _check.finite("alibi_slopes", call.alibi_slopes)
    if _arguments.wants_gradient(call):
        return _reference.attention(call)  # which PyTorch can differentiate
    if traced:
        return _through_dispatcher(call, fallback)
    return _run(call, fallback)


def _tensors(call: Call) -> list[tuple[str, Optional[Tensor]]]:
    """All tensors that are read, by their names."""
    names = ("q", "k", "v", "sinks", "cu_seqlens_q", "cu_seqlens_k", "lengths", "page_table")
    return [*((name, getattr(call, name)) for name in names), *(("descale", x) for x in call.descale or ())]


def _is_transformed(call: Call) -> bool:
    return _arguments.is_transformed(*_arguments.inputs(call))


def _has_large_extent(call: Call) -> bool:
    """Whether an extent does not fit into a field of the library."""
    keys = 0 if call.page_table is None else call.page_table.shape[1] * call.k.shape[2]
    return any(n >= 2**31 for n in (keys, *call.q.shape, *call.k.shape))


def refusal(call: Call, anywhere: bool = False) -> Optional[str]:
    """Why the library is not called, or None. anywhere: the device of the tensors does not matter."""
    if _arguments.wants_gradient(call):
        return "q, k, v, alibi_slopes, sinks or descale requires a gradient, and there is no backward pass; use torch.no_grad()"
    if _is_transformed(call):
        return "torch.func or forward-mode differentiation transforms the call, which the kernels do not know"
    if not call.q.is_cuda and not anywhere:
        return f"q is on {call.q.device}: attune runs on CUDA devices; fallback=True computes it by PyTorch"
    if call.q.shape[-1] % 8:
        return f"head_dim is {call.q.shape[-1]}; the kernels have 64, 128 and 256, and in 16 bits multiples of 8 up to 256"
    if _has_large_extent(call):
        return f"q is {list(call.q.shape)}, and k is {list(call.k.shape)}: an extent is over 2^31 - 1"
    if call.precision == "fp8" and call.lengths is not None and call.k.dtype != _check.FP8:
        if call.page_table is not None or call.cu_seqlens_q is not None:
            what = "in pages" if call.page_table is not None else "of packed queries"
            return f'precision is "fp8", and k_cache is {call.k.dtype}, {what}: no quantiser reads such a cache'
    if call.smooth_k and call.sinks is not None:
        return "smooth_k is set, and sinks is given: smoothing shifts the scores, but not the sinks"
    if call.smooth_k and call.softcap:
        return f"smooth_k is set, and softcap is {call.softcap}: smoothing shifts the scores, but not their cap"
    if call.smooth_k and call.return_lse and call.cu_seqlens_q is not None:
        return "smooth_k and return_lse are set: that is for sdpa, and not for packed sequences"
    return None


def _run(call: Call, fallback: bool) -> Result:
    if call.out is not None:
        _check.apart("out", call.out, _tensors(call))
    if is_empty(call):
        return _without_keys(call)
    try:
        if (reason := refusal(call)) is not None:
            raise NotImplementedError(reason)
        return _launch(call)
    except NotImplementedError:
        if not fallback:
            raise
    return _reference.attention(call)


# ---- launch --------------------------------------------------------------------------------------


def is_empty(call: Call) -> bool:
    """Whether there is no query or no key."""
    if call.q.numel() == 0 or call.k.numel() == 0 or (call.page_table is not None and call.page_table.numel() == 0):
        return True
    if call.cu_seqlens_k is not None and call.max_seqlen_k < 1:
        return True
    return call.cu_seqlens_q is not None and call.max_seqlen_q < 1


def _launch(call: Call) -> Result:
    library = _library.load_for_launch()
    if call.smooth_k and call.return_lse and _library.is_hopper(_library.gpu(call.q.device.index)[0]):
        return _launch_smooth(call)  # kernels for other GPUs correct it themselves
    call = _readable(without_subclasses(call))
    with torch.cuda.device(call.q.device):
        try:
            with _library.python_words():
                result: Optional[Result] = library.attend(*call, True)
        except NotImplementedError:
            contiguous = _contiguous(call)
            if contiguous is None:
                raise
            with _library.python_words():
                result = library.attend(*contiguous, True)
    if result is None:
        raise RuntimeError(
            "the arguments passed all checks, but the compiled part of attune does not take them; please report this"
        )
    return result


def output_dtype(q: Tensor, out: Optional[Tensor]) -> torch.dtype:
    if out is not None:
        return out.dtype
    return torch.float16 if q.dtype == _check.FP8 else q.dtype


def new_output(q: Tensor, is_cache: bool) -> Tensor:
    """An O in the dimension order of q, so that a transpose and a reshape behind attention copy nothing. The decode
    kernel, which attends to a cache, writes contiguous rows."""
    dtype = output_dtype(q, None)
    if q.dim() == 4 and q.stride(1) < q.stride(2) and not is_cache:
        batch, heads, rows, dim = q.shape
        return torch.empty((batch, rows, heads, dim), dtype=dtype, device=q.device).transpose(1, 2)
    return torch.empty(q.shape, dtype=dtype, device=q.device)


def _lse_shape(call: Call) -> tuple[int, ...]:
    if call.cu_seqlens_q is not None:
        return (call.q.shape[1], call.q.shape[0])
    return tuple(call.q.shape[:3])


def _without_keys(call: Call) -> Result:
    """No query sees a key."""
    o = (new_output(call.q, call.lengths is not None) if call.out is None else call.out).zero_()
    if not call.return_lse:
        return o
    return o, torch.full(_lse_shape(call), -torch.inf, dtype=torch.float32, device=call.q.device)


def _launch_smooth(call: Call) -> Result:
    """The log-sum-exp is that of K before its means were subtracted."""
    q, k, v = call.q, call.k, call.v
    q8, k8, v8, descale, mean = _quantize.quantize(q, k, v, smooth_k=True, hadamard=call.hadamard, return_mean=True)
    out = torch.empty(q.shape, dtype=q.dtype, device=q.device) if call.out is None else call.out
    call = call._replace(q=q8, k=k8, v=v8, descale=descale, out=out, smooth_k=False, hadamard=False)
    o, lse = _launch(call)
    scale = q.shape[-1] ** -0.5 if call.scale is None else call.scale
    mean = mean.repeat_interleave(q.shape[1] // k.shape[1], dim=1)
    return o, lse + scale * (q.float() @ mean[..., None])[..., 0]


def check_copy(name: str, x: Tensor) -> None:
    """A copy of x, which may be expanded, is not larger than what the kernels take."""
    if x.numel() > 2**31:
        raise NotImplementedError(f"{name} is {list(x.shape)}: a tensor would have more than 2^31 elements")


def without_subclasses(call: Call) -> Call:
    """The call with plain tensors: the compiled part reads no others."""

    def plain(x: object) -> object:
        if isinstance(x, Tensor) and type(x) not in (Tensor, torch.nn.Parameter):
            return x.as_subclass(Tensor)
        return tuple(map(plain, x)) if isinstance(x, tuple) else x

    return Call(*map(plain, call))  # type: ignore[arg-type]


def _readable(call: Call) -> Call:
    """The call with copies of the tensors that the library cannot read where they are."""
    if call.out is not None and not _arguments.is_aligned(call.out):
        raise ValueError(
            f"out has strides {list(call.out.stride())} at {call.out.data_ptr():#x}: "
            "rows must lie at multiples of 16 bytes, and not overlap"
        )
    changes = {}
    is_cache = call.lengths is not None
    for name in ("q", "k", "v"):
        x = getattr(call, name)
        if not _arguments.is_aligned(x):
            if is_cache and name != "q":  # too large to be copied
                raise NotImplementedError(
                    f"{name}_cache has strides {list(x.stride())} at {x.data_ptr():#x}: rows must lie at multiples "
                    "of 16 bytes, and not be a negative view"
                )
            check_copy(name, x)
            changes[name] = x.clone(memory_format=torch.contiguous_format).resolve_neg()
    for name in ARRAYS:
        if getattr(call, name) is not None:
            changes[name] = getattr(call, name).contiguous().resolve_neg()
    if call.descale is not None:
        changes["descale"] = tuple(x.contiguous().resolve_neg() for x in call.descale)
    return call._replace(**changes)


def _contiguous(call: Call) -> Optional[Call]:
    """The call with contiguous E4M3 tensors, or None if they are: not every form takes strides."""
    tensors = (call.q, call.k, call.v)
    if call.lengths is not None or call.q.dtype != _check.FP8 or all(x.is_contiguous() for x in tensors):
        return None
    return call._replace(q=call.q.contiguous(), k=call.k.contiguous(), v=call.v.contiguous())


# ---- operators, for torch.compile and tracing ----------------------------------------------------
# An operator returns no optional tensors, so that lse is empty where it was not asked for.


def _operator(q: Tensor, k: Tensor, v: Tensor, descale_q: Optional[Tensor], descale_k: Optional[Tensor],
              descale_v: Optional[Tensor], causal: bool, scale: float, window_left: int, window_right: int,
              sinks: Optional[Tensor], return_lse: bool, smooth_k: bool = False, hadamard: bool = False,
              cu_seqlens_q: Optional[Tensor] = None, cu_seqlens_k: Optional[Tensor] = None, max_seqlen_q: int = 0,
              max_seqlen_k: int = 0, lengths: Optional[Tensor] = None, page_table: Optional[Tensor] = None,
              fallback: bool = False, precision: str = "auto",
              softcap: float = 0.0, alibi_slopes: Optional[Tensor] = None,
              tree_mask: Optional[Tensor] = None) -> tuple[Tensor, Tensor]:  # fmt: skip
    call = Call(q, k, v, causal, None if scale < 0 else scale, (window_left, window_right), sinks,
                _factors(descale_q, descale_k, descale_v), return_lse, new_output(q, lengths is not None), smooth_k,
                hadamard, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, lengths, page_table,
                _precision(precision), softcap, alibi_slopes, tree_mask)  # fmt: skip
    with _workspace.temporary():
        result = _run(call, fallback)
    return (result, q.new_empty(0, dtype=torch.float32)) if isinstance(result, Tensor) else result


def _operator_out(q: Tensor, k: Tensor, v: Tensor, descale_q: Optional[Tensor], descale_k: Optional[Tensor],
                  descale_v: Optional[Tensor], causal: bool, scale: float, window_left: int, window_right: int,
                  sinks: Optional[Tensor], return_lse: bool, out: Tensor, smooth_k: bool = False,
                  hadamard: bool = False, cu_seqlens_q: Optional[Tensor] = None, cu_seqlens_k: Optional[Tensor] = None,
                  max_seqlen_q: int = 0, max_seqlen_k: int = 0, lengths: Optional[Tensor] = None,
                  page_table: Optional[Tensor] = None, fallback: bool = False,
                  precision: str = "auto", softcap: float = 0.0, alibi_slopes: Optional[Tensor] = None,
                  tree_mask: Optional[Tensor] = None) -> Tensor:  # fmt: skip
    call = Call(q, k, v, causal, None if scale < 0 else scale, (window_left, window_right), sinks,
                _factors(descale_q, descale_k, descale_v), return_lse, out, smooth_k, hadamard,
                cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, lengths, page_table, _precision(precision),
                softcap, alibi_slopes, tree_mask)  # fmt: skip
    with _workspace.temporary():
        result = _run(call, fallback)
    return q.new_empty(0, dtype=torch.float32) if isinstance(result, Tensor) else result[1]


def _precision(value: str) -> Precision:
    """The argument of an operator, whose schema has no literals."""
    return cast(Precision, value)


def _factors(*descale: Optional[Tensor]) -> Optional[tuple[Tensor, ...]]:
    """The factors of a call: all three, those of k and v, or None."""
    given = tuple(x for x in descale if x is not None)
    return given or None


def _fake_lse(q: Tensor, return_lse: bool, cu_seqlens_q: Optional[Tensor]) -> Tensor:
    shape = (0,) if not return_lse else q.shape[:3] if cu_seqlens_q is None else (q.shape[1], q.shape[0])
    return q.new_empty(shape, dtype=torch.float32)


_sdpa_op = torch.library.custom_op("attune::sdpa", _operator, mutates_args=())
_sdpa_out_op = torch.library.custom_op("attune::sdpa_out", _operator_out, mutates_args=("out",))


@_sdpa_op.register_fake
def _(q: Tensor, k: Tensor, v: Tensor, descale_q: Optional[Tensor], descale_k: Optional[Tensor],
      descale_v: Optional[Tensor], causal: bool, scale: float, window_left: int, window_right: int,
      sinks: Optional[Tensor], return_lse: bool, smooth_k: bool = False, hadamard: bool = False,
      cu_seqlens_q: Optional[Tensor] = None, cu_seqlens_k: Optional[Tensor] = None, max_seqlen_q: int = 0,
      max_seqlen_k: int = 0, lengths: Optional[Tensor] = None, *rest: object) -> tuple[Tensor, Tensor]:  # fmt: skip
    return new_output(q, lengths is not None), _fake_lse(q, return_lse, cu_seqlens_q)


@_sdpa_out_op.register_fake
def _(q: Tensor, k: Tensor, v: Tensor, descale_q: Optional[Tensor], descale_k: Optional[Tensor],
      descale_v: Optional[Tensor], causal: bool, scale: float, window_left: int, window_right: int,
      sinks: Optional[Tensor], return_lse: bool, out: Tensor, smooth_k: bool = False, hadamard: bool = False,
      cu_seqlens_q: Optional[Tensor] = None, *rest: object) -> Tensor:  # fmt: skip
    return _fake_lse(q, return_lse, cu_seqlens_q)


def _through_dispatcher(call: Call, fallback: bool) -> Result:
    descale = (None, None, None) if call.descale is None else (None, *call.descale)[-3:]
    first = (call.q, call.k, call.v, *descale, bool(call.causal), -1.0 if call.scale is None else float(call.scale),
             *call.window_size, call.sinks, bool(call.return_lse))  # fmt: skip
    last = (bool(call.smooth_k), bool(call.hadamard), call.cu_seqlens_q, call.cu_seqlens_k, call.max_seqlen_q,
            call.max_seqlen_k, call.lengths, call.page_table, bool(fallback), call.precision,
            float(call.softcap or 0), call.alibi_slopes, call.tree_mask)  # fmt: skip
    if call.out is None:
        o, lse = _sdpa_op(*first, *last)
    else:
        o, lse = call.out, _sdpa_out_op(*first, call.out, *last)
    return (o, lse) if call.return_lse else o
