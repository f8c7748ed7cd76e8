"""The record of the integrations with other libraries: which call went which way, and a table of it."""

from collections import Counter
from typing import Any, NamedTuple, Optional

import torch
from torch import Tensor

from attune._check import Precision
from attune._explain import explain


class Row(NamedTuple):
    """Calls of one layer that went one way."""

    layer: str  # "LlamaAttention 3"; empty where the caller is not known
    shape: str  # of q, "1x32x4096x128"
    path: str  # "attune", "sdpa" or "eager" of transformers, "native" of diffusers, "flash" of PyTorch
    precision: str  # what attune computed in, "fp8" or "16", or the dtype that others computed in
    kernel: str  # of attune, "pingpong"; empty for others
    reason: str  # why attune did not compute it


# q, k, v and the named arguments of attune.explain, of a call that attune has computed. To make a NamedTuple of them
# would take longer than to count the call.
Computed = tuple[Tensor, Tensor, Tensor, dict[str, Any]]


_Caller = tuple[str, str, str, torch.Size]  # layer, path, reason and shape of q, of calls with the same row


class _Sketch(NamedTuple):
    """What attune.explain reads of a tensor. The tensor itself would stay in memory."""

    shape: torch.Size
    strides: tuple[int, ...]
    dtype: torch.dtype

    def tensor(self) -> Tensor:
        return torch.empty_strided(self.shape, self.strides, dtype=self.dtype, device="meta")


def _sketch(x: Any) -> Any:
    return _Sketch(x.shape, x.stride(), x.dtype) if isinstance(x, Tensor) else x


class _Problem:
    """What attune.explain needs to know of calls with the same shapes, strides and options."""

    def __init__(self, call: Computed) -> None:
        *tensors, options = call
        self.tensors = [_sketch(x) for x in tensors]
        self.options = {name: _sketch(x) for name, x in options.items()}
        self.calls: dict[int, int] = {}  # by number of the caller

    def explained(self) -> tuple[str, str]:
        """The precision and the kernel. Without an answer the precision is the one that the caller chose."""
        chosen: str = self.options.get("precision", "auto")
        try:
            q, k, v = (x.tensor() for x in self.tensors)
            given = self.options.items()
            options: dict[str, Any] = {name: x.tensor() if isinstance(x, _Sketch) else x for name, x in given}
            found = explain(q, k, v, **options)
        except RuntimeError:  # no library
            return chosen, ""
        return found.precision or chosen, found.kernel


# The values of options that are not tensors. To ask for the type takes a fraction of the time of isinstance.
_VALUES = frozenset({type(None), bool, int, float, str, tuple})

# Each token that is decoded is another problem: the oldest of more than these are explained before the table is read.
_MAX_OPEN = 1024


class Calls:
    """How many calls of attention attune took, and how many it left to others. The integrations with other libraries
    record each layer too; printed they are a table. attune.patch records no rows: that would take over 1 us a call."""

    def __init__(self, precision: Precision = "auto") -> None:
        self.precision = precision
        self.clear()

    def clear(self) -> None:
        self.taken = self.fallback = 0
        self._rows: Counter[Row] = Counter()
        # Calls that are not in rows yet. Callers have numbers, so that decoding makes no objects for the garbage collector.
        self._callers: dict[_Caller, int] = {}
        self._problems: dict[Any, _Problem] = {}
        self._left: Counter[tuple[_Caller, torch.dtype]] = Counter()

    def record(self, layer: str, path: str, q: Tensor, call: Optional[Computed] = None, reason: str = "") -> None:
        """Counts a call that attune computed, or one of another implementation. attune.explain is asked about it when
        the table is read."""
        if path == "attune":
            self.taken += 1
        else:
            self.fallback += 1
        caller = (layer, path, reason, q.shape)
        try:
            if call is None:
                self._left[caller, q.dtype] += 1
            else:
                counts = self._problem(call).calls
                number = self._callers.setdefault(caller, len(self._callers))
                counts[number] = counts.get(number, 0) + 1
        except TypeError:  # a trace has shapes that are no numbers, and no problem to explain
            self._add(caller, 1, "auto" if call else _name(q.dtype))

    def _problem(self, call: Computed) -> _Problem:
        q, k, v, options = call
        out = options.get("out")
        key = (q.dtype, q.shape, q.stride(), k.shape, k.stride(), v.stride(), *options,
               *[x if type(x) in _VALUES else x.shape for x in options.values()],
               None if out is None else (out.dtype, out.stride()))  # fmt: skip
        problem = self._problems.get(key)
        if problem is None:
            if len(self._problems) >= _MAX_OPEN:
                self._close(self._problems.pop(next(iter(self._problems))))
            self._problems[key] = problem = _Problem(call)
        return problem

    @property
    def rows(self) -> Counter[Row]:
        """The table."""
        problems, self._problems = self._problems, {}
        for problem in problems.values():
            self._close(problem)
        left, self._left = self._left, Counter()
        for (caller, dtype), n in left.items():
            self._add(caller, n, _name(dtype))
        return self._rows

    def _close(self, problem: _Problem) -> None:
        """Explains calls, and adds them to the table."""
        found, callers = problem.explained(), list(self._callers)
        for number, n in problem.calls.items():
            self._add(callers[number], n, *found)

    def _add(self, caller: _Caller, n: int, precision: str, kernel: str = "") -> None:
        layer, path, reason, shape = caller
        self._rows[Row(layer, "x".join(map(str, shape)), path, precision, kernel, reason)] += n

    def __str__(self) -> str:
        rows = self.rows
        if not rows:
            return f"attune computed {self.taken} calls and left {self.fallback}"
        table = [("calls", *(name for name in Row._fields)), *((str(n), *row) for row, n in rows.items())]
        columns = [column for column in zip(*table) if any(column[1:])]  # the first cell is the name
        widths = [max(map(len, column)) for column in columns]
        return "\n".join("  ".join(map(str.ljust, cells, widths)).rstrip() for cells in zip(*columns))


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
