"""A stand-in for the library: attune.sdpa and its like compute on a CPU, by PyTorch, what the kernels would."""

import contextlib
from unittest import mock

import torch

from attune import _arguments, _attention, _cache, _check, _reference


def _attend(*arguments):
    call = _arguments.Call(*arguments[:-1])  # the last says whether the caller has checked them
    tensors = [call.q, call.k, call.v]
    head_dim = call.q.shape[-1]
    in_16_bits = call.precision != "fp8" and head_dim % 8 == 0 and head_dim <= 256
    if call.q.dtype not in _check.HALVES or not (in_16_bits or head_dim in (64, 128, 256)):
        raise NotImplementedError(
            f"head_dim is {head_dim}, of {call.q.dtype}; the kernels have 64, 128 and 256, others in 16 bits"
        )
    if call.softcap and call.precision == "fp8":
        raise NotImplementedError(f"softcap is {call.softcap}; with it nothing is quantised")
    if call.alibi_slopes is not None and call.precision == "fp8":
        raise NotImplementedError("alibi_slopes is given; with it nothing is quantised")
    if torch.is_grad_enabled() and any(x.requires_grad for x in tensors):
        return None  # the caller says why
    assert call.sinks is None or call.sinks.dtype == torch.float32, "the kernels take sinks in float32"
    return _reference.attention(call._replace(window_size=_check.window(call.window_size)))


@contextlib.contextmanager
def library():
    """In this block CPU tensors are computed as if the library was there. The target counts the calls."""
    attend = mock.Mock(side_effect=_attend)
    with mock.patch.object(_attention, "_attend", attend), mock.patch.object(_cache, "_attend", attend):
        yield attend
