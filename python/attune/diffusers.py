"""The attention backend "attune" of Hugging Face diffusers. Importing this module registers it.

>>> import attune.diffusers
>>> pipe.transformer.set_attention_backend("attune")
>>> print(attune.diffusers.calls())

"attune-fp8" and "attune-16" choose the precision, "attune" leaves the choice to attune. What attune does not compute
goes to diffusers' own backend "native", PyTorch's attention. `set_attention_backend("native")` goes back to it.
"""

import functools
import importlib
from typing import Any, Optional

import torch
from torch import Tensor

from attune import _door
from attune._attention import sdpa
from attune._calls import Calls
from attune._patch import _as_autocast

try:
    _dispatch: Any = importlib.import_module("diffusers.models.attention_dispatch")
    _names: Any = _dispatch.AttentionBackendName
    _registry: Any = _dispatch._AttentionBackendRegistry
except (ImportError, AttributeError) as problem:
    raise ImportError(
        f"attune.diffusers needs diffusers with attention backends, as 0.42 has ({problem}): pip install -U diffusers"
    ) from problem

_calls = Calls()


def calls() -> Calls:
    """How many calls attune took and how many it left, and a row for each shape. calls().clear() starts again."""
    return _calls


def _attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Optional[Tensor] = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: Optional[float] = None,
    enable_gqa: bool = False,
    return_lse: bool = False,
    _parallel_config: Any = None,
    *,
    name: str,
) -> Tensor:
    """A backend of diffusers: tensors are [batch, rows, heads, head_dim]."""
    q, k, v = (x.transpose(1, 2) for x in (query, key, value))
    reason = _reason(q, k, attn_mask, dropout_p, is_causal, enable_gqa, return_lse, _parallel_config)
    reason = reason or _door.refusal(q, k, v, scale)
    if reason is None:
        options = {"causal": is_causal, "scale": scale, **_door.PRECISIONS[name]}
        try:
            converted = _as_autocast(q, k, v)
            fallback = _door.fallback(converted[0], converted[1], converted[2], options)
            o: Tensor = sdpa(*converted, fallback=fallback, **options)
            _door.record(_calls, "", q, "attune", (converted[0], converted[1], converted[2], options))
            return o.transpose(1, 2)
        except NotImplementedError as problem:
            reason = _door.first_words(problem)
    _door.record(_calls, "", q, "native", reason=reason)
    native = _registry._backends[_names.NATIVE]
    result: Tensor = native(query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa, return_lse,
                            _parallel_config)  # fmt: skip
    return result


def _reason(
    q: Tensor,
    k: Tensor,
    mask: Optional[Tensor],
    dropout: float,
    is_causal: bool,
    enable_gqa: bool,
    return_lse: bool,
    parallel: Any,
) -> Optional[str]:
    """Why attune is not called, or None."""
    if mask is not None:
        return "a mask"
    if dropout != 0:
        return "dropout"
    if return_lse or parallel is not None:
        return "context parallelism, or return_lse"
    if q.shape[1] != k.shape[1] and not enable_gqa:
        return "K and V have fewer heads, and enable_gqa is not set"
    if is_causal and q.shape[2] != k.shape[2]:
        return "a causal mask that is not square, which PyTorch aligns to the first key"
    return None


def _member(value: str) -> Any:
    """A name in diffusers' enumeration of backends, which has no function to add one: set_attention_backend takes its
    members only."""
    if value in _names._value2member_map_:
        return _names(value)
    member = str.__new__(_names, value)
    name = value.upper().replace("-", "_")
    member._name_, member._value_, member.__objclass__ = name, value, _names
    member._sort_order_ = len(_names._member_names_)
    setattr(_names, name, member)
    _names._member_names_.append(name)
    _names._member_map_[name] = _names._value2member_map_[value] = member
    return member


def _register() -> None:
    for name in _door.PRECISIONS:
        # diffusers passes the arguments that the signature names.
        _registry.register(_member(name))(functools.partial(_attention, name=name))


_register()
