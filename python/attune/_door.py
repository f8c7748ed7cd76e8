"""What the integrations with other libraries share: which calls attune takes, and their record."""

from typing import Any, Optional

import torch
from torch import Tensor

from attune import _patch
from attune._explain import explain
from attune._patch import Calls, Row

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


# What attune.explain says of problems, (precision, kernel). Each token that is decoded is another problem.
_known: dict[Any, tuple[str, str]] = {}
_MAX_KNOWN = 4096


def computed(q: Tensor, k: Tensor, v: Tensor, options: dict[str, Any]) -> tuple[str, str]:
    """The precision and the kernel of a call that attune has computed, with the arguments of attune.explain. That is
    asked once for each problem; without an answer the precision is the one that the caller chose."""
    unknown = options.get("precision", "auto"), ""
    if torch.compiler.is_compiling():
        return unknown
    key = (q.dtype, q.shape, q.stride(), k.shape, k.stride(), v.stride(), *options,
           *[getattr(x, "shape", x) for x in options.values()])  # fmt: skip
    if (out := options.get("out")) is not None:
        key += (out.dtype, out.stride())
    try:
        known = _known.get(key)
    except TypeError:  # a trace has shapes that are no numbers
        return unknown
    if known is None:
        if len(_known) >= _MAX_KNOWN:
            _known.clear()
        _known[key] = known = _explained(q, k, v, options, unknown)
    return known


def _explained(
    q: Tensor, k: Tensor, v: Tensor, options: dict[str, Any], unknown: tuple[str, str]
) -> tuple[str, str]:
    try:
        found = explain(q, k, v, **options)
    except RuntimeError:  # no library
        return unknown
    return found.precision or unknown[0], found.kernel


def record(
    calls: Calls, layer: str, q: Tensor, path: str, found: Optional[tuple[str, str]] = None, reason: str = ""
) -> None:
    """Counts a call that attune computed, with what computed() has found, or one of another implementation."""
    if torch.compiler.is_compiling():
        return  # compiled code runs without this function
    precision, kernel = found or (str(q.dtype).removeprefix("torch."), "")
    shape = "x".join(["%s"] * q.dim()) % q.shape  # half the time of joining strings
    calls.record(Row(layer, shape, path, precision, kernel, reason))


def first_words(problem: Exception) -> str:
    """The reason of a refusal without the way out, which is taken here."""
    return str(problem).split(";")[0]
