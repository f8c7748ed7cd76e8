"""Attention by PyTorch's varlen_attn: what fallback=True takes on a GPU where that function fits.

Each problem becomes one of packed sequences. varlen_attn has causal masks that end at the last key, windows, groups of
heads and a log-sum-exp, and holds no scores in memory. Sinks are a factor of the output behind it.
"""

import functools
import importlib
import inspect
from typing import Any, Callable, NamedTuple, Optional

import torch
from torch import Tensor

from attune import _arguments
from attune._arguments import Call
from attune._check import HALVES

_MAX_HEAD_DIM = 256
_MIN_CAPABILITY = (8, 0)  # of the kernels of flash attention


def takes(call: Call) -> bool:
    """Whether varlen_attn computes a call of attune.sdpa, sdpa_varlen, decode or prefill."""
    q, k = call.q, call.k
    if q.dtype not in HALVES or k.dtype != q.dtype or q.shape[-1] % 8 or q.shape[-1] > _MAX_HEAD_DIM:
        return False
    if call.softcap or call.alibi_slopes is not None or call.tree_mask is not None:
        return False
    if call.scale is not None and not call.scale > 0:  # PyTorch takes no 0
        return False
    if call.lengths is not None and call.lengths.shape[0] * k.shape[1] * _arguments.capacity(call) >= 2**31:
        return False  # offsets are int32
    return not _arguments.wants_gradient(call) and _function() is not None and _has_kernel(q.device)


@functools.lru_cache(maxsize=None)
def _function() -> Optional[Callable[..., Any]]:
    """varlen_attn with windows and a log-sum-exp, which it has since PyTorch 2.11."""
    try:
        varlen: Any = importlib.import_module("torch.nn.attention.varlen")
    except ImportError:
        return None
    parameters = inspect.signature(varlen.varlen_attn).parameters
    if not {"return_aux", "scale", "window_size"} <= set(parameters):
        return None
    options = {"return_aux": varlen.AuxRequest(lse=True)}
    if "enable_gqa" in parameters:  # PyTorch 2.11 takes groups without it
        options["enable_gqa"] = True
    return functools.partial(varlen.varlen_attn, **options)


def _has_kernel(device: torch.device) -> bool:
    backends: Any = torch.backends.cuda
    if device.type != "cuda" or torch.version.cuda is None or not backends.flash_sdp_enabled():
        return False
    return torch.cuda.get_device_capability(device) >= _MIN_CAPABILITY


class _Packed(NamedTuple):
    """A problem of packed sequences. Row i of sequence b is row cu_q[b] + i of q."""

    q: Tensor  # [rows, heads, head_dim]
    k: Tensor  # [keys, kv_heads, head_dim]
    v: Tensor
    cu_q: Tensor  # int32 [batch + 1]
    cu_k: Tensor
    max_q: int
    max_k: int


def attention(call: Call) -> tuple[Tensor, Tensor]:
    """(o, lse), in the shapes of the call. The lse is float32."""
    packed = _pack(call)
    left, right = call.window_size
    if call.causal:
        right = 0 if packed.max_q > 1 else -1  # a single query is at the last key; kernels for decoding take no limit
    function = _function()
    assert function is not None
    o, lse = function(
        _aligned(packed.q), _aligned(packed.k), _aligned(packed.v), packed.cu_q, packed.cu_k,
        _max_queries(packed), _max_keys(packed, left, right), scale=call.scale, window_size=(left, right),
    )  # fmt: skip
    unseeing = _unseeing(packed, left, right)
    o, lse = _unpack(call, o.masked_fill(unseeing[:, None, None], 0), lse.masked_fill(unseeing, -torch.inf))
    if call.sinks is None:
        return o, lse
    sinks = call.sinks.float()[:, None]
    weight = torch.sigmoid(lse - sinks)
    o = (o * (weight if o.dim() == 4 else weight.t())[..., None]).to(o.dtype)
    return o, torch.logaddexp(lse, sinks).masked_fill(lse == -torch.inf, -torch.inf)


def _aligned(x: Tensor) -> Tensor:
    """x where it is, or a copy where a kernel could not read its rows by 16 bytes."""
    return x if _arguments.is_aligned(x) else x.clone(memory_format=torch.contiguous_format).resolve_neg()


def _max_queries(packed: _Packed) -> int:
    """With 1 the kernels take row b as that of sequence b, which is so only if no sequence is empty."""
    batch = packed.cu_q.shape[0] - 1
    return 2 if packed.max_q == 1 and packed.q.shape[0] != batch else packed.max_q


def _max_keys(packed: _Packed, left: int, right: int) -> int:
    """The kernels drop a limit that is not below it, and replace a missing one by it. With more queries than keys that
    would be seen, for the first queries stand before the first key."""
    return packed.max_k + (packed.max_q if left >= 0 or right > 0 else 0)


def _unseeing(packed: _Packed, left: int, right: int) -> Tensor:
    """[rows]: the rows that see no key, or that no sequence has. The kernels leave such rows as they were, or write an
    lse of infinity."""
    cu_q, cu_k = packed.cu_q, packed.cu_k
    row = torch.arange(packed.q.shape[0], device=cu_q.device, dtype=torch.int32)
    b = (torch.searchsorted(cu_q, row, right=True) - 1).clamp(0, cu_q.shape[0] - 2)
    i, queries, keys = row - cu_q[b], cu_q[b + 1] - cu_q[b], cu_k[b + 1] - cu_k[b]
    own = i + keys - queries
    first = torch.zeros_like(own) if left < 0 else (own - left).clamp(min=0)
    last = keys - 1 if right < 0 else torch.minimum(own + right, keys - 1)
    return (first > last) | (i < 0) | (i >= queries.clamp(max=packed.max_q))


# ---- packing -------------------------------------------------------------------------------------


def _pack(call: Call) -> _Packed:
    if call.cu_seqlens_q is None and call.lengths is not None:
        return _pack_decode(call, call.lengths)
    if call.cu_seqlens_q is None:
        batch, _, max_q, _ = call.q.shape
        q, cu_q = _rows_first(call.q), _even_offsets(batch, max_q, call.q.device)
    else:
        q, cu_q, max_q = call.q, _valid_offsets(call.cu_seqlens_q, call.q), min(call.max_seqlen_q, call.q.shape[0])
    k, v, cu_k, max_k = _pack_keys(call)
    return _Packed(q, k, v, cu_q, cu_k, max_q, max_k)


def _unpack(call: Call, o: Tensor, lse: Tensor) -> tuple[Tensor, Tensor]:
    """(o, lse) in the shapes of the call."""
    if call.cu_seqlens_q is not None:
        return o, lse
    batch, heads, queries, head_dim = call.q.shape
    if call.lengths is None:
        o = o.view(batch, queries, heads, head_dim).transpose(1, 2)
        return o, lse.view(heads, batch, queries).transpose(0, 1).contiguous()
    kv_heads = call.k.shape[1]
    group = heads // kv_heads
    o = o.view(batch, kv_heads, -1, queries, group, head_dim)[:, :, 0].transpose(2, 3)
    lse = lse.t().reshape(batch, kv_heads, -1, queries, group)[:, :, 0].transpose(2, 3)
    return o.reshape(call.q.shape), lse.reshape(batch, heads, queries)


def _pack_decode(call: Call, lengths: Tensor) -> _Packed:
    """Each K/V head of a cache is a sequence with the heads of its group, so that a contiguous cache stays where it is.
    The room behind its last key is a sequence of its own, without queries. A single query has a copy there: kernels for
    decoding want as many queries as sequences."""
    batch, heads, queries, head_dim = call.q.shape
    kv_heads, capacity = call.k.shape[1], _arguments.capacity(call)
    sequences, copies = batch * kv_heads, 2 if queries == 1 else 1
    q = call.q.reshape(batch, kv_heads, 1, heads // kv_heads, queries, head_dim).expand(-1, -1, copies, -1, -1, -1)
    q = q.transpose(3, 4).reshape(-1, heads // kv_heads, head_dim)
    if copies == 2:
        cu_q = _even_offsets(2 * sequences, 1, q.device)
    else:
        cu_q = _even_offsets(sequences, queries, q.device).repeat_interleave(2)[1:]
    starts = _even_offsets(sequences, capacity, q.device)
    ends = starts[:-1] + lengths.clamp(0, capacity).repeat_interleave(kv_heads)
    cu_k = torch.cat([torch.stack([starts[:-1], ends], 1).flatten(), starts[-1:]])
    k, v = (_heads_first(x, call.page_table).reshape(-1, 1, head_dim) for x in (call.k, call.v))
    return _Packed(q, k, v, cu_q.contiguous(), cu_k.to(torch.int32), queries, capacity)


def _heads_first(cache: Tensor, table: Optional[Tensor]) -> Tensor:
    """[batch, kv_heads, capacity, head_dim], or so many pages: keys or values of all sequences."""
    if table is None:
        return cache
    pages, kv_heads, page_size, head_dim = cache.shape
    absent = ((table < 0) | (table >= pages))[:, None, :, None, None]
    page = table.long().clamp(0, pages - 1)[:, None]
    head = torch.arange(kv_heads, device=table.device)[:, None]
    if cache.is_contiguous():  # PyTorch copies faster by one index
        rows = cache.view(-1, page_size, head_dim)[page * kv_heads + head]
    else:
        rows = cache[page, head]
    return rows.masked_fill_(absent, 0)


def _pack_keys(call: Call) -> tuple[Tensor, Tensor, Tensor, int]:
    """(k, v, cu_k, max_k) of a problem."""
    if call.lengths is not None:
        return _pack_caches(call, call.lengths)
    if call.cu_seqlens_k is not None:
        return call.k, call.v, _valid_offsets(call.cu_seqlens_k, call.k), min(call.max_seqlen_k, call.k.shape[0])
    batch, _, keys, _ = call.k.shape
    return _rows_first(call.k), _rows_first(call.v), _even_offsets(batch, keys, call.k.device), keys


def _pack_caches(call: Call, lengths: Tensor) -> tuple[Tensor, Tensor, Tensor, int]:
    """The keys and values of all sequences one behind the other, from their pages if they have any. There is room for
    full caches, because the lengths are not read back; what lies behind the last key is not read."""
    capacity, batch = _arguments.capacity(call), lengths.shape[0]
    cu_k = torch.zeros(batch + 1, dtype=torch.int32, device=lengths.device)
    cu_k[1:] = lengths.clamp(0, capacity).cumsum(0)
    row = torch.arange(batch * capacity, device=lengths.device, dtype=torch.int32)
    b = (torch.searchsorted(cu_k, row, right=True) - 1).clamp(max=batch - 1)
    place = (row - cu_k[b]).clamp(max=capacity - 1)
    if call.page_table is None:
        return call.k[b, :, place], call.v[b, :, place], cu_k, capacity
    pages, page_size = call.k.shape[0], call.k.shape[2]
    page, place = call.page_table[b, place // page_size], place % page_size
    absent = ((page < 0) | (page >= pages))[:, None, None]
    page = page.clamp(0, pages - 1)
    k, v = (x[page, :, place].masked_fill_(absent, 0) for x in (call.k, call.v))
    return k, v, cu_k, capacity


def _rows_first(x: Tensor) -> Tensor:
    """[batch, heads, rows, head_dim] as [batch * rows, heads, head_dim]."""
    return x.transpose(1, 2).reshape(-1, x.shape[1], x.shape[3])


def _even_offsets(batch: int, rows: int, device: torch.device) -> Tensor:
    return torch.arange(batch + 1, dtype=torch.int32, device=device) * rows


def _valid_offsets(offsets: Tensor, x: Tensor) -> Tensor:
    """Offsets that do not decrease and lie in x, as those of a caller should: what they contain is not read back."""
    return offsets.clamp(0, x.shape[0]).cummax(0).values.to(torch.int32)
