"""Attention by PyTorch: what fallback=True gives, and what tests compare with."""

from collections.abc import Sequence
from typing import Callable, Optional

import torch
import torch.nn.functional as functional
from torch import Tensor

from attune import _arguments, _varlen
from attune._arguments import Call
from attune._check import Result

# attune.patch replaces the function of the module.
PYTORCH = functional.scaled_dot_product_attention


# Scores, or elements of a mask, that are in memory at once.
_AT_ONCE = 1 << 24


def attention(call: Call, basic: bool = False) -> Result:
    """A call of attune.sdpa, sdpa_varlen, decode or prefill, computed without attune.

    PyTorch's functions compute it: for plain problems scaled_dot_product_attention, on GPUs else varlen_attn where it
    fits, and scaled_dot_product_attention with masks by blocks of rows elsewhere. A log-sum-exp, sinks, a softcap and
    slopes, which the latter does not have, take explicit scores then, by blocks of rows too. basic: all calls take
    them, because every transform of PyTorch knows their operators.
    """
    dtype = call.q.dtype if call.q.dtype.itemsize > 1 else torch.float16
    lse: Optional[Tensor]
    if not basic and not _is_plain_call(call) and _varlen.takes(call):
        o, lse = _varlen.attention(call)
    elif call.cu_seqlens_q is not None:
        o, lse = _packed(call, basic)
    else:
        k, v = _gathered(call)
        q, k, v = _dequantised(call.q, k, v, call.descale)
        o, lse = _attended(q, k, v, call, call.lengths, None, basic)
    out = o.to(dtype) if call.out is None else _copy(o, call.out)
    return (out, lse) if call.return_lse and lse is not None else out


def _copy(o: Tensor, into: Tensor) -> Tensor:
    """PyTorch writes inference tensors in its inference mode only."""
    if not torch.compiler.is_compiling() and into.is_inference():
        with torch.inference_mode():
            return into.copy_(o)
    return into.copy_(o)


def _attended(q: Tensor, k: Tensor, v: Tensor, call: Call, lengths: Optional[Tensor], offsets: Optional[Tensor],
              basic: bool) -> tuple[Tensor, Optional[Tensor]]:  # fmt: skip
    """(o, lse) of [batch, heads, rows, head_dim], lse where it was computed."""
    slopes, tree, needs_scores = call.alibi_slopes, call.tree_mask, basic or _needs_scores(call)
    if not needs_scores and lengths is None and _is_plain(q, k, call):
        grouped = q.shape[1] != k.shape[1]
        if grouped and not call.causal:
            return _by_groups(q, k, v, call.scale, None), None
        return PYTORCH(q, k, v, is_causal=bool(call.causal), scale=call.scale, enable_gqa=grouped), None
    if lengths is not None:  # NaN behind the last key has no effect
        behind = (torch.arange(k.shape[2], device=k.device) >= lengths[:, None])[:, None, :, None]
        k, v = k.masked_fill(behind, 0), v.masked_fill(behind, 0)
    batch, heads, queries, keys = *q.shape[:3], k.shape[2]
    each = batch * heads * keys if needs_scores else keys * (1 if lengths is None else batch)
    step = max(1 if needs_scores else 64, _AT_ONCE // max(each, 1))
    parts, lses = [], []
    for first in range(0, queries, step):
        rows = slice(first, min(first + step, queries))
        columns = _columns(rows, queries, keys, call) if lengths is None else slice(0, keys)
        hidden = _hidden(queries, keys, call.causal, *call.window_size, lengths, q.device, rows, columns, offsets, tree)
        some_k, some_v = k[:, :, columns], v[:, :, columns]
        if needs_scores:
            bias = None if slopes is None else _bias(slopes, queries, keys, lengths, rows, columns, offsets)
            o, lse = _by_scores(q[:, :, rows], some_k, some_v, call.scale, hidden, call.sinks, call.softcap, bias)
            lses.append(lse)
        else:
            o = _by_mask(q[:, :, rows], some_k, some_v, call.scale, hidden)
        parts.append(o)
    return torch.cat(parts, dim=2), torch.cat(lses, dim=2) if lses else None


def _needs_scores(call: Call) -> bool:
    """Whether PyTorch's function with a mask does not compute it."""
    return call.return_lse or bool(call.softcap) or call.sinks is not None or call.alibi_slopes is not None


def _is_plain_call(call: Call) -> bool:
    """Whether PyTorch's function computes the call itself, without a mask."""
    is_dense = call.cu_seqlens_q is None and call.lengths is None
    return is_dense and not _needs_scores(call) and _is_plain(call.q, call.k, call)


def _is_plain(q: Tensor, k: Tensor, call: Call) -> bool:
    """Whether PyTorch's function computes it without a mask; it aligns a causal one to the first key. For groups of
    heads in float32, which are those of E4M3 tensors, and a causal mask it would hold all scores."""
    square = q.shape[2] == k.shape[2] and not (q.shape[1] != k.shape[1] and q.dtype == torch.float32)
    return max(call.window_size) < 0 and (square or not call.causal)


def _columns(rows: slice, queries: int, keys: int, call: Call) -> slice:
    """The keys that some of the rows see; one at least."""
    left, right = call.window_size
    right = 0 if call.causal else right
    first = 0 if left < 0 else min(max(rows.start + keys - queries - left, 0), keys - 1)
    last = keys if right < 0 else min(max(rows.stop + keys - queries + right, first + 1), keys)
    return slice(first, last)


def _by_groups(q: Tensor, k: Tensor, v: Tensor, scale: Optional[float], mask: Optional[Tensor]) -> Tensor:
    """PyTorch's function, with a mask or without. The query heads of a group are rows of their K/V head, because few
    of its backends take groups."""
    batch, heads, queries, head_dim = q.shape
    group = heads // k.shape[1]
    if mask is not None:
        mask = mask.repeat(1, 1, group, 1)
    rows = q.reshape(batch, k.shape[1], group * queries, head_dim)
    return PYTORCH(rows, k, v, attn_mask=mask, scale=scale).reshape(q.shape)


def _by_mask(q: Tensor, k: Tensor, v: Tensor, scale: Optional[float], hidden: Tensor) -> Tensor:
    visible = ~hidden[:, None]
    o = _by_groups(q, k, v, scale, visible)
    return o.masked_fill(~visible.any(dim=-1, keepdim=True), 0)


def _by_scores(q: Tensor, k: Tensor, v: Tensor, scale: Optional[float], hidden: Tensor,
               sinks: Optional[Tensor], softcap: Optional[float],
               bias: Optional[Tensor]) -> tuple[Tensor, Tensor]:  # fmt: skip
    """(o, lse) in float32 with the scores in memory."""
    group, keys = q.shape[1] // k.shape[1], k.shape[2]
    k, v = (x.float().repeat_interleave(group, dim=1) for x in (k, v))
    scores = q.float() @ k.transpose(-2, -1) * (q.shape[3] ** -0.5 if scale is None else scale)
    if softcap:
        softcap = max(softcap, torch.finfo(torch.float32).tiny)
        scores = softcap * torch.tanh(scores / softcap)
    if bias is not None:
        scores = scores + bias
    hidden = hidden[:, None]
    v = torch.where(hidden.all(dim=2)[..., None], 0.0, v)  # NaN behind the last key has no effect
    scores = scores.masked_fill(hidden, -torch.inf)
    if sinks is not None:  # a key without a value
        column = sinks.view(1, -1, 1, 1).expand(q.shape[0], -1, q.shape[2], 1)
        scores = torch.cat([scores, column.float()], dim=-1)
    sees_none = hidden.all(dim=-1)
    lse = torch.logsumexp(scores, dim=-1).masked_fill(sees_none, -torch.inf)
    weights = torch.exp(scores - lse.masked_fill(sees_none, 0.0)[..., None])
    return weights.masked_fill(sees_none[..., None], 0.0)[..., :keys] @ v, lse


def _dequantised(q: Tensor, k: Tensor, v: Tensor, descale: Optional[Sequence[Tensor]]) -> Sequence[Tensor]:
    """The values of E4M3 tensors, in float32, and then of all three; other tensors as they are."""
    if descale is None:
        return q, k, v
    factors = (None, *descale)[-3:]
    return [x.float() if factor is None else x.float() * factor[..., None, None]
            for x, factor in zip((q, k, v), factors)]  # fmt: skip


def _gathered(call: Call) -> tuple[Tensor, Tensor]:
    """k and v as [batch, kv_heads, keys, head_dim], from their pages if they have any."""
    if call.page_table is None:
        return call.k, call.v
    table = call.page_table.long().clamp(min=0, max=call.k.shape[0] - 1)
    absent = (call.page_table != table)[:, None, :, None, None]
    batch, pages = table.shape

    def gather(cache: Tensor) -> Tensor:  # indexing is not for 8-bit floats everywhere
        rows = (cache.view(torch.uint8) if cache.dtype.itemsize == 1 else cache)[table].transpose(1, 2)
        rows = rows.masked_fill(absent, 0)
        return rows.reshape(batch, cache.shape[1], pages * cache.shape[2], cache.shape[3]).view(cache.dtype)

    return gather(call.k), gather(call.v)


def _packed(call: Call, basic: bool) -> tuple[Tensor, Optional[Tensor]]:
    """Each sequence by itself, padded to the longest: their lengths stay on the device, so that it can be captured."""
    assert call.cu_seqlens_q is not None
    cu_queries, sequences = call.cu_seqlens_q, _sequences(call)
    total, heads, head_dim = call.q.shape
    device, dtype = call.q.device, torch.float32 if call.descale is not None else call.q.dtype
    # One row more than there are takes what is padding.
    o = torch.zeros((total + 1, heads, head_dim), dtype=dtype, device=device)
    lse = torch.full((heads, total + 1), -torch.inf, device=device)
    queries = torch.arange(call.max_seqlen_q, device=device)
    for b in range(cu_queries.shape[0] - 1 if call.max_seqlen_q > 0 else 0):
        q_start, q_end = cu_queries[b], cu_queries[b + 1]
        rows = queries + q_start
        rows = torch.where((rows < q_end) & (rows >= 0) & (rows < total), rows, total)
        q = _sequence(call.q, rows.clamp(max=total - 1))
        k, v, length = sequences(b)
        if k.shape[2] == 0:
            continue
        q, k, v = _dequantised(q, k, v, None if call.descale is None else [x[b : b + 1] for x in call.descale])
        one = _of_sequence(call, b, rows.clamp(max=total - 1))
        part, part_lse = _attended(q, k, v, one, length, length - (q_end - q_start), basic)
        o = o.index_copy_(0, rows, part[0].transpose(0, 1).to(dtype))
        if part_lse is not None:
            lse = lse.index_copy_(1, rows, part_lse[0])
    return o[:total], lse[:, :total].contiguous()


def _of_sequence(call: Call, b: int, rows: Tensor) -> Call:
    """The call with the slopes and the tree of a sequence alone."""
    slopes, tree = call.alibi_slopes, call.tree_mask
    if slopes is not None and slopes.dim() == 2:
        slopes = slopes[b : b + 1]
    if tree is not None:
        tree = tree.view(torch.int64)[rows][None]
    return call._replace(alibi_slopes=slopes, tree_mask=tree)


def _sequences(call: Call) -> Callable[[int], tuple[Tensor, Tensor, Tensor]]:
    """k and v of a sequence as [1, kv_heads, keys, head_dim], packed or of a cache, and its length [1]."""
    if call.lengths is not None:
        caches, lengths = _gathered(call), call.lengths.clamp(0, _arguments.capacity(call))
        return lambda b: (caches[0][b : b + 1], caches[1][b : b + 1], lengths[b : b + 1])
    assert call.cu_seqlens_k is not None
    keys, starts = torch.arange(call.max_seqlen_k, device=call.k.device), call.cu_seqlens_k

    def packed(b: int) -> tuple[Tensor, Tensor, Tensor]:
        columns = (keys + starts[b]).clamp(0, call.k.shape[0] - 1)
        return _sequence(call.k, columns), _sequence(call.v, columns), (starts[b + 1] - starts[b])[None]

    return packed


def _sequence(x: Tensor, rows: Tensor) -> Tensor:
    """Rows of a packed tensor as [1, heads, rows, head_dim]; indexing is not for 8-bit floats everywhere."""
    bits = x.view(torch.uint8) if x.dtype.itemsize == 1 else x
    return bits[rows].view(x.dtype).transpose(0, 1)[None]


def _offset(queries: int, keys: int, lengths: Optional[Tensor], offsets: Optional[Tensor], device: torch.device) -> Tensor:
    """[batch or 1, 1, 1]: the key of query 0. Query i is at key i + offset; without an offset the last one is at the last
    key."""
    if lengths is None:
        return torch.full((1, 1, 1), keys - queries, device=device)
    return (lengths.long().clamp(0, keys) - queries if offsets is None else offsets)[:, None, None]


def _indices(rows: slice, columns: slice, device: torch.device) -> tuple[Tensor, Tensor]:
    """The numbers of queries, [1, rows, 1], and of keys, [columns]."""
    row = torch.arange(rows.start, rows.stop, device=device)[None, :, None]
    return row, torch.arange(columns.start, columns.stop, device=device)


def _hidden(queries: int, keys: int, causal: bool, window_left: int, window_right: int, lengths: Optional[Tensor],
            device: torch.device, rows: slice, columns: slice, offsets: Optional[Tensor],
            tree: Optional[Tensor] = None) -> Tensor:  # fmt: skip
    """[batch or 1, rows, columns]: the keys that a query does not see."""
    row, key = _indices(rows, columns, device)
    offset = _offset(queries, keys, lengths, offsets, device)
    own = row + offset
    if lengths is None:
        hidden = torch.zeros(own.shape[:2] + key.shape, dtype=torch.bool, device=device)
    else:
        hidden = (key >= lengths.long().clamp(0, keys)[:, None, None]).expand(-1, own.shape[1], -1)
    if causal:
        hidden = hidden | (key > own)
    if window_left >= 0:
        hidden = hidden | (key < own - window_left)
    if window_right >= 0:
        hidden = hidden | (key > own + window_right)
    if tree is not None:
        token = key - offset
        seen = tree.view(torch.int64)[:, rows, None] >> token.clamp(0, 63) & 1
        hidden = hidden | (token >= 0) & (seen == 0)
    return hidden


def _bias(slopes: Tensor, queries: int, keys: int, lengths: Optional[Tensor], rows: slice, columns: slice,
          offsets: Optional[Tensor]) -> Tensor:  # fmt: skip
    """[batch or 1, heads, rows, columns]: what ALiBi adds to the scores."""
    row, key = _indices(rows, columns, slopes.device)
    distance = (row + _offset(queries, keys, lengths, offsets, slopes.device) - key).abs()
    return -slopes.reshape(-1, slopes.shape[-1])[:, :, None, None] * distance[:, None]


def explicit(q: Tensor, k: Tensor, v: Tensor, causal: bool, scale: Optional[float], window_left: int,
             window_right: int, sinks: Optional[Tensor], lengths: Optional[Tensor] = None,
             softcap: Optional[float] = None, alibi_slopes: Optional[Tensor] = None,
             tree_mask: Optional[Tensor] = None) -> tuple[Tensor, Tensor]:  # fmt: skip
    """(o, lse) in float32 with all scores in memory, for tests."""
    rows, columns = slice(0, q.shape[2]), slice(0, k.shape[2])
    hidden = _hidden(rows.stop, columns.stop, causal, window_left, window_right, lengths, q.device, rows, columns, None,
                     tree_mask)  # fmt: skip
    slopes = alibi_slopes
    bias = None if slopes is None else _bias(slopes, rows.stop, columns.stop, lengths, rows, columns, None)
    return _by_scores(q, k, v, scale, hidden, sinks, softcap, bias)


def append(k: Tensor, v: Tensor, k_cache: Tensor, v_cache: Tensor, lengths: Tensor, page_table: Optional[Tensor],
           descale_k: Tensor, descale_v: Tensor) -> None:  # fmt: skip
    """attune.append, with the arithmetic of kernels/quantize/append."""
    batch, heads, rows, head_dim = k.shape
    page_size = k_cache.shape[2]
    position = lengths.long()[:, None] + torch.arange(rows, device=k.device)
    page, place = position // page_size, position % page_size
    kept = lengths.ge(0)[:, None].expand_as(position)  # a negative length marks an unused slot
    if page_table is None:
        kept = kept & (position < page_size)
        page = torch.arange(batch, device=k.device)[:, None].expand(-1, rows)
    else:
        kept = kept & (page < page_table.shape[1])
        page = page_table.long().gather(1, page.clamp(0, page_table.shape[1] - 1))
        kept = kept & (page >= 0) & (page < k_cache.shape[0])
    for x, cache, descale in ((k, k_cache, descale_k), (v, v_cache, descale_v)):
        codes = (x.float() * (1 / descale)[..., None, None]).clamp(-448, 448).to(torch.float8_e4m3fn)
        codes = codes.view(torch.uint8).transpose(1, 2)[kept]
        cache.view(torch.uint8)[page[kept], :, place[kept]] = codes
