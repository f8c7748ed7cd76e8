"""attune.explain: which kernel computes a call, in which precision, and why. Nothing is computed."""

import dataclasses
from collections.abc import Sequence
from typing import Any, Optional

import torch
from torch import Tensor

from attune import _arguments, _attention, _cache, _check, _library, _operators, _times
from attune._arguments import Call
from attune._check import Precision, Window

_PRECISIONS = {1: "fp8", 2: "16"}  # of attune_sdpa_explanation


@dataclasses.dataclass(frozen=True)
class Explanation:
    """What a call does on a GPU. Without a kernel PyTorch computes it, with fallback=True."""

    form: Optional[str]  # the variant of the kernel; None without one
    kernel: str  # dense, decode, prefill, prefill16, native, pingpong, mixed, warp or warp8; pytorch; none where no query sees a key
    precision: Optional[str]  # of k and v: "fp8" or "16"; None without a kernel
    launches: int  # of kernels of attune
    workspace_bytes: int
    error_class: Optional[float]  # documented error of O, RMS over that of float64, on normal inputs
    reason: str
    arch: Optional[str] = None  # of the GPU that the call was planned for, "sm_89"; None without a kernel
    predicted_us: Optional[float] = None  # device time on an NVIDIA H200, interpolated; None without measured times
    of_codes: bool = False  # k and v are in E4M3: the error is over them, without that of their quantisation

    def __str__(self) -> str:
        rows = [("kernel", self.kernel if self.form is None else f"{self.kernel}, form {self.form}")]
        if self.form is not None:
            plural = "es" if self.launches > 1 else ""
            over = " over the E4M3 k and v as given" if self.of_codes else ""
            rows += [
                ("gpu", str(self.arch)),
                ("precision", f"{self.precision}, documented error {self.error_class}{over}"),
                ("launches", f"{self.launches} launch{plural}, {self.workspace_bytes} bytes of workspace"),
            ]
        if self.predicted_us is not None:
            rows.append(("predicted", f"{self.predicted_us:.3g} us on an {_times.CARD}"))
        return "\n".join(f"{name:<10} {text}" for name, text in [*rows, ("reason", self.reason)])


def explain(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    cu_seqlens_q: Optional[Tensor] = None,
    cu_seqlens_k: Optional[Tensor] = None,
    max_seqlen_q: Optional[int] = None,
    max_seqlen_k: Optional[int] = None,
    lengths: Optional[Tensor] = None,
    page_table: Optional[Tensor] = None,
    causal: Optional[bool] = None,
    scale: Optional[float] = None,
    window_size: Optional[Window] = None,
    sinks: Optional[Tensor] = None,
    softcap: Optional[float] = None,
    alibi_slopes: Optional[Tensor] = None,
    tree_mask: Optional[Tensor] = None,
    descale: Optional[Sequence[Tensor]] = None,
    return_lse: bool = False,
    out: Optional[Tensor] = None,
    smooth_k: bool = False,
    hadamard: bool = False,
    precision: Precision = "auto",
    arch: Optional[str] = None,
    multiprocessors: Optional[int] = None,
) -> Explanation:
    """What attune.sdpa does for these arguments on a GPU, and why.

    With cu_seqlens_q and cu_seqlens_k it explains attune.sdpa_varlen, with lengths attune.decode, and
    with lengths and cu_seqlens_q attune.prefill. The caches of the latter two are k and v, and their
    default is causal, without a tree_mask. The arguments are those of the functions; behind q, k and v
    all are given by name.
    Tensors may be on any device, or fake: only their dtypes, shapes and strides are read. The GPU is that of the
    tensors, else the current one, else, where PyTorch has not used any, an H200. arch and multiprocessors name
    another: "sm_89" and 58 are an L4.
    """
    most_q: Any = 0 if cu_seqlens_q is None else _check.whole(max_seqlen_q)  # None, which is missing, is refused with the offsets
    most_k: Any = 0 if cu_seqlens_k is None else _check.whole(max_seqlen_k)
    sides = _check.window(window_size)
    scale, softcap = _check.factor("scale", scale), _check.factor("softcap", softcap)
    causal = lengths is not None and tree_mask is None if causal is None else _check.flag("causal", causal)
    return_lse = _check.flag("return_lse", return_lse)
    smooth_k, hadamard = _check.flag("smooth_k", smooth_k), _check.flag("hadamard", hadamard)
    call = Call(q, k, v, causal, scale, sides, sinks, descale, return_lse, out, smooth_k, hadamard, cu_seqlens_q,
                cu_seqlens_k, most_q, most_k, lengths, page_table, precision, softcap,
                alibi_slopes, tree_mask)  # fmt: skip
    _check_call(call)
    gpu = _gpu(q, arch, multiprocessors)
    if _operators.is_empty(call):
        return _without_kernel("none", "no query sees a key, and O is zero")
    try:
        if (reason := _operators.refusal(call, anywhere=True)) is not None:
            raise NotImplementedError(reason)
        found = _explain(call, gpu)
        us = _times.predicted(call, found.kernel) if gpu in ((0, 0), _times.GPU) else None
        return dataclasses.replace(found, predicted_us=us)
    except NotImplementedError as refused:
        return _without_kernel("pytorch", f"{refused}; fallback=True computes it by PyTorch")


def _check_call(call: Call) -> None:
    if call.lengths is not None:
        if call.smooth_k or call.hadamard:
            raise ValueError("smooth_k or hadamard is set, and lengths is given: a cache has no such option")
        if call.cu_seqlens_k is not None:
            raise ValueError("cu_seqlens_k and lengths are given: the keys are either packed or a cache")
        return _cache.check_cached(call) if call.cu_seqlens_q is None else _cache.check_prefilled(call)
    if call.page_table is not None:
        raise ValueError("page_table is given, and lengths is None: pages come with the lengths of the sequences")
    if call.cu_seqlens_q is not None or call.cu_seqlens_k is not None:
        return _attention.check_packed(call)
    return _attention.check_dense(call)


def _without_kernel(kernel: str, reason: str) -> Explanation:
    return Explanation(None, kernel, None, 0, 0, None, reason)


class _Like:
    """Has what the library is told of a tensor, and no elements. Without strides it is contiguous, as a copy would be."""

    def __init__(self, x: Tensor, dtype: Optional[torch.dtype] = None, strides: Optional[tuple[int, ...]] = None) -> None:
        self.shape, self.dtype, self._strides = tuple(x.shape), x.dtype if dtype is None else dtype, strides

    def stride(self) -> tuple[int, ...]:
        if self._strides is not None:
            return self._strides
        strides = [1]
        for n in self.shape[:0:-1]:
            strides.append(strides[-1] * n)
        return tuple(reversed(strides[: len(self.shape)]))


def _is_copy(x: object) -> bool:
    return isinstance(x, _Like) and x._strides is None


def _gpu(q: Tensor, arch: Optional[str], multiprocessors: Optional[int]) -> tuple[int, int]:
    """The GPU to plan for; (0, 0) for the current one."""
    if arch is None and multiprocessors is None:
        cuda: Any = torch.cuda  # whose functions have no types in all versions
        return _library.gpu(q.device.index) if q.is_cuda and cuda.is_initialized() else (0, 0)
    digits = str(arch).removeprefix("sm_").removesuffix("a")
    if not digits.isdecimal() or not str(arch).startswith("sm_") or not 20 <= int(digits) < 1000:
        raise ValueError(f"arch is {arch!r}: it is that of a GPU, such as 'sm_89', and comes with multiprocessors")
    if type(multiprocessors) is not int or not 1 <= multiprocessors <= 2**24:
        raise ValueError(f"multiprocessors is {multiprocessors!r}: it is those of a GPU of {arch}, from 1 to 2^24")
    return int(digits), multiprocessors


def _is_hopper(gpu: tuple[int, int]) -> bool:
    cuda: Any = torch.cuda
    if gpu == (0, 0):
        return not cuda.is_initialized() or _library.is_hopper(_library.gpu(cuda.current_device())[0])
    return _library.is_hopper(gpu[0])


def _explain(call: Call, gpu: tuple[int, int]) -> Explanation:
    if call.smooth_k and call.return_lse and _is_hopper(gpu):
        return _explain_smooth(call, gpu)
    call = _readable(call)
    try:
        return _ask(call, gpu)
    except NotImplementedError:
        tensors = (call.q, call.k, call.v)
        if call.lengths is not None or call.q.dtype != _check.FP8 or all(_is_copy(x) for x in tensors):
            raise
        q, k, v = (_Like(x) for x in tensors)
        copies: Any = {"q": q, "k": k, "v": v}
        return _ask(call._replace(**copies), gpu)


def _readable(call: Call) -> Call:
    """The call as the library gets it: with copies of the tensors that it cannot read where they are."""
    changes: dict[str, Any] = {}
    for name in ("q", "k", "v"):
        x = getattr(call, name)
        if type(x) is not Tensor:  # a fake one, of which PyTorch 2.6 makes no plain one
            changes[name] = _Like(x, strides=x.stride())
        if not _arguments.has_aligned_strides(x):
            if call.lengths is not None and name != "q":
                raise NotImplementedError(f"{name}_cache has strides {list(x.stride())}, not multiples of 16 bytes")
            _operators.check_copy(name, x)
            changes[name] = _Like(x)
    if call.out is not None:
        changes["out"] = _Like(call.out, strides=call.out.stride())
    for name in _operators.ARRAYS:
        if (x := getattr(call, name)) is not None:
            changes[name] = _Like(x)
    if call.descale is not None:
        changes["descale"] = tuple(_Like(x) for x in call.descale)
    return call._replace(**changes)


def _ask(call: Call, gpu: tuple[int, int]) -> Explanation:
    with _library.python_words():
        answer: Any = _library.load().explain(*_operators.without_subclasses(call), True, *gpu)
    if answer is None:
        raise RuntimeError(
            "the arguments passed all checks, but the compiled part of attune does not take them; please report this"
        )
    form, kernel, precision, launches, workspace, error, reason, arch, _ = answer
    return Explanation(form, kernel, _PRECISIONS[precision], launches, workspace, error, reason, arch=f"sm_{arch}",
                       of_codes=call.k.dtype == _check.FP8)  # fmt: skip


def _explain_smooth(call: Call, gpu: tuple[int, int]) -> Explanation:
    """With a log-sum-exp k is smoothed before the call, and PyTorch's operators correct the result."""
    quantised = _explain(call._replace(return_lse=False), gpu)
    q, k, v = (_Like(x, _check.FP8) for x in (call.q, call.k, call.v))
    factors = tuple(_Like(x[:, :, 0, 0], torch.float32) for x in (call.q, call.k, call.v))
    out: Any = _Like(call.q) if call.out is None else call.out
    codes: Any = {"q": q, "k": k, "v": v, "descale": factors, "out": out, "smooth_k": False, "hadamard": False}
    found = _ask(call._replace(**codes, precision="auto"), gpu)
    return dataclasses.replace(
        found,
        launches=quantised.launches,
        workspace_bytes=max(quantised.workspace_bytes, found.workspace_bytes),
        error_class=quantised.error_class,
        reason="smooth_k quantises, and operators of PyTorch correct the log-sum-exp",
        of_codes=False,
    )
