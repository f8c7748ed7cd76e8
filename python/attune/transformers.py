"""attn_implementation="attune" for models of Hugging Face transformers. Importing this module registers it.

>>> import attune.transformers
>>> model = AutoModelForCausalLM.from_pretrained(name, dtype="bfloat16", attn_implementation="attune")
>>> print(attune.transformers.calls())

"attune-fp8" and "attune-16" choose the precision, "attune" leaves the choice to attune. What attune does not compute
goes to transformers' own "sdpa", and to the model's own "eager" function where sdpa would be wrong: with a softcap, and
with sinks.
"""

import importlib
import sys
import weakref
from typing import Any, Callable, NamedTuple, Optional, Union

import torch
from torch import Tensor

from attune import _door
from attune._attention import sdpa, sdpa_varlen
from attune._calls import Calls, Computed
from attune._patch import _MAX_DECODE_QUERIES, _as_autocast

try:
    _masks: Any = importlib.import_module("transformers.masking_utils")
    _models: Any = importlib.import_module("transformers.modeling_utils")
    _sdpa_mask: Any = _masks.sdpa_mask
except (ImportError, AttributeError) as problem:
    raise ImportError(
        f"attune.transformers needs transformers with mask interfaces, as 5.23 has ({problem}): "
        "pip install -U transformers"
    ) from problem

_calls = Calls()


def calls() -> Calls:
    """How many calls attune took and how many it left, and a row for each layer. calls().clear() starts again."""
    return _calls


# ---- masks ---------------------------------------------------------------------------------------
# transformers makes a mask once for all layers. Ours is that of sdpa, a tensor of bools, with a description of it in
# the words of the kernels as an attribute. A mask that has none, because the model made or changed it, goes to sdpa.


class Packing(NamedTuple):
    """Where the tokens of a padded batch are: the arguments of attune.sdpa_varlen."""

    queries: tuple[Tensor, Tensor]  # index in the batch, index of the row
    keys: tuple[Tensor, Tensor]
    cu_seqlens_q: Tensor
    cu_seqlens_k: Tensor
    max_seqlen_q: int
    max_seqlen_k: int


class Description(NamedTuple):
    """What a mask says."""

    causal: bool
    window_size: tuple[int, int]
    keys: int  # the first ones; no query sees the others
    packing: Optional[Packing] = None


def _mask(*args: Any, **options: Any) -> Optional[Tensor]:
    """The mask of sdpa, or None where is_causal says it all, with a description."""
    mask: Optional[Tensor] = _sdpa_mask(*args, **options)
    if mask is not None and not args and not torch.compiler.is_compiling():
        mask.attune = _describe(**options)  # type: ignore[attr-defined]
    return mask


def _describe(
    q_length: int = 0,
    kv_length: int = 0,
    q_offset: Union[int, Tensor] = 0,
    kv_offset: int = 0,
    mask_function: Optional[Callable[..., Any]] = None,
    attention_mask: Optional[Tensor] = None,
    **others: Any,
) -> Union[Description, str]:
    """What a mask says, or why attune does not compute it."""
    pattern = _pattern(mask_function)
    if pattern is None or not q_length:
        return "a mask that is neither causal nor a window"
    if not isinstance(q_offset, int):  # to read it would wait for the GPU
        return "a static cache"
    causal, window_size = pattern
    last = q_offset + q_length - kv_offset  # the key of the last query, and one
    aligned = causal or window_size != (-1, -1)  # the kernels align the last query to the last key
    if last > kv_length or (aligned and not causal and last != kv_length):
        return "a mask whose last query is not at the last key"
    keys = last if causal else kv_length
    padding = _masks.prepare_padding_mask(attention_mask, kv_length, kv_offset)
    if padding is None:
        return Description(causal, window_size, keys)
    is_token = padding[:, kv_offset : kv_offset + keys].bool()
    if is_token.all():
        return Description(causal, window_size, keys)
    if q_length <= _MAX_DECODE_QUERIES:
        return "padding in a decode step"  # packing would copy the cache for each token
    if aligned and window_size != (-1, -1) and not _is_one_run(is_token, causal):
        return "a window over padding with holes"
    queries = is_token[:, -q_length:] if causal else is_token.new_ones(is_token.shape[0], q_length)
    return Description(causal, window_size, keys, _pack(queries, is_token))


def _pattern(mask_function: Any) -> Optional[tuple[bool, tuple[int, int]]]:
    """(causal, window_size) of a function that says what a query sees, or None for others. transformers builds windows
    from closures, which have no other sign than their names."""
    if mask_function is _masks.causal_mask_function:
        return True, (-1, -1)
    if mask_function is _masks.bidirectional_mask_function:
        return False, (-1, -1)
    parts = _closure(mask_function, "and_masks").get("mask_functions", ())
    if len(parts) != 2:
        return None
    if parts[1] is _masks.causal_mask_function:
        left = _closure(parts[0], "sliding_window_overlay").get("sliding_window")
        return None if left is None else (True, (left - 1, 0))
    if parts[1] is _masks.bidirectional_mask_function:
        both = _closure(parts[0], "sliding_window_bidirectional_overlay").get("sliding_window")
        return None if both is None else (False, (both, both))
    return None


def _closure(function: Any, maker: str) -> dict[str, Any]:
    """The variables of a function that another one of transformers has made, by name; none of other functions."""
    if not getattr(function, "__qualname__", "").startswith(maker + ".<locals>."):
        return {}
    if getattr(function, "__module__", "") != _masks.__name__ or function.__closure__ is None:
        return {}
    return {name: cell.cell_contents for name, cell in zip(function.__code__.co_freevars, function.__closure__)}


def _is_one_run(is_token: Tensor, causal: bool) -> bool:
    """Whether packing keeps the distances within a sequence: its tokens are neighbours, and its queries are packed as
    its keys are."""
    return causal and bool(((~is_token[:, :-1] & is_token[:, 1:]).sum(dim=1) + is_token[:, 0] <= 1).all())


def _pack(queries: Tensor, keys: Tensor) -> Packing:
    """From two tensors of bools, [batch, rows]."""

    def offsets(counts: Tensor) -> Tensor:
        return torch.nn.functional.pad(counts.cumsum(0), (1, 0)).int()

    of_queries, of_keys = queries.sum(dim=1), keys.sum(dim=1)
    longest = torch.stack([of_queries.max(), of_keys.max()]).tolist()
    index_q, index_k = queries.nonzero(as_tuple=True), keys.nonzero(as_tuple=True)
    return Packing(index_q, index_k, offsets(of_queries), offsets(of_keys), *longest)  # type: ignore[arg-type]


# ---- attention -----------------------------------------------------------------------------------


def _attention(
    name: str,
    module: torch.nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Optional[Tensor],
    dropout: float = 0.0,
    scaling: Optional[float] = None,
    is_causal: Optional[bool] = None,
    **others: Any,
) -> tuple[Tensor, Optional[Tensor]]:
    """The function of an attention implementation: q, k and v are [batch, heads, rows, head_dim], the result is
    [batch, rows, heads, head_dim]."""
    causal = bool(getattr(module, "is_causal", True) if is_causal is None else is_causal)
    precision, layer = _door.PRECISIONS[name], _layer(module)
    says = _description(query, key, attention_mask, causal)
    reason = _reason(query, key, value, dropout, scaling, others)
    if reason is None and isinstance(says, str):
        reason = says
    if reason is None and isinstance(says, Description):
        try:
            o, call = _attend(query, key, value, scaling, says, others.get("s_aux"), others.get("softcap"), precision)
            _door.record(_calls, layer, query, "attune", call)
            return o.transpose(1, 2).contiguous(), None
        except NotImplementedError as problem:
            reason = _door.first_words(problem)
    path = "sdpa" if others.get("softcap") is None and others.get("s_aux") is None else "eager"
    _door.record(_calls, layer, query, path, reason=reason or "")
    options = {**others, "dropout": dropout, "scaling": scaling}
    if path == "eager":
        return _eager(module, query, key, value, attention_mask, causal, options)
    forward: Any = _models.ALL_ATTENTION_FUNCTIONS["sdpa"]
    result: tuple[Tensor, None] = forward(module, query, key, value, attention_mask, is_causal=is_causal, **options)
    return result


def _attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    scaling: Optional[float],
    says: Description,
    sinks: Optional[Tensor],
    softcap: Optional[float],
    precision: dict[str, Any],
) -> tuple[Tensor, Computed]:
    """By attune, with its call, or NotImplementedError."""
    q, k, v = _as_autocast(query, key[:, :, : says.keys], value[:, :, : says.keys])
    options: dict[str, Any] = {
        "causal": says.causal,
        "scale": scaling,
        "window_size": says.window_size,
        "sinks": None if sinks is None else sinks.float(),
        "softcap": softcap,
        **precision,
    }
    if says.packing is None:
        o: Tensor = sdpa(q, k, v, fallback=_door.fallback(q, k, v, options), **options)
        return o, (q, k, v, options)
    at = says.packing
    q_rows, k_rows, v_rows = (x.transpose(1, 2)[index] for x, index in ((q, at.queries), (k, at.keys), (v, at.keys)))
    options.update(cu_seqlens_q=at.cu_seqlens_q, cu_seqlens_k=at.cu_seqlens_k, max_seqlen_q=at.max_seqlen_q,
                   max_seqlen_k=at.max_seqlen_k)  # fmt: skip
    rows: Tensor = sdpa_varlen(q_rows, k_rows, v_rows, **options)
    o = q.new_zeros(q.shape[0], q.shape[2], q.shape[1], q.shape[3])  # as transformers' flash attention: 0 for padding
    o[at.queries] = rows
    return o.transpose(1, 2), (q_rows, k_rows, v_rows, options)


def _description(query: Tensor, key: Tensor, mask: Optional[Tensor], causal: bool) -> Union[Description, str]:
    """What the mask of a call says, or why attune does not compute it."""
    if mask is not None:
        says: Union[Description, str] = getattr(mask, "attune", "a mask that the model or the caller made")
        if mask.shape[-2:] == (query.shape[2], key.shape[2]):
            return says
        return says if isinstance(says, str) else "a mask of other sizes than q and k"
    # Without a mask sdpa aligns a causal one to the first key, and a single query sees all keys.
    causal = causal and query.shape[2] > 1
    if causal and key.shape[2] < query.shape[2]:
        return "a causal mask with more queries than keys"
    return Description(causal, (-1, -1), query.shape[2] if causal else key.shape[2])


def _reason(
    query: Tensor, key: Tensor, value: Tensor, dropout: float, scaling: Optional[float], others: dict[str, Any]
) -> Optional[str]:
    """Why attune is not called, or None."""
    if dropout != 0:
        return "dropout"
    for name in ("position_bias", "cache", "output_attentions"):  # cache: of continuous batching
        if others.get(name) is not None and others[name] is not False:
            return name
    sinks = others.get("s_aux")
    if sinks is not None and torch.compiler.is_compiling():
        return "sinks in compiled code"
    if sinks is not None and torch.is_grad_enabled() and sinks.requires_grad:
        return "a gradient is wanted, and there is no backward pass"
    return _door.refusal(query, key, value, scaling)


def _eager(
    module: torch.nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Optional[Tensor],
    causal: bool,
    options: dict[str, Any],
) -> tuple[Tensor, Optional[Tensor]]:
    """The model's own function, whose mask is added to the scores."""
    forward: Any = getattr(sys.modules[type(module).__module__], "eager_attention_forward", None)
    if forward is None:
        raise NotImplementedError(
            f"{type(module).__name__} has a softcap or sinks that attune does not compute here, and its module has no "
            'eager_attention_forward: use attn_implementation="eager"'
        )
    if mask is None and causal and query.shape[2] > 1:
        key, value = key[:, :, : query.shape[2]], value[:, :, : query.shape[2]]
        mask = torch.ones(query.shape[2], key.shape[2], dtype=torch.bool, device=query.device).tril()[None, None]
    if mask is not None and mask.dtype == torch.bool:
        mask = torch.zeros_like(mask, dtype=query.dtype).masked_fill_(~mask, torch.finfo(query.dtype).min)
    result: tuple[Tensor, Optional[Tensor]] = forward(module, query, key, value, mask, **options)
    return result


_numbers: "weakref.WeakKeyDictionary[torch.nn.Module, int]" = weakref.WeakKeyDictionary()


def _layer(module: torch.nn.Module) -> str:
    """The class and the number of a layer: that of the model, or else that of its first call."""
    if torch.compiler.is_compiling():
        return ""
    number = getattr(module, "layer_idx", None)
    if number is None:
        number = _numbers.setdefault(module, len(_numbers))
    return f"{type(module).__name__} {number}"


def _register() -> None:
    for name in _door.PRECISIONS:

        def forward(module: torch.nn.Module, *args: Any, _name: str = name, **options: Any) -> Any:
            return _attention(_name, module, *args, **options)

        _models.AttentionInterface.register(name, forward)
        _masks.AttentionMaskInterface.register(name, _mask)


_register()
