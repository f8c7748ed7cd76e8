"""A context in which PyTorch's attention calls attune."""

import contextlib
import math
import threading
from typing import Any, Callable, Optional

import torch
import torch.nn.functional as functional
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor

from attune import _arguments, _check
from attune._attention import sdpa
from attune._calls import Calls
from attune._check import Precision

_HEAD_DIMS = (64, 128, 256)
_AUTOCAST = (torch.float16, torch.bfloat16, torch.float32)  # what autocast converts
_PLAIN_TYPES = (Tensor, torch.nn.Parameter, FakeTensor)

# What the library computes by reading a 16-bit K and V once: docs/decode.md.
_MAX_DECODE_QUERIES = 16
_MAX_DECODE_ROWS = 128


# The blocks that are entered, of all threads, and the function that was there before the first.
_entered: list[Calls] = []
_before: Callable[..., Tensor] = functional.scaled_dot_product_attention
_lock = threading.Lock()


def _attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Optional[Tensor] = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: Optional[float] = None,
    enable_gqa: bool = False,
    **others: Any,
) -> Tensor:
    """torch.nn.functional.scaled_dot_product_attention, by attune where it can."""
    calls = _entered[-1] if _entered else Calls()
    plain = attn_mask is None and dropout_p == 0.0 and not others and bool(_entered)
    if plain and _takes(query, key, value, is_causal, scale, enable_gqa):
        with contextlib.suppress(NotImplementedError):
            q, k, v = _as_autocast(query, key, value)
            # A compiled call learns only when it runs that a problem is not supported.
            o = sdpa(q, k, v, causal=is_causal, scale=scale, precision=calls.precision,
                     fallback=torch.compiler.is_compiling())  # fmt: skip
            calls.taken += 1
            return o
    calls.fallback += 1
    return _before(query, key, value, attn_mask=attn_mask, dropout_p=dropout_p, is_causal=is_causal, scale=scale,
                   enable_gqa=enable_gqa, **others)  # fmt: skip


def _takes(
    query: Tensor, key: Tensor, value: Tensor, is_causal: bool, scale: Optional[float], enable_gqa: bool
) -> bool:
    """Whether attune computes what PyTorch would, at least as well. PyTorch broadcasts, converts and checks the rest."""
    tensors = (query, key, value)
    if not all(type(x) in _PLAIN_TYPES and x.is_cuda and x.dim() == 4 and x.layout == torch.strided for x in tensors):
        return False
    if not (query.device == key.device == value.device) or not _are_halves(*tensors) or not _may_choose():
        return False
    if torch.is_grad_enabled() and any(x.requires_grad for x in tensors):
        return False
    return (
        _agree(query, key, value, is_causal, enable_gqa)
        and _is_scale(scale)
        and not _reads_keys_twice(query, key)
        and not _arguments.is_transformed(*tensors)
    )


def _agree(query: Tensor, key: Tensor, value: Tensor, is_causal: bool, enable_gqa: bool) -> bool:
    """Whether the shapes are those of attention without broadcasting."""
    batch, heads, queries, head_dim = query.shape
    if key.shape != value.shape or key.shape[0] != batch or key.shape[3] != head_dim or head_dim not in _HEAD_DIMS:
        return False
    kv_heads, keys = key.shape[1], key.shape[2]
    if min(batch, heads, queries, kv_heads, keys) == 0 or heads % kv_heads or (heads != kv_heads and not enable_gqa):
        return False
    return not is_causal or queries == keys  # PyTorch aligns the mask to the first key


def _is_scale(scale: Optional[float]) -> bool:
    return scale is None or (isinstance(scale, (int, float)) and math.isfinite(scale) and scale >= 0)


def _reads_keys_twice(query: Tensor, key: Tensor) -> bool:
    """Whether a few queries are too many rows of a K/V head for the decode kernel: others might quantise K and V."""
    rows = query.shape[1] // key.shape[1] * query.shape[2]
    return query.shape[2] <= _MAX_DECODE_QUERIES and rows > _MAX_DECODE_ROWS


@torch.compiler.assume_constant_result  # type: ignore[untyped-decorator]
def _may_choose() -> bool:
    """Whether every backend is allowed: with torch.nn.attention.sdpa_kernel a program has chosen among PyTorch's.
    Compiled code asks when it is traced, as PyTorch's own choice of a backend does."""
    backends: Any = torch.backends.cuda
    enabled: bool = (
        backends.flash_sdp_enabled()
        and backends.mem_efficient_sdp_enabled()
        and backends.cudnn_sdp_enabled()
        and backends.math_sdp_enabled()
    )
    return enabled


def _autocast_dtype(x: Tensor) -> Optional[torch.dtype]:
    """The dtype to which autocast of its device converts an argument of attention, or None."""
    kind = x.device.type
    if kind not in ("cpu", "cuda"):  # meta has none
        return None
    return torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else None


def _are_halves(*tensors: Tensor) -> bool:
    """Whether all are of one 16-bit dtype, or become so by autocast."""
    to = _autocast_dtype(tensors[0])
    dtypes = [to if to is not None and x.dtype in _AUTOCAST else x.dtype for x in tensors]
    return dtypes[0] in (torch.float16, torch.bfloat16) and dtypes[0] == dtypes[1] == dtypes[2]


def _as_autocast(*tensors: Tensor) -> tuple[Tensor, ...]:
    to = _autocast_dtype(tensors[0])
    return tensors if to is None else tuple(x.to(to) for x in tensors)


class patch(contextlib.ContextDecorator):
    """Replaces torch.nn.functional.scaled_dot_product_attention inside of a with block, in all threads.

    Calls with a mask, dropout, gradients, other dtypes or shapes that attune does not support stay
    PyTorch's. Code that imported the function by name before is not affected. The block's target
    counts calls: `with attune.patch() as calls:`, then calls.taken and calls.fallback. Of several
    blocks the one that was entered last counts, and its precision is that of attune.sdpa. What patch
    returns may be entered again, and each block has its own counts.
    """

    def __init__(self, precision: Precision = "auto") -> None:
        _check.known_precision(precision)
        self._precision: Precision = precision
        self._blocks: list[Calls] = []

    def __enter__(self) -> Calls:
        global _before
        calls = Calls(self._precision)
        with _lock:
            if functional.scaled_dot_product_attention is not _attention:
                _before = functional.scaled_dot_product_attention
                functional.scaled_dot_product_attention = _attention
            _entered.append(calls)
            self._blocks.append(calls)
        return calls

    def __exit__(self, *problem: object) -> None:
        with _lock:
            _entered.remove(self._blocks.pop())
            if not _entered and functional.scaled_dot_product_attention is _attention:
                functional.scaled_dot_product_attention = _before
