"""The list of hostile calls: name, what is wanted, and the call."""

import contextlib
import copy
import ctypes
import decimal
import fractions
import os
import pickle
import signal
import sys
import threading
import time
import warnings
from unittest import mock

import torch
import torch.nn.functional as functional
from hostile import RIGHT, SURVIVES, Call, Failure, Skip, Unsupported, Wrong
from hostile_scene import BF16, DRIVER, FP8, FP16, LIBRARY, STRUCTS
from torch.autograd import forward_ad

import attune

try:
    import numpy
except ImportError:
    numpy = None

NAN, INF = float("nan"), float("inf")
BIG = 2**31 - 1
CALLS = []


def add(name, want, run, **options):
    CALLS.append(Call(name, want, run, **options))


def both(kind):
    return lambda pattern: Wrong(kind, pattern)


VALUE, TYPE = both(ValueError), both(TypeError)


# ---- sdpa: what the tensors are ------------------------------------------------------------------

for dtype in (torch.float32, torch.float64, torch.int8, torch.bool, torch.uint8, torch.complex64, torch.complex32,
              torch.float8_e5m2, torch.float8_e4m3fnuz):  # fmt: skip
    add(f"sdpa: all in {dtype}", TYPE(f"q is {dtype}"),
        lambda s, d=dtype: s.sdpa(*(torch.zeros(x.shape, device=s.device).to(d) for x in s.qkv)))  # fmt: skip
add("sdpa: k in float16 beside bfloat16", TYPE("k is torch.float16, and q is"), lambda s: s.sdpa(s.q, s.k.half(), s.v))
add("sdpa: v in float32", TYPE("v is torch.float32, and q is"), lambda s: s.sdpa(s.q, s.k, s.v.float()))
add("sdpa: q in E4M3 alone", TYPE("k is torch.bfloat16, and q is"), lambda s: s.sdpa(s.fp8[0], s.k, s.v, descale=s.fp8[3]))
add("sdpa: conjugate view", TYPE("q is torch.complex64"),
    lambda s: s.sdpa(torch.zeros(s.q.shape, dtype=torch.complex64, device=s.device).conj(), s.k, s.v))  # fmt: skip
add("sdpa: negative view", RIGHT, lambda s: s.sdpa(torch._neg_view(s.q), s.k, s.v))
add("sdpa: negative views of k and v", RIGHT, lambda s: s.sdpa(s.q, torch._neg_view(s.k), torch._neg_view(s.v)))
add("sdpa: sparse q", TYPE("q has the layout torch.sparse_coo"), lambda s: s.sdpa(s.q.to_sparse(), s.k, s.v))
add("sdpa: sparse v", TYPE("v has the layout torch.sparse_coo"), lambda s: s.sdpa(s.q, s.k, s.v.to_sparse()))
add("sdpa: compressed sparse k", TYPE("k has the layout torch.sparse_csr"),
    lambda s: s.sdpa(s.q, s.k.float()[0, 0].to_sparse_csr(), s.v))  # fmt: skip
add("sdpa: MKL-DNN tensor", TYPE("q"), lambda s: s.sdpa(s.q.float().cpu().to_mkldnn(), s.k, s.v))


def nested(s, layout, like):
    return torch.nested.nested_tensor([x.detach() for x in like], layout=layout)


for layout in (torch.strided, torch.jagged):
    add(f"sdpa: nested tensors, {layout}", TYPE("q (is nested|has the layout)"),
        lambda s, t=layout: s.sdpa(*(nested(s, t, x) for x in s.qkv)))  # fmt: skip
    add(f"sdpa: nested v, {layout}", TYPE("v (is nested|has the layout)"),
        lambda s, t=layout: s.sdpa(s.q, s.k, nested(s, t, s.v)))  # fmt: skip
add("sdpa: meta tensors", Wrong(NotImplementedError, "q is on meta"),
    lambda s: attune.sdpa(*(x.to("meta") for x in s.qkv)))  # fmt: skip
add("sdpa: meta tensors with fallback", RIGHT, lambda s: str(s.sdpa(*(x.to("meta") for x in s.qkv), fallback=True).device))
add("sdpa: k on another device", VALUE("k is on meta, and q is on"), lambda s: s.sdpa(s.q, s.k.to("meta"), s.v))
add("sdpa: v on the CPU", VALUE("v is on cpu, and q is on cuda"), lambda s: s.sdpa(s.q, s.k, s.v.cpu()), needs="gpu")
for value, kind in ((None, "NoneType"), ([1.0], "list"), ("q", "str"), (memoryview(b"1"), "memoryview"), (torch.Tensor, "_?[tT]ensor")):
    add(f"sdpa: q is a {kind}", TYPE(f"q is a {kind}"), lambda s, x=value: s.sdpa(x, s.k, s.v))
add("sdpa: v is None", TYPE("v is a NoneType"), lambda s: s.sdpa(s.q, s.k, None))


class Own(torch.Tensor):
    pass


class Wrapper(torch.Tensor):
    """A tensor that has no memory of its own."""

    @staticmethod
    def __new__(cls, x):
        return torch.Tensor._make_wrapper_subclass(cls, x.shape, dtype=x.dtype, device=x.device, strides=x.stride())

    def __init__(self, x):
        self.x = x

    @classmethod
    def __torch_dispatch__(cls, function, types, args=(), kwargs=None):
        plain = lambda x: x.x if isinstance(x, Wrapper) else x
        return function(*torch.utils._pytree.tree_map(plain, args), **torch.utils._pytree.tree_map(plain, kwargs or {}))


add("sdpa: a subclass", RIGHT, lambda s: s.sdpa(s.q.as_subclass(Own), s.k, s.v))
add("sdpa: a subclass without memory", RIGHT,
    lambda s: s.compare(attune.sdpa(Wrapper(s.q), s.k, s.v, **s.fallback), attune.sdpa(s.q, s.k, s.v, fallback=True).double()))  # fmt: skip
add("sdpa: a parameter without a gradient", RIGHT,
    lambda s: s.sdpa(torch.nn.Parameter(s.q, requires_grad=False), s.k, s.v))  # fmt: skip
add("sdpa: three dimensions", VALUE("q has 3 dimensions, not 4"), lambda s: s.sdpa(s.q[0], s.k[0], s.v[0]))
add("sdpa: five dimensions", VALUE("q has 5 dimensions, not 4"), lambda s: s.sdpa(s.q[None], s.k, s.v))
add("sdpa: no dimension", VALUE("k has 0 dimensions, not 4"), lambda s: s.sdpa(s.q, s.k[0, 0, 0, 0], s.v))

# ---- sdpa: sizes ---------------------------------------------------------------------------------

for dim in (1, 7, 8, 63, 65, 72, 80, 96, 192, 264, 512):
    add(f"sdpa: head dim {dim}", RIGHT if dim in (8, 72, 80, 96, 192) else Unsupported(f"head_dim is {dim}"),
        lambda s, d=dim: s.sdpa(s.tensor(1, 4, 9, d), s.tensor(1, 2, 12, d), s.tensor(1, 2, 12, d), causal=True))  # fmt: skip
add("sdpa: head dim 0", RIGHT, lambda s: s.sdpa(s.q[..., :0], s.k[..., :0], s.v[..., :0], scale=1.0))
add("sdpa: head dim 72 in E4M3", Unsupported("head_dim is 72|stride"),
    lambda s: s.sdpa(*(s.tensor(1, 2, 9, 72, dtype=FP8) for _ in "qkv"), descale=[s.ones(1, 2)] * 3))  # fmt: skip
add("sdpa: batch 0", RIGHT, lambda s: str(s.sdpa(s.q[:0], s.k[:0], s.v[:0]).shape))
add("sdpa: no queries", RIGHT, lambda s: s.sdpa(s.q[:, :, :0], s.k, s.v, return_lse=True))
add("sdpa: no keys", RIGHT, lambda s: s.sdpa(s.q, s.k[:, :, :0], s.v[:, :, :0], return_lse=True))
add("sdpa: no keys, causal with sinks", RIGHT,
    lambda s: s.sdpa(s.q, s.k[:, :, :0], s.v[:, :, :0], causal=True, sinks=s.ones(4), return_lse=True))  # fmt: skip
add("sdpa: no heads of k", VALUE("heads, which the 0 of k do not divide"), lambda s: s.sdpa(s.q, s.k[:, :0], s.v[:, :0]))
add("sdpa: no heads of q", RIGHT, lambda s: str(s.sdpa(s.q[:, :0], s.k, s.v).shape))
add("sdpa: heads not divisible", VALUE("q has 3 heads, which the 2 of k do not divide"), lambda s: s.sdpa(s.q[:, :3], s.k, s.v))
add("sdpa: more heads of k than of q", VALUE("q has 1 heads, which the 2"), lambda s: s.sdpa(s.q[:, :1], s.k, s.v))
add("sdpa: batches differ", VALUE("k is .* and q is .*: batch"), lambda s: s.sdpa(s.q, s.k[:1], s.v[:1]))
add("sdpa: head dims differ", VALUE("k is .* and q is .*head_dim differ"), lambda s: s.sdpa(s.q, s.k[..., :32], s.v[..., :32]))
add("sdpa: v is shorter than k", VALUE("k is .*, and v is"), lambda s: s.sdpa(s.q, s.k, s.v[:, :, :-1]))
add("sdpa: v has other columns", VALUE("v is .*, and q is"), lambda s: s.sdpa(s.q, s.k, s.v[..., :32]))
add("sdpa: one query, one key", RIGHT, lambda s: s.sdpa(s.q[:, :, :1], s.k[:, :, :1], s.v[:, :, :1], causal=True, return_lse=True))
add("sdpa: causal, more queries than keys", RIGHT,
    lambda s: s.sdpa(s.q, s.k[:, :, :5], s.v[:, :, :5], causal=True, return_lse=True))  # fmt: skip
LARGE = Wrong(NotImplementedError, "2\\^31|is on cpu|[0-9]{8}")
for name, sizes in (("2^31 elements of q", (1, 1, 2**25, 64)), ("2^32 queries", (1, 1, 2**32, 64)),
                    ("2^31 batches", (2**31, 1, 1, 64)), ("2^40 elements of q", (1, 2**20, 2**14, 64))):  # fmt: skip
    add(f"sdpa: {name}, expanded", LARGE,
        lambda s, n=sizes: attune.sdpa(s.q[:1, :1, :1].expand(n), *(x[:1, :1].expand(n[0], 1, 40, 64) for x in s.qkv[1:])))  # fmt: skip
for name, sizes in (("2^31 elements", (1, 1, 2**25 + 1, 64)), ("2^33 keys", (1, 1, 2**33, 64)), ("2^50 keys", (1, 1, 2**50, 64))):
    add(f"sdpa: {name} of k, expanded", LARGE,
        lambda s, n=sizes: attune.sdpa(s.q[:1, :1], *(x[:1, :1, :1].expand(n) for x in s.qkv[1:])))  # fmt: skip

# ---- sdpa: strides -------------------------------------------------------------------------------

add("sdpa: columns not adjacent", RIGHT, lambda s: s.sdpa(s.tensor(2, 4, 64, 33).transpose(2, 3), s.k, s.v))
add("sdpa: every other column", RIGHT, lambda s: s.sdpa(s.tensor(2, 4, 33, 128)[..., ::2], s.k, s.v))
add("sdpa: not at 16 bytes", RIGHT, lambda s: s.sdpa(s.tensor(2, 4, 33, 72)[..., 3:67], s.k, s.v))
add("sdpa: odd row strides", RIGHT, lambda s: s.sdpa(s.q, s.tensor(2, 2, 40, 67)[..., :64], s.v))
add("sdpa: expanded heads", RIGHT, lambda s: s.sdpa(s.q, s.k[:, :1].expand(2, 4, 40, 64), s.v[:, :1].expand(2, 4, 40, 64)))
add("sdpa: expanded rows", RIGHT, lambda s: s.sdpa(s.q[:, :, :1].expand(s.q.shape), s.k[:, :, :1].expand(s.k.shape), s.v))
add("sdpa: expanded columns", RIGHT, lambda s: s.sdpa(s.q[..., :1].expand(s.q.shape), s.k, s.v))
add("sdpa: all of one element", RIGHT, lambda s: s.sdpa(*(x[:1, :1, :1, :1].expand(x.shape) for x in s.qkv)))
add("sdpa: overlapping rows", RIGHT, lambda s: s.sdpa(s.tensor(4000).as_strided((2, 4, 33, 64), (1000, 300, 8, 1)), s.k, s.v))
add("sdpa: overlapping rows, not at 16 bytes", RIGHT,
    lambda s: s.sdpa(s.q, s.tensor(4000)[3:].as_strided((2, 2, 40, 64), (1000, 300, 5, 1)), s.v))  # fmt: skip
add("sdpa: slices of packed QKV", RIGHT, lambda s: s.sdpa(*s.tensor(2, 33, 3, 4, 64).permute(2, 0, 3, 1, 4).unbind()))
add("sdpa: slices of packed QKV, a head dim of 72", RIGHT,
    lambda s: s.sdpa(*s.tensor(2, 33, 3, 4, 72).permute(2, 0, 3, 1, 4).unbind()))  # fmt: skip
add("sdpa: rows before heads", RIGHT, lambda s: s.sdpa(s.tensor(2, 33, 4, 64).transpose(1, 2), s.k, s.v, return_lse=True))
add("sdpa: strides of extents of 1", RIGHT, lambda s: s.sdpa(*(x[:1, :1, :1].as_strided((1, 1, 1, 64), (7, 5, 3, 1)) for x in s.qkv)))
add("sdpa: batches before and behind", RIGHT, lambda s: s.sdpa(s.q.flip(0), s.k[:, :, ::2], s.v[:, :, 1::2], causal=True))
add("sdpa: strided and expanded E4M3", RIGHT,
    lambda s: s.sdpa(s.fp8[0].transpose(1, 2).contiguous().transpose(1, 2), s.fp8[1][:, :, ::2], s.fp8[2][:, :, :20], descale=s.fp8[3]))  # fmt: skip

# ---- sdpa: out -----------------------------------------------------------------------------------


def out_like(s, *shape, dtype=BF16, strides=None):
    return s.between_guards(shape or s.q.shape, dtype, strides)


def with_out(s, out, **options):
    o = s.sdpa(*s.qkv, out=out, **options)
    if (o[0] if isinstance(o, tuple) else o) is not out:
        raise Failure("the result is not out")
    return o


add("out: right", RIGHT, lambda s: with_out(s, out_like(s)))
add("out: right, lse too", RIGHT, lambda s: with_out(s, out_like(s), return_lse=True))
add("out: float16 of bfloat16", RIGHT, lambda s: with_out(s, out_like(s, dtype=FP16)))
add("out: rows before heads", RIGHT, lambda s: with_out(s, out_like(s, 2, 33, 4, 64).transpose(1, 2)))
add("out: padded rows", RIGHT, lambda s: with_out(s, out_like(s, 2, 4, 33, 128)[..., 64:]))
add("out: not at 16 bytes", Wrong((ValueError, NotImplementedError), "out has strides|is on cpu") , lambda s: attune.sdpa(*s.qkv, out=out_like(s, 2, 4, 33, 72)[..., 3:67]))
add("out: float32", TYPE("out is torch.float32"), lambda s: with_out(s, out_like(s, dtype=torch.float32)))
add("out: E4M3", TYPE("out is torch.float8"), lambda s: with_out(s, out_like(s, dtype=FP8)))
add("out: another shape", VALUE("out is .*, and q is"), lambda s: with_out(s, out_like(s, 2, 4, 32, 64)))
add("out: another rank", VALUE("out is .*, and q is"), lambda s: with_out(s, out_like(s, 8, 33, 64)))
add("out: on meta", VALUE("out is .* on meta"), lambda s: with_out(s, s.q.to("meta")))
add("out: on the CPU", VALUE("out is .* on cpu"), lambda s: with_out(s, s.q.cpu()), needs="gpu")
add("out: no tensor", TYPE("out is a list"), lambda s: s.sdpa(*s.qkv, out=[1]))
add("out: sparse", TYPE("out has the layout"), lambda s: s.sdpa(*s.qkv, out=s.q.to_sparse()))
add("out: nested", TYPE("out is nested"), lambda s: s.sdpa(*s.qkv, out=nested(s, torch.strided, s.q)))
add("out: columns not adjacent", VALUE("out has strides"), lambda s: with_out(s, out_like(s, 2, 4, 64, 33).transpose(2, 3)))
add("out: expanded", VALUE("out has strides"), lambda s: with_out(s, out_like(s, 2, 1, 33, 64).expand(2, 4, 33, 64)))
add("out: overlapping rows", VALUE("out has strides"), lambda s: with_out(s, out_like(s, 4000).as_strided(s.q.shape, (2000, 300, 8, 1))))
add("out: overlapping heads", VALUE("out has strides"), lambda s: with_out(s, out_like(s, 20000).as_strided(s.q.shape, (8448, 64, 64, 1))))
add("out: negative view", VALUE("out is a negative view"), lambda s: with_out(s, torch._neg_view(out_like(s))))
add("out: q", VALUE("out overlaps q"), lambda s: with_out(s, s.q))
add("out: a part of v", VALUE("out overlaps v"),
    lambda s: s.sdpa(s.q[:, :2], s.k, s.v, out=s.v[:, :, :33]))  # fmt: skip
add("out: one row of q", VALUE("out overlaps q"),
    lambda s: (lambda x: s.sdpa(x[:, :, :33], s.k, s.v, out=x[:, :, 32:]))(s.tensor(2, 4, 65, 64)))  # fmt: skip
add("out: between q, k and v", RIGHT,
    lambda s: (lambda x: s.sdpa(x[:, :, 0], x[:, :, 1], x[:, :, 2], out=x[:, :, 3]))(s.tensor(2, 4, 4, 33, 64)))  # fmt: skip
add("out: the sinks", VALUE("out overlaps sinks"),
    lambda s: (lambda x: s.sdpa(*s.qkv, out=x, sinks=x.view(torch.float32).view(-1)[:4]))(s.zeros(2, 4, 33, 64)))  # fmt: skip
add("out: the factors", VALUE("out overlaps descale"),
    lambda s: (lambda x: s.sdpa(*s.fp8[:3], out=x, descale=(*s.fp8[3][:2], x.view(torch.float32).view(-1)[:4].view(2, 2))))(s.zeros(2, 4, 33, 64)))  # fmt: skip
add("out: the lengths", VALUE("out overlaps lengths"),
    lambda s: (lambda x: s.decode(*s.cache[:3], x.view(torch.int32).view(-1)[:3], out=x))(s.zeros(3, 4, 1, 64)))  # fmt: skip
add("out: requires a gradient", VALUE("out requires a gradient"), lambda s: with_out(s, out_like(s).requires_grad_()))
add("out: an inference tensor", RIGHT, lambda s: with_out(s, inference(lambda: s.zeros(*s.q.shape))))


def inference(make):
    with torch.inference_mode():
        return make()


def bumped(s):
    out = out_like(s)
    before = out._version
    with_out(s, out)
    if out._version == before:
        raise Failure("the version counter of out has not changed")
    return "bumped"


add("out: its version counter", RIGHT, bumped, ways=("fallback",))
add("out: a parameter in a graph", Wrong(RuntimeError, "modified by an inplace operation"), lambda s: stale(s), ways=("fallback",))


def stale(s):
    """A backward pass that needs what was overwritten."""
    out, w = torch.zeros(s.q.shape, dtype=BF16, device=s.device), torch.ones((), dtype=BF16, device=s.device, requires_grad=True)
    y = (w * out).sum()
    with torch.no_grad():
        with_out(s, out)
    y.backward()


# ---- sdpa: numbers and options -------------------------------------------------------------------

for value, text in ((NAN, "scale is nan"), (INF, "scale is inf"), (-0.125, "scale is -0.125"), (1e39, "scale is 1e\\+39"),
                    (10**400, "scale is 1000")):  # fmt: skip
    add(f"scale: {str(value)[:8]}", VALUE(text), lambda s, x=value: s.sdpa(*s.qkv, scale=x))
for value in (0, 0.0, -0.0, 1e-45, 0.5, fractions.Fraction(1, 8)):
    add(f"scale: {value!r}", RIGHT, lambda s, x=value: s.sdpa(*s.qkv, scale=x, return_lse=True))
for value in ("0.1", 1j, [0.1], decimal.Decimal("0.1"), True):
    add(f"scale: a {type(value).__name__}", TYPE("scale is a "), lambda s, x=value: s.sdpa(*s.qkv, scale=x))
add("scale: a tensor", TYPE("scale is a Tensor"), lambda s: s.sdpa(*s.qkv, scale=torch.tensor(0.5)))
add("scale: a tensor that requires a gradient", TYPE("scale is a (Tensor|Parameter)"),
    lambda s: s.sdpa(*s.qkv, scale=torch.nn.Parameter(torch.tensor(0.5))))  # fmt: skip
for value, text in ((NAN, "softcap is nan"), (-1.0, "softcap is -1"), (INF, "softcap is inf")):
    add(f"softcap: {value}", VALUE(text), lambda s, x=value: s.sdpa(*s.qkv, softcap=x))
add("softcap: True", TYPE("softcap is a bool"), lambda s: s.sdpa(*s.qkv, softcap=True))
add("softcap: a str", TYPE("softcap is a str"), lambda s: s.sdpa(*s.qkv, softcap="30"))
add("softcap: a tensor", TYPE("softcap is a Tensor"), lambda s: s.sdpa(*s.qkv, softcap=torch.tensor(30.0)))
add("softcap: 30 with E4M3", Unsupported("softcap is 30"), lambda s: s.sdpa(*s.fp8[:3], descale=s.fp8[3], softcap=30.0))
add("softcap: tiny", RIGHT, lambda s: s.sdpa(*s.qkv, softcap=1e-30))
add("softcap: 5, with sinks and a window", RIGHT,
    lambda s: s.sdpa(*s.qkv, softcap=5.0, sinks=s.ones(4), window_size=(9, 3), return_lse=True))  # fmt: skip
for window in ((0, 0), (0, -1), (-1, 0), (-1, -1), (None, None), (BIG, BIG), (2**31, 2**40), [3, 1], (1, 10**30)):
    for causal in (False, True):
        add(f"window_size: {str(window)[:30]}{', causal' if causal else ''}", RIGHT,
            lambda s, w=window, c=causal: s.sdpa(*s.qkv, window_size=w, causal=c))  # fmt: skip
for window in ((-2, 0), (1,), (1, 2, 3), 5, "ab", (1.5, 0), (NAN, 0), (None, "0"), {1: 2, 3: 4}, (0, -(2**70))):
    add(f"window_size: {str(window)[:30]}", VALUE("window_size is "), lambda s, w=window: s.sdpa(*s.qkv, window_size=w))
for window in ((True, 2), (3, False)):
    add(f"window_size: {window}", TYPE("window_size is "), lambda s, w=window: s.sdpa(*s.qkv, window_size=w))
for value in ("no", [True], torch.ones(1)):
    add(f"fallback: a {type(value).__name__}", TYPE("fallback is a "), lambda s, x=value: attune.sdpa(*s.qkv, fallback=x), needs="cpu", ways=("fallback",))
if numpy is not None:
    for name, options in (
        ("scale", {"scale": numpy.float32(0.1)}), ("an integer as scale", {"scale": numpy.int64(1)}),
        ("softcap", {"softcap": numpy.float16(30)}), ("window_size", {"window_size": (numpy.int64(3), numpy.int32(-1))}),
        ("causal", {"causal": numpy.bool_(True)}),
    ):  # fmt: skip
        add(f"of numpy: {name}", RIGHT, lambda s, o=options: s.sdpa(*s.qkv, **o))
    for value in (numpy.bool_(True), numpy.ones(1)):
        add(f"scale: a {type(value).__name__} of numpy", TYPE("scale is a "), lambda s, x=value: s.sdpa(*s.qkv, scale=x))
    add("of numpy: max_seqlen", RIGHT, lambda s: s.sdpa_varlen(*s.packed[:5], numpy.int64(30), numpy.int32(30)))
    add("of numpy: max_seqlen_q of prefill", RIGHT, lambda s: prefill(s, most=numpy.int64(30)))
add("window_size: a window that no query reaches", RIGHT,
    lambda s: s.sdpa(s.q, s.k[:, :, :4], s.v[:, :, :4], window_size=(2, 0), return_lse=True))  # fmt: skip
for name, text, make in (
    ("another length", "sinks is .* \\[3\\]", lambda s: s.ones(3)),
    ("two dimensions", "sinks is .* \\[1, 4\\]", lambda s: s.ones(1, 4)),
    ("bfloat16", "sinks is torch.bfloat16", lambda s: s.tensor(4)),
    ("on meta", "sinks is on meta", lambda s: s.ones(4).to("meta")),
):
    add(f"sinks: {name}", VALUE(text), lambda s, m=make: s.sdpa(*s.qkv, sinks=m(s)))
add("sinks: a list", TYPE("sinks is a list"), lambda s: s.sdpa(*s.qkv, sinks=[1.0] * 4))
add("sinks: nested", TYPE("sinks is nested"), lambda s: s.sdpa(*s.qkv, sinks=nested(s, torch.strided, s.ones(4, 2))))
add("sinks: sparse", TYPE("sinks has the layout"), lambda s: s.sdpa(*s.qkv, sinks=s.ones(4).to_sparse()))
add("sinks: not contiguous", RIGHT, lambda s: s.sdpa(*s.qkv, sinks=s.tensor(8, dtype=torch.float32)[::2], return_lse=True))
add("sinks: expanded", RIGHT, lambda s: s.sdpa(*s.qkv, sinks=s.ones(1).expand(4)))
add("sinks: negative view", RIGHT, lambda s: s.sdpa(*s.qkv, sinks=torch._neg_view(s.tensor(4, dtype=torch.float32))))
add("sinks: minus infinity", RIGHT, lambda s: s.sdpa(*s.qkv, sinks=s.ones(4).fill_(-INF)))
add("sinks: NaN and infinity", SURVIVES, lambda s: s.sdpa(*s.qkv, sinks=torch.tensor([NAN, INF, 1e38, 0.0], device=s.device)))
for name, text, kind, make in (
    ("missing", "descale is missing", ValueError, lambda s: None),
    ("two of three", "descale has 2 tensors, not 3", ValueError, lambda s: s.fp8[3][:2]),
    ("a generator", "descale is a generator", TypeError, lambda s: (x for x in s.fp8[3])),
    ("a tensor", "descale is a Tensor", TypeError, lambda s: torch.stack([s.ones(2, 4)] * 3)),
    ("numbers", "descale of q is a float", TypeError, lambda s: (1.0, 1.0, 1.0)),
    ("float64", "descale of q is torch.float64", ValueError, lambda s: tuple(x.double() for x in s.fp8[3])),
    ("of too few heads", "descale of k is .* \\[2, 1\\]", ValueError, lambda s: (s.fp8[3][0], s.ones(2, 1), s.fp8[3][2])),
    ("on meta", "descale of v is on meta", ValueError, lambda s: (*s.fp8[3][:2], s.fp8[3][2].to("meta"))),
):
    add(f"descale: {name}", Wrong(kind, text), lambda s, m=make: s.sdpa(*s.fp8[:3], descale=m(s)))
add("descale: of bfloat16", VALUE("descale is given, and q is torch.bfloat16"), lambda s: s.sdpa(*s.qkv, descale=s.fp8[3]))
add("descale: a list, not contiguous", RIGHT,
    lambda s: s.sdpa(*s.fp8[:3], descale=[s.fp8[3][0].t().contiguous().t(), *s.fp8[3][1:]]))  # fmt: skip
add("descale: expanded", RIGHT, lambda s: s.sdpa(*s.fp8[:3], descale=tuple(s.ones(1, 1).expand(x.shape) for x in s.fp8[3])))
add("descale: 0 of q", RIGHT, lambda s: s.sdpa(*s.fp8[:3], descale=(s.fp8[3][0] * 0, *s.fp8[3][1:])))
add("descale: 0 of v", RIGHT, lambda s: s.sdpa(*s.fp8[:3], descale=(*s.fp8[3][:2], s.fp8[3][2] * 0)))
for value in (NAN, INF, -1.0, 1e38):
    add(f"descale: {value}", SURVIVES, lambda s, x=value: s.sdpa(*s.fp8[:3], descale=tuple(f * 0 + x for f in s.fp8[3])))
for value in ("8", "FP8", "", None, 16, b"16", ["16"]):
    add(f"precision: {value!r}", VALUE("precision is "), lambda s, x=value: s.sdpa(*s.qkv, precision=x))
add("precision: 16 with E4M3", VALUE('precision is "16", and q is'), lambda s: s.sdpa(*s.fp8[:3], descale=s.fp8[3], precision="16"))
add("precision: 16 with smooth_k", VALUE("smooth_k is set, and precision"), lambda s: s.sdpa(*s.qkv, precision="16", smooth_k=True))
add("precision: fp8", RIGHT, lambda s: s.sdpa(*s.qkv, precision="fp8"))
add("precision: a str of another object", RIGHT, lambda s: s.sdpa(*s.qkv, precision="".join(["1", "6"])))
add("smooth_k: with E4M3", VALUE("smooth_k is set, and q is"), lambda s: s.sdpa(*s.fp8[:3], descale=s.fp8[3], smooth_k=True))
add("smooth_k: with sinks", Unsupported("smooth_k is set, and sinks"), lambda s: s.sdpa(*s.qkv, smooth_k=True, sinks=s.ones(4)))
add("smooth_k: with lse", RIGHT, lambda s: s.sdpa(*s.qkv, smooth_k=True, return_lse=True))
add("hadamard: head dim 72", VALUE("hadamard is set, and head_dim is 72"), lambda s: s.sdpa(*(s.tensor(1, 2, 9, 72) for _ in "qkv"), hadamard=True), needs="library")
for flag in ("causal", "return_lse", "smooth_k", "hadamard"):
    add(f"{flag}: a str", TYPE(f"{flag} is a str"), lambda s, f=flag: s.sdpa(*s.qkv, **{f: "no"}))
    add(f"{flag}: a tensor of three", TYPE(f"{flag} is a Tensor"), lambda s, f=flag: s.sdpa(*s.qkv, **{f: torch.ones(3)}))
add("causal: 1", RIGHT, lambda s: s.sdpa(*s.qkv, causal=1))
add("an unknown argument", TYPE("unexpected keyword argument 'dropout'"), lambda s: s.sdpa(*s.qkv, dropout=0.1))
add("window_size: by its old name too", TYPE("got window_size and window"), lambda s: s.sdpa(*s.qkv, window_size=(1, 0), window=(1, 0)))
add("window: the old name", RIGHT, lambda s: s.compare(attune.sdpa(*s.qkv, window=(3, 0), **s.fallback), attune.sdpa(*s.qkv, window_size=(3, 0), fallback=True).double()))
add("q, k and v by position and by name", TYPE("multiple values for argument 'q'"), lambda s: s.sdpa(*s.qkv, q=s.q))
add("v is missing", TYPE("missing 1 required positional argument: 'v'"), lambda s: attune.sdpa(s.q, s.k))

# ---- sdpa: contents ------------------------------------------------------------------------------


def set_at(x, index, value):
    x[index] = value
    return x


add("contents: NaN in q", RIGHT, lambda s: s.sdpa(set_at(s.q, (0, 0, 3, 5), NAN), s.k, s.v), ways=("fallback",))
add("contents: NaN in q, k and v", SURVIVES, lambda s: s.sdpa(*(set_at(x, (0, 0, 3), NAN) for x in s.qkv)))
add("contents: infinity in all", SURVIVES, lambda s: s.sdpa(*(set_at(x, (0, 0, 3), INF) for x in s.qkv), return_lse=True))
add("contents: zeros", RIGHT, lambda s: s.sdpa(s.q * 0, s.k * 0, s.v, return_lse=True))
add("contents: the largest float16", SURVIVES, lambda s: s.sdpa(*(torch.full_like(x, 65504.0, dtype=FP16) for x in s.qkv)))
add("contents: all codes of E4M3", SURVIVES,
    lambda s: s.sdpa(*(torch.arange(x.numel(), device=s.device).to(torch.uint8).view(x.shape).view(FP8) for x in s.qkv), descale=s.fp8[3]))  # fmt: skip

# ---- gradients, modes and transforms -------------------------------------------------------------

GRADIENT = "requires a gradient"
add("gradient: of q", Unsupported(GRADIENT), lambda s: s.sdpa(s.q.requires_grad_(), s.k, s.v))
add("gradient: of sinks", Unsupported(GRADIENT), lambda s: s.sdpa(*s.qkv, sinks=s.ones(4).requires_grad_()))
add("gradient: of the factors", Unsupported(GRADIENT), lambda s: s.sdpa(*s.fp8[:3], descale=[x.requires_grad_() for x in s.fp8[3]]))
add("gradient: not wanted", RIGHT, lambda s: s.sdpa(torch.nn.Parameter(s.q).detach(), s.k, s.v))


def in_block(context, run):
    def inside(s):
        with context(s):
            return run(s)

    return inside


add("gradient: in no_grad", RIGHT, in_block(lambda s: torch.no_grad(), lambda s: s.sdpa(torch.nn.Parameter(s.q), s.k, s.v)))
add("gradient: of views in no_grad", RIGHT,
    in_block(lambda s: torch.no_grad(), lambda s: s.sdpa(s.q.requires_grad_()[:, :, :9], s.k, s.v)))  # fmt: skip
add("inference mode", RIGHT, in_block(lambda s: torch.inference_mode(), lambda s: s.sdpa(*s.qkv, return_lse=True)))
add("inference tensors outside of the mode", RIGHT, lambda s: s.sdpa(*inference(lambda: s.qkv)))
for dtype in (BF16, FP16):
    add(f"autocast to {dtype}", RIGHT, in_block(lambda s, d=dtype: torch.autocast(s.device.type, d), lambda s: s.sdpa(*s.qkv)))
add("autocast of float32", TYPE("q is torch.float32"),
    in_block(lambda s: torch.autocast(s.device.type, BF16), lambda s: s.sdpa(*(x.float() for x in s.qkv))))  # fmt: skip
add("default dtype float64", RIGHT, in_block(lambda s: default_dtype(torch.float64), lambda s: s.sdpa(*s.qkv, return_lse=True)))
add("default device meta", RIGHT, in_block(lambda s: torch.device("meta"), lambda s: plain_answer(s)), ways=("fallback",))
add("deterministic algorithms", RIGHT, in_block(lambda s: deterministic(), lambda s: s.sdpa(*s.qkv, return_lse=True)))


def plain_answer(s):
    o = attune.sdpa(*s.qkv, **s.fallback)
    return str(o.device)


@contextlib.contextmanager
def default_dtype(dtype):
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


@contextlib.contextmanager
def deterministic():
    torch.use_deterministic_algorithms(True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(False)


def with_fallback(s, *args, **options):
    return attune.sdpa(*args, fallback=True, **options)


FUNC = "torch.func or forward-mode"
PLAIN = ("fallback",)
add("vmap", Wrong(NotImplementedError, FUNC), lambda s: torch.vmap(lambda q: attune.sdpa(q, s.k, s.v))(torch.stack([s.q] * 2)))
add("vmap with fallback", RIGHT,
    lambda s: s.compare(torch.vmap(lambda q: with_fallback(s, q, s.k, s.v))(s.q[None])[0], with_fallback(s, *s.qkv).double()))  # fmt: skip
add("vmap over lengths", Wrong(NotImplementedError, f"{FUNC}|is on cpu"),
    lambda s: made(s) and torch.vmap(lambda n: attune.decode(*s.cache[:3], n))(torch.stack([s.cache[3]] * 2)))  # fmt: skip
add("vmap over sinks", Wrong(NotImplementedError, FUNC), lambda s: torch.vmap(lambda x: attune.sdpa(*s.qkv, sinks=x))(s.ones(2, 4)))
add("vmap of append", Wrong(NotImplementedError, "torch.func"),
    lambda s: made(s) and torch.vmap(lambda k: s.append(k, k, *s.codes[:2], s.cache[3], descale=s.codes[2]))(s.tensor(2, 3, 2, 1, 64)))  # fmt: skip
add("jvp", Wrong(NotImplementedError, FUNC), lambda s: torch.func.jvp(lambda q: attune.sdpa(q, s.k, s.v), (s.q,), (s.q,)))
add("jvp with fallback", RIGHT,
    lambda s: s.compare(torch.func.jvp(lambda v: with_fallback(s, s.q, s.k, v), (s.v,), (s.v,))[1], with_fallback(s, *s.qkv).double()))  # fmt: skip
add("grad of torch.func", Wrong(NotImplementedError, f"{GRADIENT}|torch.func"), lambda s: torch.func.grad(lambda q: attune.sdpa(q, s.k, s.v).float().sum())(s.q))
add("functionalize", SURVIVES, lambda s: torch.func.functionalize(lambda q: with_fallback(s, q, s.k, s.v))(s.q))


def dual(s):
    with forward_ad.dual_level():
        return attune.sdpa(forward_ad.make_dual(s.q, s.q), s.k, s.v)


def dual_of_other_level(s):
    with forward_ad.dual_level():
        return s.sdpa(*s.qkv)


add("forward-mode: a tangent", Wrong(NotImplementedError, FUNC), dual)
add("forward-mode: a level without tangents", RIGHT, dual_of_other_level)


class Counting(torch.utils._python_dispatch.TorchDispatchMode):
    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        return function(*args, **(kwargs or {}))


class Functions(torch.overrides.TorchFunctionMode):
    def __torch_function__(self, function, types, args=(), kwargs=None):
        return function(*args, **(kwargs or {}))


add("a dispatch mode", RIGHT, in_block(lambda s: Counting(), lambda s: s.compare(with_fallback(s, *s.qkv), s.dense_answer())))
add("a function mode", RIGHT, in_block(lambda s: Functions(), lambda s: s.sdpa(*s.qkv)))


def fake(s, function):
    """A call with fake tensors; what it gives is read outside of their mode."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode(allow_non_fake_inputs=True) as mode:
        return function(*(mode.from_tensor(x) for x in s.qkv))


add("fake tensors", RIGHT, lambda s: str(fake(s, lambda *x: attune.sdpa(*x, fallback=True)).shape))
add("fake tensors: a wrong argument", TYPE("k is torch.float16, and q"), lambda s: fake(s, lambda q, k, v: attune.sdpa(q, k.half(), v, fallback=True)))
add("fake tensors: explain", RIGHT, lambda s: fake(s, lambda *x: attune.explain(*x)).reason)


def compiled(s, function, *args, **options):
    torch.compiler.reset()
    with mock.patch.object(torch._dynamo.config, "suppress_errors", False):
        return torch.compile(function, backend="aot_eager", fullgraph=True, **options)(*args)


add("compile: aot_eager", RIGHT,
    lambda s: s.compare(compiled(s, lambda q, k, v: with_fallback(s, q, k, v, causal=True), *s.qkv), with_fallback(s, *s.qkv, causal=True).double()), ways=PLAIN)  # fmt: skip
add("compile: dynamic shapes", RIGHT,
    lambda s: s.compare(compiled(s, lambda q, k, v: with_fallback(s, q, k, v), *s.qkv, dynamic=True), with_fallback(s, *s.qkv).double()), ways=PLAIN)  # fmt: skip
add("compile: with out", RIGHT,
    lambda s: s.compare(compiled(s, lambda q, k, v, o: with_fallback(s, q, k, v, out=o), *s.qkv, out_like(s)), with_fallback(s, *s.qkv).double()), ways=PLAIN)  # fmt: skip
add("compile: with inductor", RIGHT,
    lambda s: s.compare(torch.compile(lambda q, k, v: with_fallback(s, q, k, v))(*s.qkv), with_fallback(s, *s.qkv).double()), ways=PLAIN, heavy=True)  # fmt: skip
add("jit.trace", RIGHT,
    lambda s: s.compare(torch.jit.trace(lambda q, k, v: with_fallback(s, q, k, v), s.qkv)(*s.qkv), with_fallback(s, *s.qkv).double()), ways=PLAIN)  # fmt: skip


class Model(torch.nn.Module):
    def forward(self, q, k, v):
        return attune.sdpa(q, k, v, causal=True, fallback=True)


add("export", RIGHT,
    lambda s: s.compare(torch.export.export(Model(), s.qkv).module()(*s.qkv), with_fallback(s, *s.qkv, causal=True).double()), ways=PLAIN)  # fmt: skip
add("checkpoint", RIGHT,
    lambda s: str(torch.utils.checkpoint.checkpoint(lambda q: with_fallback(s, q, s.k, s.v), s.q.requires_grad_(), use_reentrant=False).sum().backward()), ways=PLAIN)  # fmt: skip
add("make_fx", RIGHT, lambda s: str(torch.fx.experimental.proxy_tensor.make_fx(lambda q: with_fallback(s, q, s.k, s.v))(s.q).code.count("attune")), ways=PLAIN)

# ---- sdpa_varlen ---------------------------------------------------------------------------------


def varlen(s, *, cu_q=None, cu_k=None, max_q=30, max_k=30, q=None, **options):
    of_q, k, v, own_q, own_k = s.packed[:5]
    pick = lambda given, own: own if given is None else given
    return s.sdpa_varlen(pick(q, of_q), k, v, pick(cu_q, own_q), pick(cu_k, own_k), max_q, max_k, **options)


for options in ({}, {"causal": True, "return_lse": True}, {"window_size": (4, 2)}, {"softcap": 5.0}):
    add(f"varlen: right, {options}", RIGHT, lambda s, o=options: varlen(s, **o))
add("varlen: packed QKV", RIGHT, lambda s: (lambda x: s.sdpa_varlen(*x, s.packed[3], s.packed[3], 30, 30, causal=True))(s.tensor(50, 3, 4, 64).unbind(1)))
add("varlen: offsets not contiguous", RIGHT, lambda s: varlen(s, cu_q=s.ints([0, 9, 20, 9, 20, 9, 50, 9])[::2]))
# Rows of no sequence are not written, and a new output has anything there.
add("varlen: empty sequences only", RIGHT, lambda s: varlen(s, cu_q=s.ints([0, 0, 0, 0]), cu_k=s.ints([0, 0, 0, 0]), return_lse=True), ways=PLAIN, needs="cpu")
add("varlen: most rows of 0", RIGHT, lambda s: str(varlen(s, max_q=0).shape))
add("varlen: most keys of 0", RIGHT, lambda s: str(varlen(s, max_k=0).shape))
add("varlen: an empty tensor", RIGHT, lambda s: varlen(s, q=s.packed[0][:0], cu_q=s.ints([0, 0, 0, 0]), max_q=0))
for name, text, kind, given in (
    ("None", "cu_seqlens_q is None", TypeError, lambda s: {"cu_q": None, "none": True}),
    ("a list", "cu_seqlens_q is a list", TypeError, lambda s: {"cu_q": [0, 20, 50]}),
    ("int64", "cu_seqlens_q is torch.int64", ValueError, lambda s: {"cu_q": s.packed[3].long()}),
    ("float32", "cu_seqlens_k is torch.float32", ValueError, lambda s: {"cu_k": s.packed[4].float()}),
    ("two dimensions", "cu_seqlens_q is .*\\[1, 4\\]", ValueError, lambda s: {"cu_q": s.packed[3][None]}),
    ("one element", "cu_seqlens_q has 1 elements", ValueError, lambda s: {"cu_q": s.packed[3][:1]}),
    ("no element", "cu_seqlens_q has 0 elements", ValueError, lambda s: {"cu_q": s.packed[3][:0]}),
    ("another length", "cu_seqlens_k is .*\\[3\\], not", ValueError, lambda s: {"cu_k": s.packed[4][:3]}),
    ("on meta", "cu_seqlens_q is on meta", ValueError, lambda s: {"cu_q": s.packed[3].to("meta")}),
    ("nested", "cu_seqlens_q is nested", TypeError, lambda s: {"cu_q": nested(s, torch.strided, s.ints([[0, 1], [2, 3]]))}),
    ("most of -1", "max_seqlen_q is -1", ValueError, lambda s: {"max_q": -1}),
    ("most of 2^40", "max_seqlen_k is 1099511627776", ValueError, lambda s: {"max_k": 2**40}),
    ("most of one more", "max_seqlen_q is 51", ValueError, lambda s: {"max_q": 51}),
    ("most of 3.0", "max_seqlen_q is a float", TypeError, lambda s: {"max_q": 3.0}),
    ("most of None", "max_seqlen_k is a NoneType", TypeError, lambda s: {"max_k": None}),
    ("most of True", "max_seqlen_k is a bool", TypeError, lambda s: {"max_k": True}),
    ("most of a tensor", "max_seqlen_q is a Tensor", TypeError, lambda s: {"max_q": torch.tensor(30)}),
    ("q of four dimensions", "q has 4 dimensions, not 3", ValueError, lambda s: {"q": s.q}),
    ("precision of 4", "precision is 4", ValueError, lambda s: {"precision": 4}),
):
    def run(s, given=given):
        options = given(s)
        if options.pop("none", False):
            return attune.sdpa_varlen(*s.packed[:3], None, None, 30, 30, **s.fallback)
        return varlen(s, **options)

    add(f"varlen: {name}", Wrong(kind, text), run)
# Whatever the offsets contain, nothing outside the tensors is written: docs/python.md, Packed sequences.
for name, values in (("decreasing", [0, 40, 20, 50]), ("negative", [-5, 20, 20, 50]), ("behind the rows", [0, 20, 60, 1000]),
                     ("extreme", [0, BIG, -BIG - 1, 50]), ("not from 0", [10, 20, 30, 50])):  # fmt: skip
    add(f"varlen: offsets of q {name}", SURVIVES, lambda s, v=values: varlen(s, cu_q=s.ints(v)))
    add(f"varlen: offsets of k {name}", SURVIVES, lambda s, v=values: varlen(s, cu_k=s.ints(v), causal=True))
add("varlen: most rows too small", SURVIVES, lambda s: varlen(s, max_q=5, max_k=5))

# ---- decode --------------------------------------------------------------------------------------


def decode(s, *, q=None, k=None, v=None, lengths=None, **options):
    of_q, of_k, of_v, own = s.cache
    pick = lambda given, own: own if given is None else given
    return s.decode(pick(q, of_q), pick(k, of_k), pick(v, of_v), pick(lengths, own), **options)


def paged(s, *, table=None, lengths=None, k=None, v=None, **options):
    q, of_k, of_v, own, own_table = s.pages
    pick = lambda given, own: own if given is None else given
    return s.decode(q, pick(k, of_k), pick(v, of_v), pick(lengths, own), page_table=pick(table, own_table), **options)


def absent(s, page):
    """A page table that has a page that is not in the cache, before the last key of each sequence."""
    return s.ints([[page] * 4, [page, 4, 7, 6], [8, page, 10, page]])


def pages_of(s, dtype):
    """The pages as arguments, in E4M3 with factors."""
    if dtype != FP8:
        return {}
    k, v = (s.tensor(12, 2, 16, 64, dtype=FP8) for _ in "kv")
    return {"k": k, "v": v, "descale": (s.ones(3, 2), s.ones(3, 2))}


for options in ({}, {"return_lse": True}, {"window_size": (7, 0)}, {"causal": False, "scale": 0.3}, {"softcap": 9.0}):
    add(f"decode: right, {options}", RIGHT, lambda s, o=options: decode(s, **o))
    add(f"decode: pages, {options}", RIGHT, lambda s, o=options: paged(s, **o))
add("decode: E4M3", RIGHT, lambda s: decode(s, k=s.codes[0], v=s.codes[1], descale=s.codes[2], return_lse=True))
add("decode: several queries", RIGHT, lambda s: decode(s, q=s.tensor(3, 4, 5, 64), return_lse=True))
add("decode: more queries than keys", RIGHT, lambda s: decode(s, q=s.tensor(3, 4, 16, 64), return_lse=True))
add("decode: 17 queries", RIGHT, lambda s: decode(s, q=s.tensor(3, 4, 17, 64)))
add("decode: 160 heads of a K/V head", RIGHT, lambda s: decode(s, q=s.tensor(3, 320, 1, 64)))
add("decode: no query", RIGHT, lambda s: decode(s, q=s.cache[0][:, :, :0], return_lse=True))
add("decode: strided q", RIGHT, lambda s: decode(s, q=s.tensor(3, 1, 3, 4, 64)[:, :, 1].transpose(1, 2)))
add("decode: q not at 16 bytes", RIGHT, lambda s: decode(s, q=s.tensor(3, 4, 1, 72)[..., 3:67]))
add("decode: caches of strided views", RIGHT, lambda s: decode(s, k=s.tensor(3, 64, 2, 64).transpose(1, 2), v=s.tensor(3, 2, 128, 64)[:, :, ::2]))
add("decode: a cache not at 16 bytes", Unsupported("k_cache has strides"), lambda s: decode(s, k=s.tensor(3, 2, 64, 72)[..., 3:67]))
add("decode: an expanded cache", Unsupported("k_cache has strides|strides"), lambda s: decode(s, k=s.cache[1][:1].expand(3, 2, 64, 64)))
for name, values in (("0", [0, 0, 0]), ("negative", [-1, -BIG - 1, 5]), ("above the capacity", [65, BIG, 1000])):
    add(f"decode: lengths {name}", RIGHT, lambda s, n=values: decode(s, lengths=s.ints(n), return_lse=True))
    add(f"decode: pages, lengths {name}", RIGHT, lambda s, n=values: paged(s, lengths=s.ints(n), return_lse=True))
    add(f"decode: several queries, lengths {name}", RIGHT, lambda s, n=values: decode(s, q=s.tensor(3, 4, 5, 64), lengths=s.ints(n)))
    add(f"decode: E4M3, lengths {name}", RIGHT, lambda s, n=values: decode(s, k=s.codes[0], v=s.codes[1], descale=s.codes[2], lengths=s.ints(n)))
    add(f"decode: softcap, lengths {name}", RIGHT, lambda s, n=values: decode(s, lengths=s.ints(n), softcap=5.0, return_lse=True))
for name, text, kind, given in (
    ("None", "lengths is a NoneType", TypeError, "none"),
    ("a list", "lengths is a list", TypeError, lambda s: [5, 64, 33]),
    ("int64", "lengths is torch.int64", ValueError, lambda s: s.cache[3].long()),
    ("NaN", "lengths is torch.float32", ValueError, lambda s: s.ones(3) * NAN),
    ("of another batch", "lengths is .*\\[2\\]", ValueError, lambda s: s.cache[3][:2]),
    ("of one number", "lengths is .*\\[\\]", ValueError, lambda s: s.cache[3][0]),
    ("two dimensions", "lengths is .*\\[3, 1\\]", ValueError, lambda s: s.cache[3][:, None]),
    ("on meta", "lengths is on meta", ValueError, lambda s: s.cache[3].to("meta")),
    ("sparse", "lengths has the layout", TypeError, lambda s: s.cache[3].to_sparse()),
):
    if given == "none":
        add(f"decode: lengths {name}", Wrong(kind, text), lambda s: attune.decode(*s.cache[:3], None, **s.fallback))
    else:
        add(f"decode: lengths {name}", Wrong(kind, text), lambda s, g=given: decode(s, lengths=g(s)))
add("decode: lengths on the CPU", VALUE("lengths is on cpu"), lambda s: decode(s, lengths=s.cache[3].cpu()), needs="gpu")
add("decode: lengths expanded", RIGHT, lambda s: decode(s, lengths=s.ints([9]).expand(3)))
add("decode: lengths not contiguous", RIGHT, lambda s: decode(s, lengths=s.ints([9, 0, 17, 0, 33, 0])[::2]))
for name, text, kind, given in (
    ("int64", "page_table is torch.int64", ValueError, lambda s: s.pages[4].long()),
    ("of another batch", "page_table is .*\\[2, 4\\]", ValueError, lambda s: s.pages[4][:2]),
    ("one dimension", "page_table is .*\\[12\\]", ValueError, lambda s: s.pages[4].view(-1)),
    ("a list", "page_table is a list", TypeError, lambda s: [[0] * 4] * 3),
    ("on meta", "page_table is on meta", ValueError, lambda s: s.pages[4].to("meta")),
):
    add(f"decode: page table {name}", Wrong(kind, text), lambda s, g=given: paged(s, table=g(s)))
add("decode: page table on the CPU", VALUE("page_table is on cpu"), lambda s: paged(s, table=s.pages[4].cpu()), needs="gpu")
add("decode: page table not contiguous", RIGHT, lambda s: paged(s, table=s.ints(s.pages[4].t().tolist()).t()))
add("decode: page table expanded", RIGHT, lambda s: paged(s, table=s.pages[4][:1].expand(3, 4)))
add("decode: page table of no column", RIGHT, lambda s: str(paged(s, table=s.pages[4][:, :0]).float().abs().sum().item() if s.computes else "zeros"))
for value in (-1, 12, BIG, -BIG - 1):
    add(f"decode: page {value} behind the last key", RIGHT,
        lambda s, x=value: paged(s, table=s.ints([[3, x, x, x], [2, 4, 7, 6], [8, 11, 10, x]]), return_lse=True))  # fmt: skip
    for kind in (BF16, FP8):
        add(f"decode: page {value} with keys, {kind}", RIGHT,
            lambda s, x=value, d=kind: paged(s, table=absent(s, x), lengths=s.ints([16, 64, 33]), return_lse=True, **pages_of(s, d)))  # fmt: skip
add("decode: a page twice", RIGHT, lambda s: paged(s, table=s.ints([[3, 3, 3, 3], [3, 4, 3, 6], [8, 3, 3, 3]])))
add("decode: pages of 8 keys", VALUE("k_cache has pages of 8 keys"), lambda s: paged(s, k=s.tensor(12, 2, 8, 64), v=s.tensor(12, 2, 8, 64)), needs="library")
add("decode: pages of no keys", VALUE("k_cache has pages of 0 keys"), lambda s: paged(s, k=s.tensor(12, 2, 0, 64), v=s.tensor(12, 2, 0, 64)))
add("decode: no pages", RIGHT, lambda s: str(paged(s, k=s.tensor(0, 2, 16, 64), v=s.tensor(0, 2, 16, 64)).shape))
add("decode: pages of 48 keys", RIGHT, lambda s: paged(s, k=s.tensor(12, 2, 48, 64), v=s.tensor(12, 2, 48, 64), lengths=s.ints([190, 64, 1])))
add("decode: pages for 2^35 keys", Wrong(NotImplementedError, "2\\^31|is on cpu"),
    lambda s: attune.decode(*s.pages[:4], page_table=s.pages[4][:, :1].expand(3, 2**31)))  # fmt: skip
for name, text, kind, given in (
    ("k in float16", "k_cache is torch.float16, not float8_e4m3fn or bfloat16", TypeError, lambda s: {"k": s.cache[1].half()}),
    ("v in E4M3", "v_cache is torch.float8_e4m3fn, and k_cache", TypeError, lambda s: {"v": s.codes[1]}),
    ("v is shorter", "k_cache is .*, and v_cache", ValueError, lambda s: {"v": s.cache[2][:, :, :32]}),
    ("another batch", "k_cache is .*batch differs", ValueError, lambda s: {"k": s.cache[1][:2], "v": s.cache[2][:2]}),
    ("another head dim", "k_cache is .*head_dim differs", ValueError, lambda s: {"k": s.cache[1][..., :32], "v": s.cache[2][..., :32]}),
    ("3 heads for 4", "q has 4 heads, which the 3", ValueError, lambda s: {"k": s.tensor(3, 3, 64, 64), "v": s.tensor(3, 3, 64, 64)}),
    ("negative view", "k_cache is a negative view", ValueError, lambda s: {"k": torch._neg_view(s.cache[1])}),
    ("nested", "k_cache is nested", TypeError, lambda s: {"k": nested(s, torch.strided, s.cache[1])}),
    ("on meta", "k_cache is on meta", ValueError, lambda s: {"k": s.cache[1].to("meta")}),
    ("factors missing", "descale is missing", ValueError, lambda s: {"k": s.codes[0], "v": s.codes[1]}),
    ("three factors", "descale has 3 tensors, not 2", ValueError, lambda s: {"k": s.codes[0], "v": s.codes[1], "descale": [s.ones(3, 2)] * 3}),
    ("factors of bfloat16", "descale is given, and k_cache", ValueError, lambda s: {"descale": s.codes[2]}),
    ("out overlaps the cache", "out overlaps k", ValueError, lambda s: {"out": s.cache[1].view(-1)[:768].view(3, 4, 1, 64)}),
    ("q in float32", "q is torch.float32", TypeError, lambda s: {"q": s.cache[0].float()}),
    ("precision 16 with E4M3", 'precision is "16", and k', ValueError, lambda s: {"k": s.codes[0], "v": s.codes[1], "descale": s.codes[2], "precision": "16"}),
):
    add(f"decode: cache, {name}", Wrong(kind, text), lambda s, g=given: decode(s, **g(s)))
add("decode: NaN behind the last key", RIGHT, lambda s: decode(s, k=set_at(s.cache[1], (0, 0, slice(5, None)), NAN), v=set_at(s.cache[2], (0, 0, slice(5, None)), NAN)))
add("decode: a cache of no keys", RIGHT, lambda s: decode(s, k=s.cache[1][:, :, :0], v=s.cache[2][:, :, :0], return_lse=True))
add("decode: a gradient of the cache", Unsupported(GRADIENT), lambda s: decode(s, k=s.cache[1].requires_grad_()))
add("decode: out and lse", RIGHT, lambda s: decode(s, out=s.zeros(3, 4, 1, 64), return_lse=True))

# ---- prefill -------------------------------------------------------------------------------------


def prefill(s, *, cu=None, most=30, lengths=None, q=None, k=None, v=None, **options):
    _, of_k, of_v, own = s.cache
    pick = lambda given, own: own if given is None else given
    rows = pick(q, s.tensor(50, 4, 64))
    return s.prefill(rows, pick(k, of_k), pick(v, of_v), pick(lengths, own), pick(cu, s.ints([0, 3, 23, 50])), most, **options)


for options in ({}, {"return_lse": True}, {"causal": False}, {"window_size": (7, 0)}, {"softcap": 9.0}):
    add(f"prefill: right, {options}", RIGHT, lambda s, o=options: prefill(s, **o))
add("prefill: E4M3", RIGHT, lambda s: prefill(s, k=s.codes[0], v=s.codes[1], descale=s.codes[2], return_lse=True))
add("prefill: pages", RIGHT, lambda s: prefill(s, k=s.pages[1], v=s.pages[2], page_table=s.pages[4], return_lse=True))
for name, values in (("0", [0, 0, 0]), ("negative", [-1, -BIG - 1, 5]), ("above the capacity", [65, BIG, 1000])):
    add(f"prefill: lengths {name}", RIGHT, lambda s, n=values: prefill(s, lengths=s.ints(n), return_lse=True))
    add(f"prefill: E4M3, lengths {name}", RIGHT, lambda s, n=values: prefill(s, k=s.codes[0], v=s.codes[1], descale=s.codes[2], lengths=s.ints(n)))
for name, text, kind, given in (
    ("q of four dimensions", "q has 4 dimensions", ValueError, lambda s: {"q": s.q}),
    ("offsets int64", "cu_seqlens_q is torch.int64", ValueError, lambda s: {"cu": s.ints([0, 3, 23, 50], torch.int64)}),
    ("offsets of another batch", "k_cache is .*cu_seqlens_q has 2 sequences", ValueError, lambda s: {"cu": s.ints([0, 3, 50])}),
    ("most of -1", "max_seqlen_q is -1", ValueError, lambda s: {"most": -1}),
    ("most of a str", "max_seqlen_q is a str", TypeError, lambda s: {"most": "30"}),
    ("lengths int64", "lengths is torch.int64", ValueError, lambda s: {"lengths": s.cache[3].long()}),
    ("a table of another batch", "page_table is", ValueError, lambda s: {"k": s.pages[1], "v": s.pages[2], "page_table": s.pages[4][:2]}),
):
    add(f"prefill: {name}", Wrong(kind, text), lambda s, g=given: prefill(s, **g(s)))
add("prefill: offsets None", TYPE("cu_seqlens_q is None"), lambda s: attune.prefill(s.packed[0], *s.cache[1:], None, 30, **s.fallback))
add("prefill: lengths None", TYPE("lengths is a NoneType"), lambda s: attune.prefill(s.packed[0], *s.cache[1:3], None, s.ints([0, 3, 23, 50]), 30, **s.fallback))
for value in (-1, 12, BIG):
    for kind in (BF16, FP8):
        add(f"prefill: page {value} with keys, {kind}", RIGHT,
            lambda s, x=value, d=kind: prefill(s, page_table=absent(s, x), return_lse=True, **{"k": s.pages[1], "v": s.pages[2], **pages_of(s, d)}))  # fmt: skip
add("prefill: offsets behind the rows", SURVIVES, lambda s: prefill(s, cu=s.ints([0, 3, 23, 5000])))
add("prefill: no rows", RIGHT, lambda s: prefill(s, q=s.packed[0][:0], cu=s.ints([0, 0, 0, 0]), most=0))

# ---- append --------------------------------------------------------------------------------------


def append_to(s, *, k=None, v=None, lengths=None, caches=None, descale=None, **options):
    """Appends two rows of each sequence, compares the caches with those of a loop, and returns a text."""
    new = s.tensor(3, 2, 2, 64) if k is None else k
    new_v = new if v is None else v
    k_cache, v_cache, factors = s.codes
    caches = (k_cache, v_cache) if caches is None else caches
    lengths = s.cache[3] if lengths is None else lengths
    descale = factors if descale is None else descale
    want = None
    if s.computes:
        with contextlib.suppress(Exception):  # of arguments that are wrong
            want = [appended(x, cache, lengths, options.get("page_table"), f) for x, cache, f in zip((new, new_v), caches, descale)]
    s.append(new, new_v, *caches, lengths, descale=descale, **options)
    for got, wanted in zip(caches, want or ()):
        if not torch.equal(got.view(torch.uint8), wanted):
            raise Failure(f"{int((got.view(torch.uint8) != wanted).sum())} bytes of a cache are wrong")
    return "appended"


def appended(x, cache, lengths, table, factor):
    """The bytes of a cache after append."""
    after = cache.view(torch.uint8).clone()
    size = cache.shape[2]
    for b, length in enumerate(lengths.tolist()):
        for row in range(x.shape[2] if length >= 0 else 0):
            index, place = divmod(length + row, size)
            if index >= (1 if table is None else table.shape[1]):
                continue
            page = b if table is None else int(table[b, index])
            if 0 <= page < cache.shape[0]:
                codes = (x[b, :, row].float() * (1 / factor[b, :, None])).clamp(-448, 448).to(FP8)
                after[page, :, place] = codes.view(torch.uint8)
    return after


def in_one(x, first):
    """Two caches of three sequences in one tensor."""
    return x[first : first + 3], x[:3]


def append_pages(s, rows=2, **options):
    caches = tuple(s.tensor(12, 2, 16, 64, dtype=FP8) for _ in "kv")
    return append_to(s, k=s.tensor(3, 2, rows, 64), caches=caches, **{"page_table": s.pages[4], **options})


add("append: right", RIGHT, lambda s: append_to(s, lengths=s.ints([0, 9, 40])))
add("append: pages", RIGHT, lambda s: append_pages(s, lengths=s.ints([0, 15, 40])))
add("append: strided rows", RIGHT, lambda s: append_to(s, k=s.tensor(3, 2, 3, 2, 64)[:, :, 1].transpose(1, 2)))
add("append: rows not at 16 bytes", RIGHT, lambda s: append_to(s, k=s.tensor(3, 2, 2, 72)[..., 3:67]))
add("append: expanded rows", RIGHT, lambda s: append_to(s, k=s.tensor(3, 1, 1, 64).expand(3, 2, 2, 64)))
add("append: negative view", RIGHT, lambda s: append_to(s, k=torch._neg_view(s.tensor(3, 2, 2, 64))))
add("append: no rows", RIGHT, lambda s: append_to(s, k=s.tensor(3, 2, 0, 64)))
add("append: over 448", RIGHT, lambda s: append_to(s, k=s.tensor(3, 2, 2, 64) * 1e6))
add("append: infinity", RIGHT, lambda s: append_to(s, k=torch.full((3, 2, 2, 64), -INF, dtype=BF16, device=s.device)))
for values in ([64, 64, 64], [63, 62, 65], [-1, -BIG - 1, 0], [BIG, BIG - 1, 1000], [-2, 0, BIG]):
    add(f"append: lengths {values}", RIGHT, lambda s, n=values: append_to(s, lengths=s.ints(n)))
    add(f"append: pages, lengths {values}", RIGHT, lambda s, n=values: append_pages(s, 20, lengths=s.ints(n)))
for value in (-1, 12, 13, BIG, -BIG - 1):
    add(f"append: page {value}", RIGHT, lambda s, x=value: append_pages(s, 20, lengths=s.ints([0, 15, 40]), page_table=s.ints([[x, 1, x, 0], [x] * 4, [8, x, 10, x]])))
add("append: table not contiguous", RIGHT, lambda s: append_pages(s, page_table=s.ints(s.pages[4].t().tolist()).t()))
for value in (0.0, NAN, -1.0, INF):
    add(f"append: factor {value}", SURVIVES, lambda s, x=value: s.append(*[s.tensor(3, 2, 2, 64)] * 2, *s.codes[:2], s.cache[3], descale=[s.ones(3, 2) * x] * 2))
for name, text, kind, given in (
    ("k in float32", "k is torch.float32", TypeError, lambda s: {"k": s.tensor(3, 2, 2, 64, dtype=torch.float32)}),
    ("v in float16", "v is torch.float16, and k is", TypeError, lambda s: {"k": s.tensor(3, 2, 2, 64), "v": s.tensor(3, 2, 2, 64).half()}),
    ("v has more rows", "k is .*, and v is", ValueError, lambda s: {"k": s.tensor(3, 2, 2, 64), "v": s.tensor(3, 2, 3, 64)}),
    ("k has more heads", "k has 4 heads, and k_cache has 2", ValueError, lambda s: {"k": s.tensor(3, 4, 2, 64)}),
    ("another head dim", "head_dim differs", ValueError, lambda s: {"k": s.tensor(3, 2, 2, 32)}),
    ("another batch", "k_cache is .*batch differs", ValueError, lambda s: {"k": s.tensor(2, 2, 2, 64)}),
    ("caches in bfloat16", "k_cache is torch.bfloat16, not float8_e4m3fn", TypeError, lambda s: {"caches": s.cache[1:3]}),
    ("caches not contiguous", "k_cache has strides", ValueError, lambda s: {"caches": [s.tensor(3, 64, 2, 64, dtype=FP8).transpose(1, 2)] * 2}),
    ("an expanded cache", "k_cache has strides", ValueError, lambda s: {"caches": [s.codes[0][:1].expand(3, 2, 64, 64)] * 2}),
    ("lengths int64", "lengths is torch.int64", ValueError, lambda s: {"lengths": s.cache[3].long()}),
    ("lengths on meta", "lengths is on meta", ValueError, lambda s: {"lengths": s.cache[3].to("meta")}),
    ("one factor", "descale has 1 tensors, not 2", ValueError, lambda s: {"descale": s.codes[2][:1]}),
    ("a float as factor", "descale of k is a float", TypeError, lambda s: {"descale": (1.0, 1.0)}),
    ("factors of another batch", "descale of k is", ValueError, lambda s: {"descale": [s.ones(2, 2)] * 2}),
    ("nested k", "k is nested", TypeError, lambda s: {"k": nested(s, torch.strided, s.tensor(3, 2, 2, 64))}),
    ("sparse factors", "descale of k has the layout", TypeError, lambda s: {"descale": [s.ones(3, 2).to_sparse()] * 2}),
    ("k is a list", "k is a list", TypeError, lambda s: {"k": [1]}),
    ("k in the cache", "k_cache overlaps k in", ValueError, lambda s: {"k": s.codes[0].view(BF16).view(-1)[:768].view(3, 2, 2, 64)}),
    ("lengths in the cache", "k_cache overlaps lengths in", ValueError, lambda s: {"lengths": s.codes[0].view(torch.int32).view(-1)[:3]}),
):
    add(f"append: {name}", Wrong(kind, text), lambda s, g=given: append_to(s, **g(s)))
add("append: factors missing", TYPE("missing 1 required keyword-only argument: 'descale'"), lambda s: attune.append(*[s.tensor(3, 2, 2, 64)] * 2, *s.codes[:2], s.cache[3]))
add("append: factors None", VALUE("descale is missing"), lambda s: s.append(*[s.tensor(3, 2, 2, 64)] * 2, *s.codes[:2], s.cache[3], descale=None))
add("append: one cache for both", VALUE("k_cache overlaps v_cache"), lambda s: s.append(*[s.tensor(3, 2, 2, 64)] * 2, *[s.codes[0]] * 2, s.cache[3], descale=s.codes[2]))
for first, want in ((2, VALUE("k_cache overlaps v_cache")), (3, RIGHT)):
    add(f"append: caches {first} sequences apart in one tensor", want,
        lambda s, n=first: append_to(s, caches=in_one(s.tensor(6, 2, 64, 64, dtype=FP8), n)))
add("append: caches of inference", RIGHT, lambda s: append_to(s, caches=inference(lambda: s.codes[:2])))
add("append: a gradient of k", SURVIVES, lambda s: append_to(s, k=s.tensor(3, 2, 2, 64).requires_grad_()))

# ---- quantize ------------------------------------------------------------------------------------


def quantized(s, x, **options):
    """quantize(x), whose values times the factor are near those of x."""
    y, factor = attune.quantize(x, **options)
    if not options:
        s.compare(y.float() * factor[..., None, None], x.detach().float().double(), tolerance=0.04)
    return f"{y.dtype} {list(factor.shape)}"


add("quantize: right", RIGHT, lambda s: quantized(s, s.q))
for name, make in (
    ("float32", lambda s: s.q.float()),
    ("float64", lambda s: s.q.double()),
    ("head dim 1", lambda s: s.tensor(2, 4, 33, 1)),
    ("head dim 512", lambda s: s.tensor(2, 4, 3, 512)),
    ("one row", lambda s: s.q[:, :, :1]),
    ("columns not adjacent", lambda s: s.tensor(2, 4, 64, 33).transpose(2, 3)),
    ("expanded", lambda s: s.q[:, :1].expand(2, 4, 33, 64)),
    ("negative view", lambda s: torch._neg_view(s.q)),
    ("zeros", lambda s: s.zeros(2, 4, 33, 64)),
    ("requires a gradient", lambda s: s.q.requires_grad_()),
    ("inference", lambda s: inference(lambda: s.q)),
    ("not at 16 bytes", lambda s: s.tensor(2, 4, 33, 72)[..., 3:67]),
):
    add(f"quantize: {name}", RIGHT, lambda s, m=make: quantized(s, m(s)))
for name, make in (("no rows", lambda s: s.q[:, :, :0]), ("no batch", lambda s: s.q[:0]), ("no columns", lambda s: s.q[..., :0]),
                   ("meta", lambda s: s.q.to("meta"))):  # fmt: skip
    add(f"quantize: {name}", RIGHT, lambda s, m=make: quantized(s, m(s)))
add("quantize: NaN", SURVIVES, lambda s: attune.quantize(set_at(s.q, (0, 0, 0, 0), NAN)))
add("quantize: NaN only", SURVIVES, lambda s: attune.quantize(s.q * NAN))
add("quantize: infinity", SURVIVES, lambda s: attune.quantize(set_at(s.q, (0, 0, 0, 0), INF)))
add("quantize: q, k and v with both options", RIGHT, lambda s: str(len(attune.quantize(*s.qkv, smooth_k=True, hadamard=True, return_mean=True))))
add("quantize: vmap", RIGHT, lambda s: str(torch.vmap(lambda x: attune.quantize(x))(s.q[None])[0].shape))
for name, text, kind, call in (
    ("int32", "q is torch.int32", TypeError, lambda s: attune.quantize(s.q.int())),
    ("E4M3", "q is torch.float8_e4m3fn", TypeError, lambda s: attune.quantize(s.fp8[0])),
    ("complex", "q is torch.complex64", TypeError, lambda s: attune.quantize(s.q.to(torch.complex64))),
    ("sparse", "q has the layout", TypeError, lambda s: attune.quantize(s.q.to_sparse())),
    ("nested", "q is nested", TypeError, lambda s: attune.quantize(nested(s, torch.strided, s.q))),
    ("None", "q is a NoneType", TypeError, lambda s: attune.quantize(None)),
    ("two dimensions", "q has 2 dimensions", ValueError, lambda s: attune.quantize(s.q[0, 0])),
    ("no v", "v is missing", ValueError, lambda s: attune.quantize(s.q, s.k)),
    ("no k", "k is missing", ValueError, lambda s: attune.quantize(s.q, None, s.v)),
    ("k in float16", "k is torch.float16, and q", TypeError, lambda s: attune.quantize(s.q, s.k.half(), s.v)),
    ("k on meta", "k is on meta", ValueError, lambda s: attune.quantize(s.q, s.k.to("meta"), s.v)),
    ("batches differ", "k is .*batch", ValueError, lambda s: attune.quantize(s.q, s.k[:1], s.v[:1])),
    ("v is shorter", "k is .*, and v", ValueError, lambda s: attune.quantize(s.q, s.k, s.v[:, :, :4])),
    ("smooth_k without k", "smooth_k is set, and there is no k", ValueError, lambda s: attune.quantize(s.q, smooth_k=True)),
    ("return_mean without k", "return_mean is set", ValueError, lambda s: attune.quantize(s.q, return_mean=True)),
    ("hadamard of 72 columns", "hadamard is set, and head_dim is 72", ValueError, lambda s: attune.quantize(s.tensor(1, 2, 9, 72), hadamard=True)),
    ("hadamard of no columns", "hadamard is set, and head_dim is 0", ValueError, lambda s: attune.quantize(s.q[..., :0], hadamard=True)),
    ("hadamard: a str", "hadamard is a str", TypeError, lambda s: attune.quantize(s.q, hadamard="no")),
):
    add(f"quantize: {name}", Wrong(kind, text), lambda s, c=call: c(s))
add("quantize: 2^31 elements of one, expanded", SURVIVES, lambda s: attune.quantize(s.q[:1, :1, :1].expand(1, 1, 2**25, 64)), heavy=True)

# ---- merge ---------------------------------------------------------------------------------------


def merged(s, o_a=None, lse_a=None, o_b=None, lse_b=None):
    pick = lambda given, own: own if given is None else given
    o, lse = s.tensor(2, 4, 9, 64), s.tensor(2, 4, 9, dtype=torch.float32)
    return attune.merge(pick(o_a, o), pick(lse_a, lse), pick(o_b, o), pick(lse_b, lse))


def half_and_half(s):
    parts = [attune.sdpa(s.q, s.k[:, :, x], s.v[:, :, x], return_lse=True, fallback=True) for x in (slice(0, 7), slice(7, 40))]
    o, lse = attune.merge(*parts[0], *parts[1])
    want, want_lse = s.dense_answer(lse=True)
    return s.compare(o, want) + s.compare_lse(lse, want_lse)


add("merge: right", RIGHT, half_and_half)
add("merge: no keys in either part", RIGHT,
    lambda s: (lambda r: str(r[0].abs().sum().item()) if not r[0].isnan().any() else fail("NaN"))(merged(s, lse_a=s.ones(2, 4, 9) * -INF, lse_b=s.ones(2, 4, 9) * -INF)))  # fmt: skip
add("merge: NaN where there was no key", RIGHT,
    lambda s: (lambda r: "skipped" if not r[0].isnan().any() else fail("NaN"))(merged(s, o_a=s.tensor(2, 4, 9, 64) * NAN, lse_a=s.ones(2, 4, 9) * -INF)))  # fmt: skip
add("merge: NaN and infinity as lse", SURVIVES, lambda s: merged(s, lse_a=s.ones(2, 4, 9) * NAN, lse_b=s.ones(2, 4, 9) * INF))
add("merge: empty", RIGHT, lambda s: str(attune.merge(s.q[:, :, :0], s.ones(2, 4, 0), s.q[:, :, :0], s.ones(2, 4, 0))[0].shape))
add("merge: packed", RIGHT, lambda s: str(attune.merge(s.packed[0], s.ones(4, 50), s.packed[0], s.ones(4, 50), packed=True)[0].shape))
add("merge: with a gradient", RIGHT, lambda s: str(merged(s, o_a=s.tensor(2, 4, 9, 64).requires_grad_())[0].sum().backward()))
add("merge: vmap", RIGHT, lambda s: str(torch.vmap(lambda o: attune.merge(o, s.ones(2, 4, 33), o, s.ones(2, 4, 33)))(s.q[None])[0].shape))
for name, text, kind, given in (
    ("o_b in float16", "o_b is torch.float16, and o_a", TypeError, lambda s: {"o_b": s.tensor(2, 4, 9, 64).half()}),
    ("o_a int", "o_a is torch.int32", TypeError, lambda s: {"o_a": s.tensor(2, 4, 9, 64).int()}),
    ("o_a complex", "o_a is torch.complex64", TypeError, lambda s: {"o_a": s.tensor(2, 4, 9, 64).to(torch.complex64)}),
    ("o_b of another shape", "o_b is .*, and o_a is", ValueError, lambda s: {"o_b": s.tensor(2, 4, 8, 64)}),
    ("o_a of two dimensions", "o_a has 2 dimensions", ValueError, lambda s: {"o_a": s.tensor(9, 64)}),
    ("lse_a of another shape", "lse_a is .*lse is \\[2, 4, 9\\]", ValueError, lambda s: {"lse_a": s.ones(2, 9, 4)}),
    ("lse_b int", "lse_b is torch.int32", TypeError, lambda s: {"lse_b": s.ints([[[0] * 9] * 4] * 2)}),
    ("lse_b on meta", "lse_b is on meta", ValueError, lambda s: {"lse_b": s.ones(2, 4, 9).to("meta")}),
    ("lse_a a float", "lse_a is a float", TypeError, lambda s: {"lse_a": 1.0}),
    ("o_a sparse", "o_a has the layout", TypeError, lambda s: {"o_a": s.tensor(2, 4, 9, 64).to_sparse()}),
    ("o_a nested", "o_a is nested", TypeError, lambda s: {"o_a": nested(s, torch.strided, s.tensor(2, 4, 9, 64))}),
    ("lse_b sparse", "lse_b has the layout", TypeError, lambda s: {"lse_b": s.ones(2, 4, 9).to_sparse()}),
):
    add(f"merge: {name}", Wrong(kind, text), lambda s, g=given: merged(s, **g(s)))


def fail(text):
    raise Failure(text)


# ---- explain -------------------------------------------------------------------------------------

META = torch.device("meta")


def meta(*shape, dtype=BF16):
    return torch.empty(shape, dtype=dtype, device=META)


add("explain: right", RIGHT, lambda s: s.explain(*s.qkv).reason)
add("explain: meta", RIGHT, lambda s: s.explain(*[meta(1, 8, 2048, 128)] * 3, causal=True).reason)
add("explain: no keys", RIGHT, lambda s: s.explain(s.q, s.k[:, :, :0], s.v[:, :, :0]).kernel)
add("explain: head dim 72", RIGHT, lambda s: s.explain(*[meta(1, 8, 20, 72)] * 3).reason)
add("explain: 2^40 elements", RIGHT, lambda s: s.explain(*[meta(1, 2**20, 2**12, 128)] * 3).reason)
add("explain: 2^33 keys", RIGHT, lambda s: s.explain(meta(1, 1, 1, 64), *[meta(1, 1, 2**33, 64)] * 2).reason)
add("explain: strides of 0", RIGHT, lambda s: s.explain(s.q, s.k[:, :1].expand(2, 4, 40, 64), s.v[:, :1].expand(2, 4, 40, 64)).reason)
add("explain: decode", RIGHT, lambda s: s.explain(*s.cache[:3], lengths=s.cache[3]).reason)
add("explain: a gradient", RIGHT, lambda s: s.explain(s.q.requires_grad_(), s.k, s.v).reason)
add("explain: smooth_k with lse", RIGHT, lambda s: s.explain(*s.qkv, smooth_k=True, return_lse=True).reason)
for name, text, kind, call in (
    ("None", "q is a NoneType", TypeError, lambda s: s.explain(None, s.k, s.v)),
    ("nested", "q is nested", TypeError, lambda s: s.explain(nested(s, torch.strided, s.q), s.k, s.v)),
    ("smooth_k with lengths", "smooth_k or hadamard is set, and lengths", ValueError, lambda s: s.explain(*s.cache[:3], lengths=s.cache[3], smooth_k=True)),
    ("packed keys with lengths", "cu_seqlens_k and lengths are given", ValueError, lambda s: s.explain(*s.cache[:3], lengths=s.cache[3], cu_seqlens_k=s.cache[3])),
    ("pages without lengths", "page_table is given, and lengths is None", ValueError, lambda s: s.explain(*s.pages[:3], page_table=s.pages[4])),
    ("packed keys alone", "cu_seqlens_q is None", TypeError, lambda s: s.explain(*s.packed[:3], cu_seqlens_k=s.packed[4])),
    ("packed without the most rows", "max_seqlen_q is a NoneType", TypeError, lambda s: s.explain(*s.packed[:3], cu_seqlens_q=s.packed[3], cu_seqlens_k=s.packed[4])),
    ("a chunk without the most rows", "max_seqlen_q is a NoneType", TypeError, lambda s: s.explain(s.packed[0], *s.cache[1:3], lengths=s.cache[3], cu_seqlens_q=s.packed[3])),
    ("scale NaN", "scale is nan", ValueError, lambda s: s.explain(*s.qkv, scale=NAN)),
    ("fallback", "unexpected keyword argument 'fallback'", TypeError, lambda s: s.explain(*s.qkv, fallback=True)),
    ("causal: a str", "causal is a str", TypeError, lambda s: s.explain(*s.qkv, causal="no")),
):
    add(f"explain: {name}", Wrong(kind, text), lambda s, c=call: c(s))
add("explain: cannot be changed", Wrong(AttributeError, "form"), lambda s: setattr(s.explain(*s.qkv), "form", "x"))

# ---- patch, register and the doors of other libraries --------------------------------------------

BEFORE = functional.scaled_dot_product_attention


def patched(run, **options):
    def inside(s):
        with attune.patch(**options) as calls:
            result = run(s)
        if functional.scaled_dot_product_attention is not BEFORE:
            raise Failure("PyTorch's function is not back")
        return f"{calls}" if result is None else result

    return inside


def sdpa_of_torch(s, *args, **options):
    got, want = functional.scaled_dot_product_attention(*args, **options), BEFORE(*args, **options)
    return s.compare(got, want.double())


for name, call in (
    ("right", lambda s: sdpa_of_torch(s, s.q, s.q, s.q, is_causal=True)),
    ("float32", lambda s: sdpa_of_torch(s, *[s.q.float()] * 3)),
    ("float64", lambda s: sdpa_of_torch(s, *[s.q.double()] * 3)),
    ("a mask", lambda s: sdpa_of_torch(s, s.q, s.q, s.q, attn_mask=torch.ones(33, 33, dtype=torch.bool, device=s.device))),
    ("broadcast keys", lambda s: sdpa_of_torch(s, s.q, s.q[:1], s.q[:1])),
    ("three dimensions", lambda s: sdpa_of_torch(s, *[s.q[0]] * 3)),
    ("values of other columns", lambda s: sdpa_of_torch(s, s.q, s.q, s.q[..., :32])),
    ("head dim 65", lambda s: sdpa_of_torch(s, *[s.tensor(1, 2, 9, 65)] * 3)),
    ("a negative scale", lambda s: sdpa_of_torch(s, s.q, s.q, s.q, scale=-0.1)),
    ("a gradient", lambda s: sdpa_of_torch(s, s.q.requires_grad_(), s.q, s.q)),
    ("grouped heads", lambda s: sdpa_of_torch(s, *s.qkv, enable_gqa=True)),
    ("causal, more keys", lambda s: sdpa_of_torch(s, s.q, *[s.tensor(2, 4, 40, 64)] * 2, is_causal=True)),
    ("a nested tensor", lambda s: str(functional.scaled_dot_product_attention(*[nested(s, torch.jagged, s.q.transpose(1, 2)).transpose(1, 2)] * 3).shape[0])),
):
    add(f"patch: {name}", RIGHT, patched(call), ways=("fallback",))
for value in ("8", None, 16):
    add(f"patch: precision {value!r}", VALUE("precision is "), lambda s, x=value: patched(lambda s: None, precision=x)(s))
add("patch: within patch, left in another order", RIGHT, lambda s: out_of_order(s), ways=("fallback",))
add("patch: an exception inside", RIGHT, lambda s: leaves_by_exception(s), ways=("fallback",))
add("patch: a wrong call inside", Wrong((TypeError, RuntimeError), "query|must be"), patched(lambda s: functional.scaled_dot_product_attention(s.q, None, s.q)), ways=("fallback",))
add("patch: 16 threads", RIGHT, lambda s: in_threads(lambda i: patched(lambda s: None)(s) if i else sdpa_of_torch(s, s.q, s.q, s.q), check=lambda: functional.scaled_dot_product_attention is BEFORE), ways=("fallback",))


def out_of_order(s):
    first, second = attune.patch(), attune.patch("16")
    first.__enter__(), second.__enter__(), first.__exit__(None, None, None)
    sdpa_of_torch(s, s.q, s.q, s.q)
    second.__exit__(None, None, None)
    return "in order" if functional.scaled_dot_product_attention is BEFORE else fail("PyTorch's function is not back")


def leaves_by_exception(s):
    with contextlib.suppress(KeyError), attune.patch():
        raise KeyError
    return "in order" if functional.scaled_dot_product_attention is BEFORE else fail("PyTorch's function is not back")


for value in ("8", 16, ""):
    add(f"register: precision {value!r}", VALUE("precision is "), lambda s, x=value: registered(x), ways=("fallback",))


def registered(precision):
    from attune import _register

    key = "CUDA" if torch.cuda.is_available() else "CPU"
    with mock.patch.object(_register, "_KEY", key), mock.patch.object(torch.library, "get_kernel", mock.Mock(), create=True):
        try:
            return str(attune.register(precision))
        finally:
            with contextlib.suppress(Exception):
                torch.nn.attention.restore_flash_attention_impl(_raise_warn=False)


def door(name):
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return __import__(f"attune.{name}", fromlist=["calls"])
    except ImportError as problem:
        raise Skip(f"{name} is not installed") from problem


def of_transformers(s, *args, **options):
    door("transformers")
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

    class Layer(torch.nn.Module):
        num_key_value_groups, is_causal, layer_idx, config, training = 2, False, 0, None, False

    return ALL_ATTENTION_FUNCTIONS["attune"](Layer(), *args, **options)


add("transformers: right", RIGHT, lambda s: s.compare(of_transformers(s, *s.qkv, None, scaling=0.125, is_causal=False)[0].transpose(1, 2), s.dense_answer(scale=0.125)), ways=PLAIN)
add("transformers: float32", RIGHT, lambda s: str(of_transformers(s, *(x.float() for x in s.qkv), None, scaling=0.125)[0].shape), ways=PLAIN)
add("transformers: head dim 65", RIGHT, lambda s: str(of_transformers(s, s.tensor(1, 4, 9, 65), *[s.tensor(1, 2, 9, 65)] * 2, None)[0].shape), ways=PLAIN)
add("transformers: dropout and a gradient", RIGHT, lambda s: str(of_transformers(s, s.q.requires_grad_(), s.k, s.v, None, dropout=0.1)[0].shape), ways=PLAIN)
add("transformers: a mask of the caller", RIGHT, lambda s: str(of_transformers(s, *s.qkv, torch.zeros(2, 1, 33, 40, dtype=BF16, device=s.device))[0].shape), ways=PLAIN)
add("diffusers: the name twice", RIGHT, lambda s: str(door("diffusers").calls()), ways=PLAIN)

# ---- the C interface -----------------------------------------------------------------------------

OK, INVALID, UNSUPPORTED, SMALL, NO_DRIVER, DRIVER_ERROR = range(6)


def c_struct(s, function):
    """Parameters of a problem that is right, with real pointers on a GPU and those of the double otherwise."""
    kind = STRUCTS[function]
    p = kind(struct_size=ctypes.sizeof(kind))
    memory = (lambda i, n: s.zeros(n, dtype=torch.uint8).data_ptr()) if s.device.type == "cuda" else (lambda i, n: 0x100000000000 + (i << 28))
    pointers = [name for name, t in kind._fields_ if t is ctypes.c_void_p]
    optional = {"sinks", "lse", "cu_queries", "cu_keys", "key_lengths", "page_table", "mean_k", "alibi_slopes", "tree_mask"}
    for i, name in enumerate(pointers):
        if name not in optional and not (name == "workspace" and function == "forward"):
            setattr(p, name, memory(i, 1 << 20))
    sizes = {"batch": 2, "heads": 4, "kv_heads": 2, "queries": 32, "keys": 48, "head_dim": 64, "rows": 3, "capacity": 64}
    for name, value in {**sizes, "dtype": 1 if function == "forward" else 3, "out_dtype": 2, "workspace_bytes": 0}.items():
        if any(field == name for field, _ in kind._fields_):
            setattr(p, name, value)
    if function == "quantize":
        p.workspace_bytes = 1 << 20
    return p


def c_call(function, status, pattern, **fields):
    def run(s):
        p = c_struct(s, function)
        for name, value in fields.items():
            value = value(s) if callable(value) else value
            setattr(p, name, (ctypes.c_int64 * 3)(*value) if isinstance(value, tuple) else value)
        return c_judge(s, getattr(LIBRARY, f"attune_sdpa_{function}")(ctypes.byref(p), None), status, pattern)

    return run


def c_judge(s, got, status, pattern):
    text = LIBRARY.attune_sdpa_last_error().decode()
    if s.device.type == "cuda":
        torch.cuda.synchronize()
    if got != status or (pattern and not __import__("re").search(pattern, text)) or "\n" in text or (got == OK) != (text == ""):
        raise Failure(f"status {got}, not {status}: {text!r}")
    return f"status {got}: {text}"


def add_c(function, name, status, pattern, **fields):
    add(f"C: {function}, {name}", RIGHT, c_call(function, status, pattern, **fields), ways=("library",), needs="c")


add_c("forward", "right", OK, "")
add_c("quantize", "right", OK, "")
add_c("append", "right", OK, "")
for function, size in ((name, ctypes.sizeof(kind)) for name, kind in STRUCTS.items()):
    for value in (0, 1, 8, size - 9, size - 1, size + 1, 4097, 2**63):
        add_c(function, f"struct_size {value}", INVALID, "struct_size is", struct_size=value)
    add_c(function, "unknown flags", INVALID, "flags is", flags=2**63)
    add_c(function, "batch 0", INVALID, "batch is 0", batch=0)
    add_c(function, "head dim -64", INVALID, "head_dim is -64", head_dim=-64)
    add_c(function, "batch 2^24 + 1", UNSUPPORTED, "batch is 16777217", batch=2**24 + 1)
    add_c(function, "dtype 9", INVALID, "dtype is 9", dtype=9)
    add_c(function, "k NULL", INVALID, "k(eys)? (is|and|or).*NULL|k is NULL|NULL", k=None)
    add_c(function, "k not at 16 bytes", INVALID, "k is 0x.*multiple of 16", k=0x100000000008)
    add_c(function, "k on the host", INVALID, "k is 0x.*not device memory", k=0x7F0000000000)
    add_c(function, "v of NaN as address", INVALID, "v is 0x.*not device memory", v=0x7FF8000000000000)
    add_c(function, "a row stride of 3", UNSUPPORTED, "k_stride\\[2\\] is 3", k_stride=(64, 64, 3))
    add_c(function, "a negative stride", UNSUPPORTED, "k_stride\\[0\\] is -64", k_stride=(-64, 64, 64))
    add_c(function, "a stride of 2^62", UNSUPPORTED, "k_stride\\[0\\] is 4611686018427387904", k_stride=(2**62, 64, 64))
for fields, status, text in (
    ({"kv_heads": 3}, INVALID, "kv_heads is 3"), ({"out_dtype": 1}, UNSUPPORTED, "out_dtype is"),
    ({"out_dtype": 0}, INVALID, "out_dtype is 0"), ({"q_dtype": 4}, INVALID, "q_dtype is 4"),
    ({"scale": NAN}, INVALID, "scale is nan"), ({"scale": -1.0}, INVALID, "scale is -1"), ({"scale": INF}, INVALID, "scale is inf"),
    ({"softcap": NAN}, INVALID, "softcap is nan"), ({"softcap": 3.0}, UNSUPPORTED, "softcap is 3"),
    ({"window_left": 4}, INVALID, "window_left is 4 and has_window"), ({"has_window": 1, "window_left": -2}, INVALID, "window_left is -2"),
    ({"has_window": 1, "window_right": -(2**31)}, INVALID, "window_right is -2147483648"),
    ({"precision": 3}, INVALID, "precision is 3"), ({"precision": 2}, INVALID, "precision is ATTUNE"),
    ({"smooth_k": 1}, INVALID, "smooth_k is 1"), ({"hadamard": -1}, INVALID, "hadamard is -1"),
    ({"descale_k": None}, INVALID, "descale_k is NULL"), ({"o": None}, INVALID, "o is NULL"),
    ({"head_dim": 96}, UNSUPPORTED, "head_dim is 96"), ({"head_dim": 1}, UNSUPPORTED, "."),
    ({"queries": 2**24, "heads": 2**20, "kv_heads": 1}, UNSUPPORTED, "2\\^31 elements"),
    ({"cu_keys": 0x100000000000}, INVALID, "cu_queries NULL"), ({"page_table": 0x100000000000}, INVALID, "max_pages is 0"),
    ({"page_table": 0x100000000000, "max_pages": 4, "page_size": 8, "pages": 4}, UNSUPPORTED, "page_size is 8"),
    ({"page_table": 0x100000000000, "max_pages": 1, "page_size": 16, "pages": 4}, INVALID, "keys is 48, more than"),
    ({"cu_queries": 0x100000000000}, INVALID, "total_queries is 0"),
    ({"dtype": 3}, INVALID, "descale_q is"), ({"dtype": 2, "q_dtype": 3}, UNSUPPORTED, "q_dtype is 3 and dtype 2"),
    ({"workspace": 0x100000000010, "workspace_bytes": 1, "queries": 1, "dtype": 3, "out_dtype": 3, "descale_q": None, "descale_k": None, "descale_v": None}, SMALL, "workspace_bytes is 1"),
    ({"has_window": BIG, "window_left": BIG, "window_right": BIG}, OK, ""), ({"causal": -(2**31)}, OK, ""), ({"scale": 1e-45}, OK, ""),
):
    add_c("forward", ", ".join(f"{k} {v}" for k, v in fields.items())[:60], status, text, **fields)
for fields, status, text in (
    ({"q": None, "k": None, "v": None}, INVALID, "NULL"), ({"head_dim": 12}, UNSUPPORTED, "head_dim is 12"),
    ({"head_dim": 512}, UNSUPPORTED, "head_dim is 512"), ({"hadamard": 1, "head_dim": 72}, UNSUPPORTED, "head_dim 72"),
    ({"workspace": None}, INVALID, "workspace is NULL"), ({"workspace_bytes": 0}, SMALL, "workspace_bytes is 0"),
    ({"y_k": None}, INVALID, "y_k is NULL"), ({"dtype": 1}, UNSUPPORTED, "dtype is"), ({"keys": -5}, INVALID, "keys is -5"),
):
    add_c("quantize", ", ".join(f"{k} {v}" for k, v in fields.items())[:60], status, text, **fields)
for fields, status, text in (
    ({"capacity": 0}, INVALID, "capacity is 0"), ({"rows": -1}, INVALID, "rows is -1"), ({"head_dim": 60}, UNSUPPORTED, "head_dim is 60"),
    ({"lengths": None}, INVALID, "lengths is NULL"), ({"lengths": 0x100000000002}, INVALID, "lengths is 0x.*multiple of 4"),
    ({"page_table": 0x100000000000}, INVALID, "page_size is 0"), ({"page_table": 0x100000000000, "page_size": 16, "max_pages": 2**24, "pages": 4, "batch": 2**10}, INVALID, "batch is 1024 and max_pages"),
    ({"dtype": 1}, UNSUPPORTED, "dtype is"), ({"batch": 2**20, "rows": 2**20}, UNSUPPORTED, "2\\^31"),
):
    add_c("append", ", ".join(f"{k} {v}" for k, v in fields.items())[:60], status, text, **fields)
for function in ("forward", "quantize", "append"):
    add(f"C: {function}, NULL", RIGHT, lambda s, f=function: c_judge(s, getattr(LIBRARY, f"attune_sdpa_{f}")(None, None), INVALID, "params is NULL"), ways=("library",), needs="c")
add("C: form, NULL", RIGHT, lambda s: str(LIBRARY.attune_sdpa_form(None) is None or fail("a form")), ways=("library",), needs="c")
add("C: workspace_bytes, NULL", RIGHT, lambda s: str(LIBRARY.attune_sdpa_workspace_bytes(None) == 0 or fail("bytes")), ways=("library",), needs="c")
add("C: explain, into NULL", RIGHT, lambda s: c_judge(s, LIBRARY.attune_sdpa_explain(ctypes.byref(c_struct(s, "forward")), None), INVALID, "into is NULL"), ways=("library",), needs="c")
for size in (0, 8, 247, 2**63):
    add(f"C: explain, struct_size {size}", RIGHT, lambda s, n=size: explain_into(s, n), ways=("library",), needs="c")


def explain_into(s, size):
    """Writes nothing beyond the struct, and nothing where its size is not known."""
    area = (ctypes.c_uint8 * 4096)(*[0xA5] * 4096)
    ctypes.c_size_t.from_buffer(area).value = size
    status = LIBRARY.attune_sdpa_explain(ctypes.byref(c_struct(s, "forward")), ctypes.byref(area))
    if any(x != 0xA5 for x in area[248:]) or (status != OK and any(x != 0xA5 for x in area[8:])):
        raise Failure("memory behind the struct was written")
    return f"status {status}"


def later_struct(s, byte):
    """A struct of a later header: what the library does not know must be zero."""
    size = ctypes.sizeof(STRUCTS["forward"])
    area = (ctypes.c_uint8 * (size + 16))()
    ctypes.memmove(area, ctypes.byref(c_struct(s, "forward")), size)
    ctypes.c_size_t.from_buffer(area).value, area[size + 9] = size + 16, byte
    return c_judge(s, LIBRARY.attune_sdpa_forward(ctypes.byref(area), None), UNSUPPORTED if byte else OK, f"byte {size + 9} of" if byte else "")


for byte in (0, 7):
    add(f"C: a later struct with {byte}", RIGHT, lambda s, b=byte: later_struct(s, b), ways=("library",), needs="c")


def other_context(device, status, pattern):
    def run(s):
        if DRIVER is None:
            raise Skip("one GPU: a double of the driver has two")
        try:
            DRIVER.double_context(device)
            return c_judge(s, LIBRARY.attune_sdpa_forward(ctypes.byref(c_struct(s, "forward")), None), status, pattern)
        finally:
            DRIVER.double_context(0)

    return run


add("C: tensors of another GPU", RIGHT, other_context(1, INVALID, "memory of device 0; the current context is of device 1"), ways=("library",), needs="c")
add("C: a GPU that is no Hopper GPU", RIGHT, other_context(2, UNSUPPORTED, "sm_80"), ways=("library",), needs="c")
add("C: no context", RIGHT, other_context(-1, INVALID, "no CUDA context is current"), ways=("library",), needs="c")

# ---- threads, processes, streams, pickles --------------------------------------------------------


def in_threads(call, count=16, check=None):
    """Calls from threads that begin together; the first exception is raised here."""
    problems, barrier = [], threading.Barrier(count)

    def work(i):
        try:
            barrier.wait()
            call(i)
        except BaseException as problem:
            problems.append(problem)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if problems:
        raise problems[0]
    if check is not None and not check():
        raise Failure("the state is not as before")
    return f"{count} threads"


def same_call(s, i):
    x, options = s.qkv, {"causal": bool(i % 2), "return_lse": True, **s.fallback}
    want = s.dense_answer(causal=bool(i % 2))
    for _ in range(5):
        try:
            s.compare(attune.sdpa(*x, **options)[0], want)
        except NotImplementedError:
            if s.computes:
                raise


def wrong_and_right(s, i):
    """The error of a thread is its own."""
    for _ in range(20):
        if i % 2:
            same_call(s, i)
            continue
        try:
            attune.sdpa(*s.qkv, scale=-1.0 - i, **s.fallback)
        except ValueError as problem:
            if f"scale is {-1.0 - i}" not in str(problem):
                raise Failure(f"the error of another thread: {problem}") from problem
        else:
            raise Failure("no error")


def made(s):
    return s.qkv, s.cache, s.codes, s.fallback


add("threads: 16 calls at once", RIGHT, lambda s: made(s) and in_threads(lambda i: same_call(s, i)))
add("threads: right and wrong calls at once", RIGHT, lambda s: made(s) and in_threads(lambda i: wrong_and_right(s, i)))
add("threads: a workspace grows", RIGHT, lambda s: made(s) and in_threads(lambda i: [sdpa_or_left(s, 100 * i + 100 + 10 * j) for j in range(3)]))
add("threads: ended and new ones", RIGHT, lambda s: made(s) and [in_threads(lambda i: same_call(s, i), 4) for _ in range(4)][0])
add("threads: 16 appends to own slots", RIGHT, lambda s: made(s) and in_threads(lambda i: s.append(*[torch.zeros(3, 2, 1, 64, dtype=BF16, device=s.device)] * 2, *s.codes[:2], s.cache[3] * 0 + i, descale=s.codes[2])))


def sdpa_or_left(s, rows):
    x = torch.zeros(1, 2, rows, 64, dtype=BF16, device=s.device)
    with contextlib.suppress(NotImplementedError):
        attune.sdpa(x, x, x, precision="fp8", **s.fallback)


def in_child(s, call):
    """What a forked process gives: its text, or a failure where it dies or hangs."""
    read, write = os.pipe()
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        try:
            signal.alarm(30)
            try:
                text = f"answered {list(call().shape)}"
            except BaseException as problem:
                text = f"{type(problem).__name__}: {problem}"
            os.write(write, text.encode()[:4000])
        finally:
            os._exit(0)
    os.close(write)
    with os.fdopen(read) as pipe:
        text = pipe.read()
    status = os.waitpid(child, 0)[1]
    if status != 0 or not text:
        raise Failure(f"the child ended with {status}: {text!r}")
    return text


def fork_after_use(s):
    with contextlib.suppress(NotImplementedError):
        s.sdpa(*s.qkv)
    torch.set_num_threads(1)  # OpenMP's threads do not survive a fork
    text = in_child(s, lambda: attune.sdpa(*s.qkv, **s.fallback))
    if s.device.type == "cuda" and ("fork" not in text or "\n" in text):
        raise Failure(f"no clear error in a forked process: {text!r}")
    return text


add("fork after use", RIGHT, fork_after_use)
add("fork after use: a wrong argument", RIGHT, lambda s: (lambda t: t if "scale is nan" in t else fail(t))(in_child(s, lambda: attune.sdpa(*s.qkv, scale=NAN))))
add("pickle: the functions", RIGHT, lambda s: str(all(pickle.loads(pickle.dumps(f)) is f for f in (attune.sdpa, attune.decode, attune.append, attune.merge, attune.patch))))
add("pickle: an explanation", RIGHT, lambda s: pickle.loads(pickle.dumps(s.explain(*s.qkv))).reason)
add("pickle: the calls of patch", RIGHT, lambda s: (lambda c: str(pickle.loads(pickle.dumps(c))) + str(copy.deepcopy(c)))(attune._patch.Calls()))
add("deepcopy of a model", RIGHT, lambda s: str(copy.deepcopy(Model())(*s.qkv).shape))
add("version", RIGHT, lambda s: attune.version())


def in_signal(s):
    """Calls within a handler of a signal that interrupts a call."""
    done = []
    before = signal.signal(signal.SIGALRM, lambda *_: done.append(sdpa_or_left(s, 64)))
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
        end = time.monotonic() + 5
        while len(done) < 5 and time.monotonic() < end:
            sdpa_or_left(s, 64)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    return f"{len(done)} calls in the handler" if done else fail("the handler did not run")


def at_the_limit(s):
    """A call where the stack is nearly used up: a RecursionError, or an answer."""
    def down(n):
        try:
            return down(n + 1)
        except RecursionError:
            with contextlib.suppress(RecursionError, NotImplementedError):
                attune.sdpa(*s.qkv, **s.fallback)
            return n

    return f"depth {down(0)}"


add("a call in a signal handler", RIGHT, lambda s: made(s) and in_signal(s))
add("a call at the limit of recursion", RIGHT, lambda s: made(s) and at_the_limit(s), ways=("library",))
add("no memory for the output", Wrong(torch.OutOfMemoryError, "no memory"), lambda s: without_memory(s), ways=("library",))


def without_memory(s):
    from attune import _library

    def empty(*_):
        raise torch.OutOfMemoryError("no memory in this test")

    if _library._call is None:
        raise Skip("no compiled part")
    on_cpu = {"device_type": 1, "current_device": lambda: 0, "raw_stream": lambda device: 0, "capturing": lambda: False}
    made(s)
    _library.configure(**(on_cpu if s.device.type == "cpu" else {}), empty=empty)
    return attune.sdpa(*s.qkv)


def on_streams(s):
    streams = [torch.cuda.Stream() for _ in range(4)]
    want, made_ = s.dense_answer(), s.qkv
    torch.cuda.synchronize()
    outputs = []
    for stream in streams * 3:
        with torch.cuda.stream(stream):
            outputs.append(attune.sdpa(*made_))
    torch.cuda.synchronize()
    return [s.compare(o, want) for o in outputs][0]


def captured(s, call):
    """A graph of a call, the first one of its form, replayed."""
    made(s)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        o = call()
    graph.replay()
    graph.replay()
    torch.cuda.synchronize()
    return o


add("streams", RIGHT, on_streams, needs="gpu")
add("capture: sdpa", RIGHT, lambda s: s.compare(captured(s, lambda: attune.sdpa(*s.qkv)), s.dense_answer()), needs="caching")
add("capture: precision fp8", RIGHT, lambda s: s.compare(captured(s, lambda: attune.sdpa(*s.qkv, precision="fp8")), s.dense_answer()), needs="caching")
add("capture: decode", RIGHT, lambda s: str(captured(s, lambda: attune.decode(*s.cache)).shape), needs="caching")
add("capture: a refusal", Wrong(ValueError, "scale is nan"), lambda s: captured(s, lambda: attune.sdpa(*s.qkv, scale=NAN)), needs="caching")
add("another device is current", RIGHT, lambda s: other_device(s), ways=("library",))


def other_device(s):
    """Tensors of device 0 where device 1 is current: the compiled part launches nothing."""
    if s.device.type == "cuda":
        raise Skip("a double of a second GPU is for the CPU")
    from attune import _library

    made(s)
    launched = []
    _library.configure(device_type=1, current_device=lambda: 1, raw_stream=lambda d: launched.append(d) or 0, capturing=lambda: False)
    with contextlib.suppress(NotImplementedError):
        attune.sdpa(*s.qkv)
    return "left" if not launched else fail("a launch on another device")
