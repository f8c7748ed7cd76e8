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


class Computed(NamedTuple):
    """The arguments of attune.explain for a call that attune has computed."""

    q: Tensor
    k: Tensor
    v: Tensor
    options: dict[str, Any]


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
        self.tensors = [_sketch(x) for x in call[:3]]
        self.options = {name: _sketch(x) for name, x in call.options.items()}
        self._explained: Optional[tuple[str, str]] = None

    def explained(self) -> tuple[str, str]:
        """The precision and the kernel. Without an answer the precision is the one that the caller chose."""
        if self._explained is None:
            self._explained = self._explain()
        return self._explained

    def _explain(self) -> tuple[str, str]:
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

# Each token that is decoded is another problem.
_MAX_OPEN = 4096


class Calls:
    """How many calls of attention attune took, and how many it left to others. The integrations with other libraries
    record each layer too; printed they are a table. attune.patch records no rows: that would take over 1 us a call."""

    def __init__(self, precision: Precision = "auto") -> None:
        self.precision = precision
        self.clear()

    def clear(self) -> None:
        self.taken = self.fallback = 0
        self._rows: Counter[Row] = Counter()
        self._problems: dict[Any, _Problem] = {}
        # Calls that are not in rows yet, by layer, path, reason, shape of q, and its dtype or the problem.
        self._open: Counter[tuple[str, str, str, torch.Size, Any]] = Counter()

    def record(self, layer: str, path: str, q: Tensor, call: Optional[Computed] = None, reason: str = "") -> None:
        """Counts a call that attune computed, or one of another implementation. attune.explain is asked about it when
        the table is read."""
        if path == "attune":
            self.taken += 1
        else:
            self.fallback += 1
        try:
            self._open[layer, path, reason, q.shape, q.dtype if call is None else self._problem(call)] += 1
        except TypeError:  # a trace has shapes that are no numbers, and no problem to explain
            self._rows[Row(layer, _text(q.shape), path, "auto" if call else _name(q.dtype), "", reason)] += 1
            return
        if len(self._open) >= _MAX_OPEN:
            self._close()

    def _problem(self, call: Computed) -> _Problem:
        q, k, v, options = call
        out = options.get("out")
        key = (q.dtype, q.shape, q.stride(), k.shape, k.stride(), v.stride(), *options,
               *[x if type(x) in _VALUES else x.shape for x in options.values()],
               None if out is None else (out.dtype, out.stride()))  # fmt: skip
        problem = self._problems.get(key)
        if problem is None:
            self._problems[key] = problem = _Problem(call)
        return problem

    @property
    def rows(self) -> Counter[Row]:
        """The table."""
        self._close()
        return self._rows

    def _close(self) -> None:
        """Explains the calls since the last time, and adds them to the table."""
        calls, self._open, self._problems = self._open, Counter(), {}
        for (layer, path, reason, shape, of), n in calls.items():
            precision, kernel = of.explained() if isinstance(of, _Problem) else (_name(of), "")
            self._rows[Row(layer, _text(shape), path, precision, kernel, reason)] += n

    def __str__(self) -> str:
        rows = self.rows
        if not rows:
            return f"attune computed {self.taken} calls and left {self.fallback}"
        table = [("calls", *(name for name in Row._fields)), *((str(n), *row) for row, n in rows.items())]
        columns = [column for column in zip(*table) if any(column[1:])]  # the first cell is the name
        widths = [max(map(len, column)) for column in columns]
        return "\n".join("  ".join(map(str.ljust, cells, widths)).rstrip() for cells in zip(*columns))


def _text(shape: torch.Size) -> str:
    return "x".join(str(n) for n in shape)


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
