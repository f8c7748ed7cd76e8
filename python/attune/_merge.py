"""attune.merge: one result of two parts of attention over different keys."""

import torch
from torch import Tensor

from attune import _check


def merge(
    o_a: Tensor, lse_a: Tensor, o_b: Tensor, lse_b: Tensor, *, packed: bool = False
) -> tuple[Tensor, Tensor]:
    """(o, lse) of attention over the keys of both parts, from the results over each.

    o_a and o_b are [batch, heads, queries, head_dim] and lse_a and lse_b [batch, heads, queries], or with
    packed=True of packed sequences [total_queries, heads, head_dim] and [heads, total_queries]: what
    functions of attune return with return_lse. Three dimensions do not say which they are, so packed does. A row whose lse is minus infinity has seen no key, and its o is not
    read. o has the dtype of o_a and o_b, lse is float32; the arithmetic is in float32.

    Sinks belong to one part only, one in which every row sees a key: a row without keys has no sink.

    Operators of PyTorch compute it, on any device, also in compiled code and with gradients.
    """
    rank = 3 if _check.flag("packed", packed) else 4
    _check_part("a", o_a, lse_a, o_a, rank)
    _check_part("b", o_b, lse_b, o_a, rank)
    a, b = lse_a.float(), lse_b.float()
    top = torch.maximum(a, b).detach()
    top = top.masked_fill(top == -torch.inf, 0.0)  # no keys in either part
    weight_a, weight_b = torch.exp(a - top), torch.exp(b - top)
    total = weight_a + weight_b
    none = total == 0
    total = total.masked_fill(none, 1.0)
    lse = (top + torch.log(total)).masked_fill(none, -torch.inf)
    o = _rows(weight_a / total, o_a) * _seen(o_a, a) + _rows(weight_b / total, o_b) * _seen(o_b, b)
    return o.to(o_a.dtype), lse


def _rows(x: Tensor, o: Tensor) -> Tensor:
    """A value of each row of o: packed ones have heads behind rows."""
    return (x.transpose(0, 1) if o.dim() == 3 else x)[..., None]


def _seen(o: Tensor, lse: Tensor) -> Tensor:
    """o in float32, without the rows that have seen no key."""
    return o.float().masked_fill(_rows(lse == -torch.inf, o), 0.0)


def _check_part(part: str, o: Tensor, lse: Tensor, like: Tensor, rank: int) -> None:
    for name, x in ((f"o_{part}", o), (f"lse_{part}", lse)):
        if not isinstance(x, Tensor):
            raise TypeError(f"{name} is a {type(x).__name__}, not a tensor")
        _check.strided(name, x)
        _check.beside(name, x, "o_a", like)
        if not x.is_floating_point():
            raise TypeError(f"{name} is {x.dtype}, not a floating-point type")
    if o.dim() != rank:
        wants = "3 with packed=True" if rank == 3 else "4, or 3 of packed sequences, with packed=True"
        raise ValueError(f"o_{part} has {o.dim()} dimensions, not {wants}")
    if o.dtype != like.dtype:
        raise TypeError(f"o_{part} is {o.dtype}, and o_a is {like.dtype}")
    if o.shape != like.shape:
        raise ValueError(f"o_{part} is {list(o.shape)}, and o_a is {list(like.shape)}")
    wanted = (o.shape[1], o.shape[0]) if o.dim() == 3 else tuple(o.shape[:3])
    if tuple(lse.shape) != wanted:
        raise ValueError(f"lse_{part} is {list(lse.shape)}, and o_{part} is {list(o.shape)}: lse is {list(wanted)}")
