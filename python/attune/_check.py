"""Checks of arguments. Each message names the argument, its value and what is wanted."""

import numbers
from collections.abc import Sequence
from typing import Any, Literal, Optional, Union

import torch
from torch import Tensor

FP8 = torch.float8_e4m3fn
HALVES = (torch.float16, torch.bfloat16)

Window = tuple[Optional[int], Optional[int]]  # (left, right) in keys; -1 and None are no limit
Precision = Literal["auto", "fp8", "16"]  # of FP16 and BF16 tensors
PRECISIONS = ("auto", "fp8", "16")
Result = Union[Tensor, tuple[Tensor, Tensor]]  # o, or (o, lse)


def tensor(name: str, x: Tensor, shape: Sequence[str]) -> None:
    """x is a tensor of as many dimensions as shape names."""
    if not isinstance(x, Tensor):
        raise TypeError(f"{name} is a {type(x).__name__}, not a tensor")
    strided(name, x)
    if x.dim() != len(shape):
        raise ValueError(f"{name} has {x.dim()} dimensions, not {len(shape)}: [{', '.join(shape)}]")


def strided(name: str, x: Tensor) -> None:
    """x has strides: it is not sparse, and not a list of tensors."""
    if x.layout != torch.strided:
        raise TypeError(f"{name} has the layout {x.layout}, not torch.strided")
    if x.is_nested:
        raise TypeError(f"{name} is nested, not one tensor with strides")


def flag(name: str, value: object) -> bool:
    """The value of an option that is on or off. A tensor would have to be read back, and a str is always on."""
    if isinstance(value, (bool, int)):
        return bool(value)
    if not hasattr(value, "__bool__") or hasattr(value, "__len__"):
        raise TypeError(f"{name} is a {type(value).__name__}, not a bool")
    return bool(value)


def beside(name: str, x: Tensor, q_name: str, q: Tensor) -> None:
    """x is on the device of q."""
    if x.device != q.device:
        raise ValueError(f"{name} is on {x.device}, and {q_name} is on {q.device}")


def array(name: str, x: Optional[Tensor], dtype: torch.dtype, shape: Sequence[Optional[int]], q: Tensor) -> None:
    """x is a tensor of this dtype and these sizes beside q; None is for any size."""
    if not isinstance(x, Tensor):
        raise TypeError(f"{name} is a {type(x).__name__}, not a tensor {_array(dtype, shape)}")
    strided(name, x)
    sizes = x.dim() == len(shape) and all(want is None or have == want for have, want in zip(x.shape, shape))
    if x.dtype != dtype or not sizes:
        raise ValueError(f"{name} is {x.dtype} {list(x.shape)}, not {_array(dtype, shape)}")
    beside(name, x, "q", q)


def _array(dtype: torch.dtype, shape: Sequence[Optional[int]]) -> str:
    """For errors only: torch.compile makes no text of a size that is not a number yet."""
    return f"{str(dtype).removeprefix('torch.')} [{', '.join('any' if n is None else str(n) for n in shape)}]"


def heads(q: Tensor, k: Tensor) -> None:
    """The heads of k divide those of q; both are the second of the last three dimensions."""
    of_q, of_k = q.shape[1], k.shape[1]
    if of_k == 0 or of_q % of_k:
        raise ValueError(f"q has {of_q} heads, which the {of_k} of k do not divide")


def qkv(q: Tensor, k: Tensor, v: Tensor, shape: Sequence[str]) -> None:
    """q, k and v agree in dtype, device, head_dim and, where it is a dimension, batch."""
    for name, x in (("q", q), ("k", k), ("v", v)):
        tensor(name, x, shape)
    if q.dtype not in HALVES and q.dtype != FP8:
        raise TypeError(f"q is {q.dtype}, not float16, bfloat16 or float8_e4m3fn")
    batched = len(shape) == 4
    for name, x in (("k", k), ("v", v)):
        if x.dtype != q.dtype:
            raise TypeError(f"{name} is {x.dtype}, and q is {q.dtype}")
        beside(name, x, "q", q)
        if x.shape[-1] != q.shape[-1] or (batched and x.shape[0] != q.shape[0]):
            what = "batch and head_dim" if batched else "head_dim"
            raise ValueError(f"{name} is {list(x.shape)}, and q is {list(q.shape)}: {what} differ")
    if k.shape != v.shape:
        raise ValueError(f"k is {list(k.shape)}, and v is {list(v.shape)}")
    heads(q, k)


def descale(value: Optional[Sequence[Tensor]], names: str, q: Tensor, batch: int, of_q: int, of_k: int) -> None:
    """The factors of E4M3 tensors, as many as there are names."""
    wanted = "(" + ", ".join(f"of {name}" for name in names) + ")"
    if value is None:
        raise ValueError(f"descale is missing: E4M3 tensors come with {wanted}")
    if not isinstance(value, (tuple, list)):
        raise TypeError(f"descale is a {type(value).__name__}, not {wanted}")
    if len(value) != len(names):
        raise ValueError(f"descale has {len(value)} tensors, not {len(names)}: {wanted}")
    for name, x in zip(names, value):
        array(f"descale of {name}", x, torch.float32, (batch, of_q if name == "q" else of_k), q)


def no_descale(value: Optional[Sequence[Tensor]], x: Tensor, name: str = "q") -> None:
    if value is not None:
        raise ValueError(f"descale is given, and {name} is {x.dtype}: only E4M3 tensors have factors")


def window(value: Optional[Window]) -> tuple[int, int]:
    """(left, right) with -1 for no limit."""
    if value is None:
        return -1, -1
    if not isinstance(value, (tuple, list)) or len(value) != 2:
        raise ValueError(f"window_size is {value!r}: it is (left, right) in keys, with -1 for no limit")
    for limit in value:
        if isinstance(limit, bool):
            raise TypeError(f"window_size is {value!r}: a limit is a number of keys, not a bool")
        if limit is not None and (not isinstance(whole(limit), int) or limit < -1):
            raise ValueError(f"window_size is {value!r}: a limit is a number of keys, or -1 for none")
    left, right = (-1 if limit is None else min(int(limit), 2**31 - 1) for limit in value)
    return left, right


def whole(value: Any) -> Any:
    """An integer of another library, such as numpy, as Python's; all other values as they are."""
    if isinstance(value, (int, torch.SymInt)) or not isinstance(value, numbers.Integral):
        return value
    return int(value)


def factor(name: str, value: Optional[float]) -> Optional[float]:
    """A number that is finite and not negative; numpy's numbers become Python's."""
    if value is None:
        return None
    if isinstance(value, bool):
        raise TypeError(f"{name} is a bool, not a number")
    if not isinstance(value, (int, float)):
        if isinstance(value, Tensor) or not isinstance(value, numbers.Real):
            raise TypeError(f"{name} is a {type(value).__name__}, not a number")
        value = float(value)
    if not 0 <= value <= torch.finfo(torch.float32).max:
        raise ValueError(f"{name} is {value!s:.40}: it must be finite in float32, and not negative")
    return value


def sinks(value: Optional[Tensor], q: Tensor) -> None:
    if value is not None:
        array("sinks", value, torch.float32, (q.shape[1],), q)


def alibi_slopes(value: Optional[Tensor], q: Tensor, batch: int) -> None:
    """One for each head, or for each head of each sequence."""
    if value is not None:
        of_batch = isinstance(value, Tensor) and value.dim() == 2
        array("alibi_slopes", value, torch.float32, (batch, q.shape[1]) if of_batch else (q.shape[1],), q)


def finite(name: str, value: Optional[Tensor]) -> None:
    """The numbers of a tensor in host memory; those of a GPU are not waited for."""
    if value is not None and value.device.type == "cpu" and not torch.isfinite(value).all():
        raise ValueError(f"{name} is {value.tolist()}: its numbers must be finite")


def tree_mask(value: Optional[Tensor], q: Tensor, queries: int, causal: bool, window_size: tuple[int, int]) -> None:
    """A word for each row of q, of which at most 64 are of one sequence."""
    if value is None:
        return
    if not isinstance(value, Tensor):
        raise TypeError(f"tree_mask is a {type(value).__name__}, not a tensor int64 or uint64")
    wanted = [q.shape[0]] if q.dim() == 3 else [q.shape[0], q.shape[2]]
    if value.dtype not in (torch.int64, torch.uint64) or list(value.shape) != wanted:
        raise ValueError(f"tree_mask is {value.dtype} {list(value.shape)}, not int64 or uint64 {wanted}")
    beside("tree_mask", value, "q", q)
    if causal:
        raise ValueError("tree_mask is given, and causal is True: the mask of a tree replaces the causal one")
    if max(window_size) >= 0:
        raise ValueError(f"tree_mask is given, and window_size is {window_size}: a tree has no window")
    if queries > 64:
        raise ValueError(f"tree_mask is given, and there are {queries} queries: it has a bit for each, at most 64")


def options(q: Tensor, smooth_k: bool, hadamard: bool) -> None:
    for name, value in (("smooth_k", smooth_k), ("hadamard", hadamard)):
        if value and q.dtype == FP8:
            raise ValueError(f"{name} is set, and q is {q.dtype}: it is an option of the quantiser of FP16 and BF16")
    head_dim = q.shape[-1]
    if hadamard and (head_dim == 0 or head_dim & (head_dim - 1)):
        raise ValueError(f"hadamard is set, and head_dim is {head_dim}: it must be a power of two")


def known_precision(value: Precision) -> None:
    if not isinstance(value, str) or value not in PRECISIONS:
        raise ValueError(f'precision is {value!r}, not "auto", "fp8" or "16"')


def precision(value: Precision, q: Tensor, k: Tensor, smooth_k: bool = False, hadamard: bool = False) -> None:
    known_precision(value)
    if value != "16":
        return
    for name, x in (("q", q), ("k", k)):
        if x.dtype == FP8:
            raise ValueError(f'precision is "16", and {name} is {x.dtype}: E4M3 tensors are computed in FP8')
    for name, option in (("smooth_k", smooth_k), ("hadamard", hadamard)):
        if option:
            raise ValueError(f'{name} is set, and precision is "16": it is an option of the quantiser')


def out(value: Optional[Tensor], q: Tensor) -> None:
    """out has the sizes of q, contiguous rows, and no element twice."""
    if value is None:
        return
    if not isinstance(value, Tensor):
        raise TypeError(f"out is a {type(value).__name__}, not a tensor")
    strided("out", value)
    if value.shape != q.shape or value.device != q.device:
        raise ValueError(f"out is {list(value.shape)} on {value.device}, and q is {list(q.shape)} on {q.device}")
    if value.dtype not in HALVES:
        raise TypeError(f"out is {value.dtype}, not float16 or bfloat16")
    if torch.is_grad_enabled() and value.requires_grad:
        raise ValueError("out requires a gradient: it is overwritten without a backward pass")
    plain("out", value)
    rows = value.shape[-1] == 1 or value.stride(-1) == 1
    if not rows or not is_apart(value):
        raise ValueError(f"out has strides {list(value.stride())}: its rows must be contiguous and not overlap")


def is_apart(x: Tensor) -> bool:
    """Whether no two rows of a tensor with contiguous rows can overlap: each dimension steps over the smaller ones."""
    extent = x.shape[-1]
    for stride, size in sorted((stride, size) for stride, size in zip(x.stride()[:-1], x.shape[:-1]) if size > 1):
        if stride < extent:
            return False
        extent += stride * (size - 1)
    return True


def apart(name: str, written: Tensor, inputs: Sequence[tuple[str, Optional[Tensor]]]) -> None:
    """No input has an element in the memory of a tensor that is written."""
    for of_input, x in inputs:
        if x is not None and overlap(written, x):
            raise ValueError(f"{name} overlaps {of_input} in memory: kernels read {of_input} while they write {name}")


def overlap(a: Tensor, b: Tensor) -> bool:
    """Whether two tensors share memory. Slices of one tensor have equal strides, and may lie
    between each other; of tensors with other strides the memory from the first to the last element counts."""
    start, end = zip(*((x.data_ptr(), x.data_ptr() + _bytes(x)) for x in (a, b)))
    if start[0] >= end[1] or start[1] >= end[0]:
        return False
    if a.stride() != b.stride() or a.dtype != b.dtype or (a.shape[-1] > 1 and a.stride(-1) != 1):
        return True
    steps = sorted(step for step in zip(a.stride()[:-1], a.shape[:-1], b.shape[:-1]) if max(step[1:]) > 1)
    extent = a.shape[-1]
    for stride, of_a, of_b in steps:
        if stride < extent:  # the elements of a tensor are not in order
            return True
        extent += stride * (max(of_a, of_b) - 1)
    return _meets((start[1] - start[0]) // a.element_size(), steps, a.shape[-1])


def _meets(distance: int, steps: Sequence[tuple[int, int, int]], row: int) -> bool:
    """Whether rows of a and b meet, if their first ones are this many elements apart: whether some difference of
    indices makes up the distance, less than a row aside. All smaller strides together make up less than the last."""
    if not steps:
        return abs(distance) < row
    *rest, (stride, of_a, of_b) = steps
    near = distance // stride
    return any(-of_b < n < of_a and _meets(distance - n * stride, rest, row) for n in (near, near + 1))


def _bytes(x: Tensor) -> int:
    """From the first to the last element."""
    return (sum((n - 1) * s for n, s in zip(x.shape, x.stride())) + 1) * x.element_size() if x.numel() else 0


def plain(name: str, x: Tensor) -> None:
    """x, which is written, has the values of its memory. A compiled graph has no views of this kind."""
    if not torch.compiler.is_compiling() and x.is_neg():
        raise ValueError(f"{name} is a negative view: its memory has other values than it")


def offsets(
    name: str, value: Optional[Tensor], batch: Optional[int], limit: str, most: int, x: Tensor, q: Tensor
) -> int:
    """The offsets of packed rows of x, of some sequences, and the most rows of one. Returns the sequences."""
    if value is None:
        raise TypeError(f"{name} is None, not a tensor int32 [batch + 1]")
    array(name, value, torch.int32, (None if batch is None else batch + 1,), q)
    if value.shape[0] < 2:
        raise ValueError(f"{name} has {value.shape[0]} elements, not batch + 1, which is 2 at least")
    if not isinstance(most, (int, torch.SymInt)) or isinstance(most, bool):
        raise TypeError(f"{limit} is a {type(most).__name__}, not an int")
    if most < 0 or most > x.shape[0]:
        raise ValueError(f"{limit} is {most}: it must be from 0 to {x.shape[0]}, the rows of all sequences")
    return value.shape[0] - 1


def page_size(name: str, cache: Tensor) -> None:
    if cache.shape[2] == 0 or cache.shape[2] % 16:
        raise ValueError(f"{name} has pages of {cache.shape[2]} keys, not a multiple of 16")
