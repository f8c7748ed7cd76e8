"""Where a hostile call is made: its tensors, which lie between guards, the library, and the right answers."""

import contextlib
import ctypes
import functools
import inspect
import os
import pathlib
import re

import package
import params
import torch
from hostile import CANARY, GUARD, RIGHT, SURVIVES, Failure, Skip, Unsupported

import attune
from attune import _library

FP8, BF16, FP16 = torch.float8_e4m3fn, torch.bfloat16, torch.float16
DOUBLE = package.double()


# ---- the right answers, in float64 ---------------------------------------------------------------


def _attend(q, k, v, causal=False, scale=None, window_size=None, sinks=None, softcap=None):
    """(o, lse) of one sequence: q [heads, queries, head_dim], k and v [kv_heads, keys, head_dim]."""
    heads, queries, dim = q.shape
    keys = k.shape[1]
    k, v = (x.repeat_interleave(heads // k.shape[0], dim=0) for x in (k, v))
    own = torch.arange(queries, device=q.device)[:, None] + (keys - queries)
    key = torch.arange(keys, device=q.device)
    left, right = (-1 if x is None else min(int(x), 2**31) for x in window_size or (-1, -1))
    right = 0 if causal else right
    seen = (key >= (own - left if left >= 0 else 0 * own)) & (key <= (own + right if right >= 0 else 0 * own + keys))
    scores = q @ k.transpose(1, 2) * (dim**-0.5 if scale is None else float(scale))
    softcap = float(softcap or 0)
    scores = softcap * torch.tanh(scores / softcap) if softcap else scores
    scores = scores.masked_fill(~seen, -torch.inf)
    if sinks is not None:
        scores = torch.cat([scores, sinks.double()[:, None, None].expand(-1, queries, 1)], dim=2)
    none = ~seen.any(dim=1)
    lse = scores.logsumexp(dim=2).masked_fill(none, -torch.inf)
    weights = (scores - lse[..., None]).exp().masked_fill(none[:, None], 0)[..., :keys]
    return weights @ v, lse


def _wide(x, factor=None):
    x = x.detach().to(torch.float32).double()
    return x if factor is None else x * factor.detach().double()[..., None, None]


def _factors(descale, count=3):
    return (None, None, None) if descale is None else (None, *descale)[-count:]


def dense(q, k, v, *, descale=None, **options):
    q, k, v = (_wide(x, f) for x, f in zip((q, k, v), _factors(descale)))
    parts = [_attend(q[b], k[b], v[b], **options) for b in range(q.shape[0])]
    return torch.stack([o for o, _ in parts]), torch.stack([lse for _, lse in parts])


def _packed(q, cu, keys_of, **options):
    """Each sequence by itself; keys_of gives its k and v."""
    o, lse = torch.zeros_like(_wide(q)), torch.full((q.shape[1], q.shape[0]), -torch.inf, dtype=torch.double)
    lse = lse.to(q.device)
    for b, (start, end) in enumerate(zip(cu.tolist(), cu.tolist()[1:])):
        if end > start:
            part, part_lse = _attend(_wide(q[start:end]).transpose(0, 1), *keys_of(b), **options)
            o[start:end], lse[:, start:end] = part.transpose(0, 1), part_lse
    return o, lse


def varlen(q, k, v, cu_q, cu_k, max_q, max_k, **options):
    at = cu_k.tolist()
    return _packed(q, cu_q, lambda b: [_wide(x[at[b] : at[b + 1]]).transpose(0, 1) for x in (k, v)], **options)


def _cached(k, v, lengths, table, descale):
    """The keys and values of each sequence, by its length."""
    factors = (None, None) if descale is None else tuple(descale)[-2:]
    capacity = k.shape[2] * (1 if table is None else table.shape[1])

    def keys_of(b):
        n = min(max(int(lengths[b]), 0), capacity)
        both = []
        for x, factor in zip((k, v), factors):
            rows = x[b] if table is None else None
            if rows is None:
                size = x.shape[2]
                bits = x.view(torch.uint8 if x.dtype == FP8 else x.dtype)
                ids = [int(table[b, i]) for i in range(-(-n // size))]
                pages = [bits[i] if 0 <= i < x.shape[0] else torch.zeros_like(bits[0]) for i in ids]  # absent pages are 0
                rows = (torch.cat(pages, dim=1) if pages else x.view(torch.uint8)[0, :, :0]).view(x.dtype)
            both.append(_wide(rows[:, :n]) * (1 if factor is None else factor[b].double()[:, None, None]))
        return both

    return keys_of


def cached(q, k, v, lengths, *, page_table=None, descale=None, causal=True, **options):
    keys_of, q = _cached(k, v, lengths, page_table, descale), _wide(q)
    parts = [_attend(q[b], *keys_of(b), causal=causal, **options) for b in range(q.shape[0])]
    return torch.stack([o for o, _ in parts]), torch.stack([lse for _, lse in parts])


def prefilled(q, k, v, lengths, cu, most, *, page_table=None, descale=None, causal=True, **options):
    return _packed(q, cu, _cached(k, v, lengths, page_table, descale), causal=causal, **options)


_ORACLES = {"sdpa": dense, "sdpa_varlen": varlen, "decode": cached, "prefill": prefilled}
_NOT_OF_ORACLES = ("out", "return_lse", "fallback", "precision", "smooth_k", "hadamard")


# ---- a scene -------------------------------------------------------------------------------------


class Scene:
    """Tensors and functions for a call. q, k and v are bfloat16, [2, 4, 33, 64] and [2, 2, 40, 64]."""

    def __init__(self, device, way):
        self.device, self.way = torch.device(device), way
        self.random = torch.Generator(self.device).manual_seed(7)
        self.guarded, self.want, self.want_error = [], None, None

    # ---- tensors

    def between_guards(self, shape, dtype, strides=None):
        """A new tensor with canaries before and behind it."""
        size = dtype.itemsize
        extent = 1 + sum((n - 1) * s for n, s in zip(shape, strides)) if strides else torch.Size(shape).numel()
        whole = torch.full((2 * GUARD + -(-extent * size // 16) * 16,), CANARY, dtype=torch.uint8, device=self.device)
        inside = whole[GUARD : GUARD + extent * size].view(dtype)
        self.guarded.append((whole, extent * size))
        return inside.as_strided(shape, strides) if strides else inside.view(shape)

    def tensor(self, *shape, dtype=BF16):
        x = self.between_guards(shape, dtype)
        values = torch.randn(shape, generator=self.random, device=self.device)
        return x.copy_(values.to(dtype)) if dtype.is_floating_point else x.copy_(values.mul(10).to(dtype))

    def zeros(self, *shape, dtype=BF16):
        x = self.between_guards(shape, dtype)
        x.view(torch.uint8).zero_()
        return x

    def ones(self, *shape):
        return self.between_guards(shape, torch.float32).fill_(1)

    def ints(self, values, dtype=torch.int32):
        values = torch.tensor(values, dtype=dtype)
        return self.between_guards(values.shape, dtype).copy_(values)

    def check_guards(self):
        """No byte outside of a tensor was written."""
        for whole, size in self.guarded:
            before, behind = whole[:GUARD], whole[GUARD + size :]
            if not bool((before == CANARY).all() and (behind == CANARY).all()):
                raise Failure(f"the memory before or behind a tensor of {size} bytes was written")

    @functools.cached_property
    def q(self):
        return self.tensor(2, 4, 33, 64)

    @functools.cached_property
    def k(self):
        return self.tensor(2, 2, 40, 64)

    @functools.cached_property
    def v(self):
        return self.tensor(2, 2, 40, 64)

    @property
    def qkv(self):
        return self.q, self.k, self.v

    @functools.cached_property
    def fp8(self):
        """(q, k, v, descale) in E4M3."""
        factors = tuple(self.ones(2, n).mul_(0.5) for n in (4, 2, 2))
        return (*(self.zeros(*x.shape, dtype=FP8).copy_(x) for x in self.qkv), factors)

    @functools.cached_property
    def packed(self):
        """(q, k, v, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k) of three sequences."""
        q, k, v = self.tensor(50, 4, 64), self.tensor(70, 2, 64), self.tensor(70, 2, 64)
        return q, k, v, self.ints([0, 20, 20, 50]), self.ints([0, 30, 40, 70]), 30, 30

    @functools.cached_property
    def cache(self):
        """(q, k_cache, v_cache, lengths) of a decode step in bfloat16, [3, 2, 64, 64]."""
        return self.tensor(3, 4, 1, 64), self.tensor(3, 2, 64, 64), self.tensor(3, 2, 64, 64), self.ints([5, 64, 33])

    @functools.cached_property
    def pages(self):
        """(q, k_cache, v_cache, lengths, page_table) over 12 pages of 16 keys."""
        table = self.ints([[3, 1, 5, 0], [2, 4, 7, 6], [8, 11, 10, 9]])
        return self.tensor(3, 4, 1, 64), self.tensor(12, 2, 16, 64), self.tensor(12, 2, 16, 64), self.ints([5, 64, 33]), table

    @functools.cached_property
    def codes(self):
        """(k_cache, v_cache, descale) in E4M3, [3, 2, 64, 64]."""
        return self.tensor(3, 2, 64, 64, dtype=FP8), self.tensor(3, 2, 64, 64, dtype=FP8), (self.ones(3, 2), self.ones(3, 2))

    # ---- functions

    @property
    def fallback(self):
        return {"fallback": True} if self.way == "fallback" else {}

    @property
    def computes(self):
        """Whether outputs have values: doubles compute nothing."""
        return self.way == "fallback" or self.device.type == "cuda"

    def _call(self, name, args, options):
        try:
            known = {x: y for x, y in options.items() if x not in _NOT_OF_ORACLES}
            self.want = _ORACLES[name](*args, **known)
        except Exception as problem:  # of arguments that are wrong
            self.want, self.want_error = None, problem
        return getattr(attune, name)(*args, **{**self.fallback, **options})

    def sdpa(self, *args, **options):
        return self._call("sdpa", args, options)

    def sdpa_varlen(self, *args, **options):
        return self._call("sdpa_varlen", args, options)

    def decode(self, *args, **options):
        return self._call("decode", args, options)

    def prefill(self, *args, **options):
        return self._call("prefill", args, options)

    def append(self, *args, **options):
        attune.append(*args, **{**self.fallback, **options})

    def explain(self, *args, **options):
        """It needs the compiled part, and no GPU."""
        return attune.explain(*args, **options)

    def dense_answer(self, lse=False, **options):
        """What sdpa of q, k and v gives."""
        answer = dense(*self.qkv, **options)
        return answer if lse else answer[0]

    # ---- judgement

    def must_refuse(self):
        return self.way == "library" and (self.device.type == "cuda" or DRIVER is not None)

    def may_refuse(self, want, text):
        if isinstance(want, Unsupported):
            return self.way == "library" and bool(re.search(want.pattern + "|is on cpu", text))
        # Tensors on a CPU that are not plain go another way than the compiled part.
        return self.way == "library" and self.device.type == "cpu" and "is on cpu" in text

    def check_answer(self, got):
        """The answer is near that of float64; values are compared where something computes."""
        if isinstance(got, str):
            return got
        if self.want is None:
            raise Failure(f"there is no right answer to compare with: {self.want_error}")
        o, lse = got if isinstance(got, tuple) else (got, None)
        return self.compare(o, self.want[0]) + ("" if lse is None else ", " + self.compare_lse(lse, self.want[1]))

    def compare(self, got, want, tolerance=None):
        if got.shape != want.shape:
            raise Failure(f"the answer is {list(got.shape)}, not {list(want.shape)}")
        if not self.computes or got.device.type == "meta" or got.numel() == 0:
            return f"answered {list(got.shape)}"
        tolerance = tolerance or (0.08 if self.device.type == "cuda" else 0.02)
        got = got.detach().to(torch.float32).double().as_subclass(torch.Tensor)
        unlike = (got.isnan() != want.isnan()) | (got.isinf() != want.isinf())
        if bool(unlike.any()):
            raise Failure(f"{int(unlike.sum())} elements are NaN or infinite, or are not")
        plain = want.isfinite()
        rms = lambda x: x.square().mean().sqrt().item() if x.numel() else 0.0
        error = rms((got - want)[plain]) / max(rms(want[plain]), 1e-3)
        if not error <= tolerance:
            raise Failure(f"the error is {error:.4f}, over {tolerance}")
        return f"error {error:.4f}"

    def compare_lse(self, got, want):
        if got.shape != want.shape or got.dtype != torch.float32:
            raise Failure(f"lse is {got.dtype} {list(got.shape)}, not float32 {list(want.shape)}")
        if not self.computes or got.numel() == 0:
            return "lse"
        if not torch.equal(got == -torch.inf, want == -torch.inf):
            raise Failure("lse is minus infinity for other rows")
        difference = (got.double() - want)[want.isfinite()].abs()
        if difference.numel() and not difference.max() < (1.0 if self.device.type == "cuda" else 0.05):
            raise Failure(f"lse is off by {difference.max():.3f}")
        return "lse"


# ---- the library ---------------------------------------------------------------------------------


def _driver():
    """The double of the driver, where the library is the real one: HOSTILE_DRIVER has its path."""
    path = os.environ.get("HOSTILE_DRIVER")
    return ctypes.CDLL(path, mode=ctypes.RTLD_GLOBAL) if path else None


DRIVER = _driver()


def real_library():
    """The library itself, for calls of C, or None."""
    path = pathlib.Path(attune.__file__).with_name("libattune_sdpa.so")
    if DOUBLE is not None or not path.exists():
        return None
    library = ctypes.CDLL(str(path))
    for name in ("attune_sdpa_last_error", "attune_sdpa_form", "attune_sdpa_version"):
        getattr(library, name).restype = ctypes.c_char_p
    for name in ("attune_sdpa_workspace_bytes", "attune_sdpa_quantize_workspace_bytes"):
        getattr(library, name).restype = ctypes.c_size_t
    return library


LIBRARY = real_library()


def _configure_double(scene):
    """Tensors on a CPU count as those of device 0, and new ones lie between guards."""
    workspace = scene.zeros(8 << 20, dtype=torch.uint8)

    def take(device, stream, size):
        if size > workspace.numel():
            raise torch.OutOfMemoryError(f"a workspace of {size} bytes")
        return workspace, False

    def bind(device):
        if DRIVER is not None:
            DRIVER.double_context(0)

    if DRIVER is not None:
        DRIVER.double_context(0)
    _library.configure(
        device_type=1,
        current_device=lambda: 0,
        raw_stream=lambda device: 0,
        empty=lambda shape, strides, dtype: scene.between_guards(shape, dtype, strides),
        workspace=take,
        bind=bind,
        capturing=lambda: False,
    )


@contextlib.contextmanager
def open_scene(device, way, call):
    """A scene for a call, or Skip."""
    if way == "library" and device == "cpu" and DOUBLE is None and DRIVER is None:
        raise Skip("the package has the real library, and there is no double of the driver")
    if call.needs == "c" and (LIBRARY is None or (device == "cpu" and DRIVER is None)):
        raise Skip("it needs the real library, and a GPU or the double of the driver")
    if call.needs == "library" and device == "cpu" and DRIVER is None and way == "library":
        raise Skip("it needs the real library, which refuses it")
    if call.needs == "cpu" and device != "cpu":
        raise Skip("a kernel leaves there what was in memory")
    if call.needs in ("gpu", "caching") and device != "cuda":
        raise Skip("it needs a GPU")
    if call.needs == "caching" and os.environ.get("PYTORCH_NO_CUDA_MEMORY_CACHING"):
        raise Skip("it needs PyTorch's caching allocator")
    scene = Scene(device, way)
    scene.q, scene.k, scene.v  # before a transform or a mode of the call
    if _library._call is not None and way == "library":
        if device == "cpu":
            _configure_double(scene)
        else:
            _library.configure(empty=lambda shape, strides, dtype: scene.between_guards(shape, dtype, strides))
    try:
        yield scene
        if device == "cuda":
            torch.cuda.synchronize()
            scene.check_guards()
    finally:
        if _library._call is not None:
            _library.configure()


STRUCTS = {"forward": params.Forward, "quantize": params.Quantize, "append": params.Append}
__all__ = ["BF16", "DRIVER", "FP16", "FP8", "LIBRARY", "RIGHT", "STRUCTS", "SURVIVES", "Scene", "open_scene"]
