"""What the integrations with other libraries share: which calls attune takes, and their record."""

from typing import Any, Optional

import torch
from torch import Tensor

from attune import _patch
from attune._calls import Calls, Computed
from attune._explain import explain

# The names by which other libraries select attune, and what they ask attune.sdpa for.
PRECISIONS: dict[str, dict[str, Any]] = {
    "attune": {},
    "attune-fp8": {"precision": "fp8"},
    "attune-16": {"precision": "16"},
}


def refusal(q: Tensor, k: Tensor, v: Tensor, scale: Optional[float]) -> Optional[str]:
    """Why attune is not called for tensors [batch, heads, rows, head_dim], or None. attune.sdpa itself refuses what
    only a GPU or the library can say."""
    tensors = (q, k, v)
    if not all(type(x) in _patch._PLAIN_TYPES and x.dim() == 4 and x.layout == torch.strided for x in tensors):
        return "a tensor is a subclass, nested, or not of four dimensions"
    if not _patch._are_halves(*tensors):
        return f"{str(q.dtype).removeprefix('torch.')}: attune takes float16 and bfloat16"
    if q.shape[3] not in _patch._HEAD_DIMS:
        return f"head dim {q.shape[3]}: the kernels have 64, 128 and 256"
    if not _patch._agree(q, k, v, False, True):
        return "K or V is broadcast, empty, or of another shape than the other"
    if not _patch._is_scale(scale):
        return "the scale is negative, or no number"
    if _patch._reads_keys_twice(q, k):
        return "few queries, but over 128 rows of a K/V head"
    if torch.is_grad_enabled() and any(x.requires_grad for x in tensors):
        return "a gradient is wanted, and there is no backward pass"
    return None


def fallback(q: Tensor, k: Tensor, v: Tensor, options: dict[str, Any]) -> bool:
    """The argument of attune.sdpa. A compiled call learns only when it runs that a problem is not supported. On meta
    PyTorch makes the result, which has no values, where attune.explain has a kernel for it."""
    if q.is_meta:
        found = explain(q, k, v, **options)
        if found.kernel == "pytorch":
            raise NotImplementedError(found.reason)
    return q.is_meta or torch.compiler.is_compiling()


def record(calls: Calls, layer: str, q: Tensor, path: str, call: Optional[Computed] = None, reason: str = "") -> None:
    """Counts a call that attune computed, or one of another implementation."""
    if not torch.compiler.is_compiling():  # compiled code runs without this function
        calls.record(layer, path, q, call, reason)


def first_words(problem: Exception) -> str:
    """The reason of a refusal without the way out, which is taken here."""
    return str(problem).split(";")[0]
