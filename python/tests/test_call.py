"""What the compiled part gives to the library, read from a double of it, with tensors on a CPU."""

import contextlib
import ctypes
import itertools
import random as python_random
import sys
import time
import unittest
from unittest import mock

import package
import params
import torch

import attune
from attune import _attention, _cache, _library, _workspace

DOUBLE = package.double()
E4M3, FP16, BF16 = 1, 2, 3
FP8 = torch.float8_e4m3fn


# Numbers of rows that no other test has: the sizes of workspaces are kept from problem to problem.
FRESH = itertools.count(1000)


def random(*shape, dtype=torch.bfloat16):
    return torch.randn(shape, generator=torch.Generator().manual_seed(1)).to(dtype)


def on_cpu(shape, strides, dtype):
    return torch.empty_strided(shape, strides, dtype=dtype)


@unittest.skipIf(DOUBLE is None, "no C compiler, no Python headers, or an installed wheel")
class WithDouble(unittest.TestCase):
    """Tensors on a CPU count as those of device 0."""

    exchange = True

    def setUp(self):
        self.workspace = torch.zeros(4096, dtype=torch.uint8)
        self.asked = []
        self.lasts = self.capturing = False
        self.bound = []
        self.configure()
        self.answer(0)
        self.addCleanup(_library.configure)

    def configure(self, **functions):
        replaced = {
            "current_device": lambda: 0,
            "raw_stream": lambda device: 0,
            "empty": on_cpu,
            "workspace": self.take,
            "bind": self.bound.append,
            "capturing": lambda: self.capturing,
        }
        replaced.update(functions)
        _library.configure(device_type=1, exchange=self.exchange, **replaced)

    def take(self, *arguments):
        self.asked.append(arguments)
        return self.workspace, self.lasts

    def answer(self, status, text="", failures=-1, workspace=0):
        ctypes.c_int.in_dll(DOUBLE, "double_status").value = status
        ctypes.c_int.in_dll(DOUBLE, "double_failures").value = failures
        ctypes.c_size_t.in_dll(DOUBLE, "double_workspace_bytes").value = workspace
        (ctypes.c_char * 256).in_dll(DOUBLE, "double_error").value = text.encode()

    def calls(self):
        return ctypes.c_int.in_dll(DOUBLE, "double_calls").value

    def received(self, kind=params.Forward):
        p = kind.in_dll(DOUBLE, "double_" + kind.__name__.lower())
        self.assertEqual(p.struct_size, ctypes.sizeof(kind))
        return p

    def expect(self, p, **fields):
        for name, want in fields.items():
            got = getattr(p, name)
            got = tuple(got) if isinstance(got, ctypes.Array) else got
            want = want.data_ptr() if isinstance(want, torch.Tensor) else want
            self.assertEqual(got, want, name)


class Attention(WithDouble):
    def test_halves(self):
        q, k, v = random(2, 8, 5, 64), random(2, 2, 7, 64), random(2, 2, 7, 64)
        o = attune.sdpa(q, k, v)
        self.assertEqual((o.shape, o.dtype, o.is_contiguous()), (q.shape, q.dtype, True))
        p = self.received()
        self.expect(p, q=q, k=k, v=v, o=o, lse=None, descale_q=None, descale_k=None, descale_v=None)
        self.expect(p, batch=2, heads=8, kv_heads=2, queries=5, keys=7, head_dim=64)
        self.expect(
            p,
            q_stride=(8 * 5 * 64, 5 * 64, 64),
            k_stride=(2 * 7 * 64, 7 * 64, 64),
            dtype=BF16,
            out_dtype=BF16,
            q_dtype=0,
        )
        self.expect(
            p,
            causal=0,
            scale=0.0,
            has_window=0,
            window_left=0,
            window_right=0,
            sinks=None,
            workspace=None,
            workspace_bytes=0,
        )
        self.expect(p, cu_queries=None, cu_keys=None, key_lengths=None, page_table=None, smooth_k=0, hadamard=0)

    def test_gpu(self):
        """The library is told which GPU a call is for; PyTorch is asked once."""
        asked, q = [], random(2, 8, next(FRESH), 64)
        self.configure(gpu=lambda device: asked.append(device) or (89, 58))
        for _ in range(2):
            attune.sdpa(q, q, q)
            self.expect(self.received(), arch=89, multiprocessors=58)
        self.assertEqual(asked, [0])
        # On this GPU the library corrects the log-sum-exp of smooth_k itself.
        _, lse = attune.sdpa(q, q, q, smooth_k=True, return_lse=True)
        self.expect(self.received(), lse=lse, smooth_k=1)
        self.configure(gpu=lambda device: "none")
        attune.sdpa(q, q, q)
        self.expect(self.received(), arch=0, multiprocessors=0)

    def test_order_of_output(self):
        """O has the dimension order of q: a transpose and a reshape behind it copy nothing."""
        q = random(2, 5, 8, 64).transpose(1, 2)
        o = attune.sdpa(q, q.contiguous(), q)
        self.assertEqual((o.shape, o.stride()), (q.shape, q.stride()))
        self.expect(self.received(), o=o, o_stride=(5 * 8 * 64, 64, 8 * 64))
        q = random(2, 5, 3, 8, 64)[:, :, 1].transpose(1, 2)  # not dense
        o, lse = attune.sdpa(q, q, q, return_lse=True)
        self.assertEqual((o.stride(), lse.is_contiguous()), ((5 * 8 * 64, 64, 8 * 64, 1), True))
        self.assertTrue(attune.sdpa(q.contiguous(), q, q).is_contiguous())

    def test_options(self):
        q = random(1, 4, 6, 128, dtype=torch.float16)
        out, sinks = torch.empty_like(q, dtype=torch.bfloat16), torch.zeros(4)
        o, lse = attune.sdpa(
            q, q, q, causal=True, scale=0.5, window_size=(3, None), sinks=sinks, return_lse=True, out=out, hadamard=True
        )
        self.assertIs(o, out)
        self.assertEqual((lse.shape, lse.dtype), ((1, 4, 6), torch.float32))
        self.expect(
            self.received(),
            o=out,
            lse=lse,
            sinks=sinks,
            causal=1,
            scale=0.5,
            has_window=1,
            window_left=3,
            window_right=-1,
            hadamard=1,
        )
        self.expect(self.received(), dtype=FP16, out_dtype=BF16, smooth_k=0)
        attune.sdpa(q, q, q, window_size=(-1, 2), scale=0, smooth_k=True)
        p = self.received()
        self.expect(p, window_left=-1, window_right=2, smooth_k=1, hadamard=0)
        self.assertTrue(0 < p.scale < 1e-37)  # 0 would be the default

    def test_factors(self):
        q, k = random(2, 4, 6, 64).to(FP8), random(2, 2, 6, 64).to(FP8)
        descale = (torch.ones(2, 4), torch.ones(2, 2), torch.ones(2, 2))
        for given in (descale, list(descale)):
            o = attune.sdpa(q, k, k, descale=given)
            self.assertEqual(o.dtype, torch.float16)
            self.expect(
                self.received(),
                descale_q=descale[0],
                descale_k=descale[1],
                descale_v=descale[2],
                dtype=E4M3,
                out_dtype=FP16,
            )

    def test_strides_without_a_copy(self):
        qkv = random(2, 9, 3, 4, 64)  # batch, row, tensor, head
        q, k, v = (qkv[:, :, i].transpose(1, 2) for i in range(3))
        out = torch.empty(2, 9, 4, 64, dtype=torch.bfloat16).transpose(1, 2)
        attune.sdpa(q, k, v, out=out)
        rows = (9 * 3 * 4 * 64, 64, 3 * 4 * 64)
        self.expect(
            self.received(),
            q=q,
            k=k,
            v=v,
            q_stride=rows,
            k_stride=rows,
            v_stride=rows,
            o_stride=(9 * 4 * 64, 64, 4 * 64),
        )

    def test_strides_of_one_element(self):
        q = random(1, 1, 1, 64).expand(1, 1, 1, 64)
        q = q.as_strided((1, 1, 1, 64), (7, 5, 3, 1))
        attune.sdpa(q, q, q)
        self.expect(self.received(), q=q, q_stride=(64, 64, 64))

    def test_odd_head_dim(self):
        """The library refuses it by its name, and not by its strides."""
        q, f = random(2, 3, 5, 8).to(FP8), torch.ones(2, 3)
        attune.sdpa(q, q, q, descale=(f, f, f))
        self.expect(self.received(), head_dim=8, q_stride=(0, 0, 0))
        q, before = random(2, 3, 5, 21), self.calls()
        with self.assertRaises(NotImplementedError):
            attune.sdpa(q, q, q)
        self.assertEqual(self.calls(), before)

    def test_other_head_dim(self):
        """Slices of a packed QKV tensor are read where they are."""
        for head_dim in (8, 72, 96, 112, 200):
            qkv = random(2, 9, 3, 4, head_dim)  # batch, row, tensor, head
            q, k, v = (qkv[:, :, i].transpose(1, 2) for i in range(3))
            o = attune.sdpa(q, k, v)
            self.assertEqual(o.shape, q.shape)
            rows = (9 * 3 * 4 * head_dim, head_dim, 3 * 4 * head_dim)
            self.expect(self.received(), q=q, k=k, v=v, head_dim=head_dim, v_head_dim=0, q_stride=rows, v_stride=rows,
                        o_stride=(9 * 4 * head_dim, head_dim, 4 * head_dim))  # fmt: skip

    def test_packed(self):
        q, k = random(11, 4, 64), random(13, 2, 64)
        cu_queries, cu_keys = torch.tensor([0, 5, 11], dtype=torch.int32), torch.tensor([0, 6, 13], dtype=torch.int32)
        o, lse = attune.sdpa_varlen(q, k, k, cu_queries, cu_keys, 6, 7, causal=True, return_lse=True)
        self.assertEqual((o.shape, lse.shape), (q.shape, (4, 11)))
        p = self.received()
        self.expect(
            p, cu_queries=cu_queries, cu_keys=cu_keys, batch=2, queries=6, keys=7, total_queries=11, total_keys=13
        )
        self.expect(
            p, heads=4, kv_heads=2, head_dim=64, causal=1, q_stride=(0, 64, 4 * 64), k_stride=(0, 64, 2 * 64), lse=lse
        )

    def test_cache(self):
        q, cache = random(3, 8, 1, 128), random(3, 2, 70, 128).to(FP8)
        lengths, descale = torch.tensor([1, 70, 9], dtype=torch.int32), (torch.ones(3, 2), torch.ones(3, 2))
        o = attune.decode(q, cache, cache, lengths, descale=descale, window_size=(16, 0))
        self.assertEqual(o.dtype, torch.bfloat16)
        p = self.received()
        self.expect(
            p, key_lengths=lengths, page_table=None, keys=70, dtype=E4M3, q_dtype=BF16, out_dtype=BF16, causal=1
        )
        self.expect(p, descale_q=None, descale_k=descale[0], descale_v=descale[1], window_left=16, window_right=0)
        q8, all_three = q.to(FP8), (torch.ones(3, 8), *descale)
        attune.decode(q8, cache, cache, lengths, descale=all_three, causal=False)
        self.expect(self.received(), descale_q=all_three[0], q_dtype=0, out_dtype=FP16, causal=0)

    def test_cache_in_16_bits(self):
        lengths, table = torch.ones(3, dtype=torch.int32), torch.zeros(3, 4, dtype=torch.int32)
        for dtype, code in ((torch.bfloat16, BF16), (torch.float16, FP16)):
            q, cache = random(3, 8, 1, 128).to(dtype), random(3, 2, 70, 128).to(dtype)
            self.assertEqual(attune.decode(q, cache, cache, lengths).dtype, dtype)
            p = self.received()
            self.expect(p, key_lengths=lengths, keys=70, dtype=code, q_dtype=0, out_dtype=code, causal=1)
            self.expect(p, descale_q=None, descale_k=None, descale_v=None)
            pages = random(10, 2, 16, 128).to(dtype)
            attune.decode(q, pages, pages, lengths, page_table=table)
            self.expect(self.received(), page_table=table, page_size=16, pages=10, keys=64, dtype=code)

    def test_cache_unlike_the_query(self):
        q, cache, lengths = random(3, 8, 1, 128), random(3, 2, 70, 128), torch.ones(3, dtype=torch.int32)
        before = self.calls()
        with self.assertRaisesRegex(TypeError, "lengths is a NoneType, not a tensor"):
            attune.decode(q, cache, cache, None)
        with self.assertRaisesRegex(TypeError, "k_cache is torch.float16, not float8_e4m3fn or bfloat16"):
            attune.decode(q, cache.half(), cache.half(), lengths)
        with self.assertRaisesRegex(TypeError, "v_cache is torch.float8_e4m3fn, and k_cache is torch.bfloat16"):
            attune.decode(q, cache, cache.to(FP8), lengths)
        with self.assertRaisesRegex(TypeError, "k_cache is torch.bfloat16, not float8_e4m3fn"):
            attune.decode(q.to(FP8), cache, cache, lengths)
        with self.assertRaisesRegex(ValueError, "descale is given, and k_cache is torch.bfloat16"):
            attune.decode(q, cache, cache, lengths, descale=(torch.ones(3, 2), torch.ones(3, 2)))
        self.assertEqual(self.calls(), before)

    def test_pages(self):
        q, cache = random(3, 8, 2, 64), random(10, 2, 16, 64).to(FP8)
        lengths, table = torch.tensor([1, 20, 60], dtype=torch.int32), torch.zeros(3, 4, dtype=torch.int32)
        attune.decode(q, cache, cache, lengths, page_table=table, descale=(torch.ones(3, 2), torch.ones(3, 2)))
        p = self.received()
        self.expect(p, page_table=table, pages=10, page_size=16, max_pages=4, keys=64, queries=2, batch=3)
        self.expect(p, k_stride=(2 * 16 * 64, 16 * 64, 64))

    def test_workspace(self):
        q = random(1, 2, next(FRESH), 64)
        self.answer(0, workspace=4000)
        attune.sdpa(q, q, q)
        self.expect(self.received(), workspace=self.workspace, workspace_bytes=4000)
        self.assertEqual(self.asked, [(0, 0, 4000)])

    def test_workspace_is_kept(self):
        streams = [5]
        if not self.exchange:
            self.configure(raw_stream=lambda device: streams[0])

        def asks(size, **state):
            for name, value in state.items():
                setattr(self, name, value)
            self.asked.clear()
            self.answer(0, workspace=size)
            x = random(1, 2, next(FRESH), 64)
            attune.sdpa(x, x, x)
            self.expect(self.received(), workspace=self.workspace, workspace_bytes=size)
            return len(self.asked)

        self.assertEqual([asks(100), asks(100)], [1, 1])
        self.assertEqual([asks(100, lasts=True), asks(100), asks(4096), asks(4097), asks(4096)], [1, 0, 0, 1, 0])
        if self.exchange:  # the default stream, which cannot be captured
            self.assertEqual(asks(100, capturing=True), 0)
            return
        streams[0] = 6
        self.assertEqual([asks(100), asks(100)], [1, 0])
        # A captured workspace is not kept, and behind it Python sees the first call.
        self.assertEqual([asks(100, capturing=True, lasts=False), asks(100)], [1, 1])
        self.assertEqual([asks(100, capturing=False, lasts=True), asks(100)], [1, 0])

    def test_size_of_a_workspace_is_kept(self):
        q, sinks = random(1, 2, next(FRESH), 64), torch.zeros(2)
        self.answer(0, workspace=100)
        attune.sdpa(q, q, q)
        self.answer(0, workspace=200)
        attune.sdpa(q.clone(), q.clone(), q)  # the same problem
        attune.sdpa(q, q, q, sinks=sinks)
        attune.sdpa(q, q, q, return_lse=True)
        attune.sdpa(q, q, q, causal=True)
        self.assertEqual([size for _, _, size in self.asked], [100, 100, 200, 200, 200])
        for _ in range(9):
            x = random(1, 2, next(FRESH), 64)
            attune.sdpa(x, x, x)
        self.asked.clear()
        attune.sdpa(q, q, q)  # forgotten by now
        self.assertEqual(self.asked, [(0, 0, 200)])

    def test_errors(self):
        q = random(1, 2, 8, 64)
        for status, error in ((1, ValueError), (2, NotImplementedError), (3, RuntimeError), (5, RuntimeError)):
            self.answer(status, "scale is nan")
            with self.assertRaisesRegex(error, "scale is nan" if status != 2 else "q is on cpu"):
                attune.sdpa(q, q, q)
        self.answer(2, "head_dim is 64")
        torch.testing.assert_close(
            attune.sdpa(q, q, q, fallback=True), torch.nn.functional.scaled_dot_product_attention(q, q, q)
        )

    def test_new_thread(self):
        q = random(1, 2, 8, 64)
        self.answer(1, "no CUDA context is current on this thread", failures=1)
        attune.sdpa(q, q, q)
        self.assertEqual(self.bound, [0])
        self.answer(1, "no CUDA context is current on this thread")
        with self.assertRaisesRegex(ValueError, "no CUDA context"):
            attune.sdpa(q, q, q)

    def test_what_is_left_to_python(self):
        """Each of these is not for the quick way, so that nothing is launched."""
        q, f = random(1, 2, 8, 64), torch.ones(1, 2)
        q8, d = q.to(FP8), (f, f, f)
        odd = random(1, 2, 8, 72)[..., 4:68]
        before = self.calls()
        for args, options in (
            ((q, q, q.half()), {}),
            ((q, q[:, :, :3], q), {}),
            ((q, random(1, 3, 8, 64), random(1, 3, 8, 64)), {}),
            ((q[..., :32], q, q), {}),
            ((q[0], q[0], q[0]), {}),
            ((q.float(), q.float(), q.float()), {}),
            ((q[:0], q[:0], q[:0]), {}),
            ((odd, odd, odd), {}),
            ((q, q[:, :1].expand(q.shape), q), {}),
            ((q.transpose(2, 3), q.transpose(2, 3), q.transpose(2, 3)), {}),
            ((q, q, q), {"descale": d}),
            ((q8, q8, q8), {}),
            ((q8, q8, q8), {"descale": d[:2]}),
            ((q8, q8, q8), {"descale": (f, f, f.half())}),
            ((q8, q8, q8), {"descale": (f, f, torch.ones(1, 1).expand(1, 2))}),
            ((q8, q8, q8), {"descale": d, "hadamard": True}),
            ((q, q8, q8), {"descale": d}),
            ((q, q8, q8), {"descale": d[:2]}),
            ((q, q, q), {"window_size": (-2, 0)}),
            ((q, q, q), {"window_size": (1,)}),
            ((q, q, q), {"window_size": ("a", 0)}),
            ((q, q, q), {"scale": "a"}),
            ((q, q, q), {"sinks": torch.ones(3)}),
            ((q, q, q), {"sinks": torch.ones(2), "smooth_k": True}),
            ((q, q, q), {"out": q[:, :1]}),
            ((q, q, q), {"out": q[:, :, :1].expand(q.shape)}),
            ((q, q, q), {"out": q8}),
            ((q.requires_grad_(), q, q), {}),
        ):
            with self.assertRaises((ValueError, TypeError, NotImplementedError)):
                attune.sdpa(*args, **options)
        self.assertEqual(self.calls(), before)

    def test_other_device(self):
        q = random(1, 2, 8, 64)
        self.configure(current_device=lambda: 1)
        before = self.calls()
        with self.assertRaises(NotImplementedError):
            attune.sdpa(q, q, q)
        self.assertEqual(self.calls(), before)

    def test_subclasses(self):
        class Own(torch.Tensor):
            pass

        q = random(1, 2, 8, 64)
        before = self.calls()
        with self.assertRaises(NotImplementedError):
            attune.sdpa(q.as_subclass(Own), q, q)
        self.assertEqual(self.calls(), before)
        attune.sdpa(torch.nn.Parameter(q, requires_grad=False), q, q)
        with torch.no_grad():
            attune.sdpa(torch.nn.Parameter(q), q, q)
        self.assertEqual(self.calls(), before + 2)

    def test_wrappers(self):
        """Tensors of torch.vmap have no storage: they are refused, and nothing breaks."""
        q, before = random(3, 1, 2, 8, 64), self.calls()
        with self.assertRaises((NotImplementedError, RuntimeError)):
            torch.vmap(lambda x: attune.sdpa(x, x, x))(q)
        self.assertEqual(self.calls(), before)

    def test_references_are_given_back(self):
        rows = next(FRESH)
        q, f, out = random(1, 2, rows, 64).to(FP8), torch.ones(1, 2), random(1, 2, rows, 64)
        self.answer(0, workspace=64)
        objects = (q, f, out, self.workspace, None, True)
        counts = [sys.getrefcount(x) for x in objects]
        for _ in range(100):
            attune.sdpa(q, q, q, descale=(f, f, f), out=out)
            attune.sdpa(out, out, out, return_lse=True)
        self.asked.clear()
        for x, before in zip(objects, counts):
            self.assertLess(abs(sys.getrefcount(x) - before), 50)

    def test_overhead(self):
        """The CPU time of a call without the library, printed; E4M3 and BF16 with a workspace."""
        q, f = random(1, 8, next(FRESH), 64), torch.ones(1, 8)
        q8, out, descale = q.to(FP8), q.half(), (f, f, f)
        self.lasts = True
        quick = microseconds(lambda: attune.sdpa(q8, q8, q8, descale=descale, out=out))
        self.answer(0, workspace=64)
        halves = microseconds(lambda: attune.sdpa(q, q, q, out=out))
        print(f"\nCPU time of a call without the library: {quick:.2f} us with E4M3, {halves:.2f} us with BF16")


def microseconds(call):
    best = float("inf")
    for _ in range(30):
        start = time.perf_counter()
        for _ in range(500):
            call()
        best = min(best, (time.perf_counter() - start) / 500)
    return 1e6 * best


class BothWays(WithDouble):
    """What the compiled part takes, the checks in Python take too: with random arguments."""

    source = python_random.Random(7)

    def pick(self, *values):
        return self.source.choice(values)

    def tensor(self, *shape, dtype=None):
        """A tensor that is as it should be most of the time."""
        shape = list(shape)
        if self.source.random() < 0.03:
            shape[self.source.randrange(len(shape))] = self.pick(0, 1, 3, 64)
        if self.source.random() < 0.02:
            shape = shape[1:] or [1, 1]
        x = torch.zeros(shape, dtype=dtype or torch.bfloat16)
        if self.source.random() < 0.03:
            x = x.to(self.pick(torch.float16, torch.float32, FP8, torch.int32, torch.int64))
        if x.dim() > 2 and self.source.random() < 0.1:
            x = x.transpose(1, 2).contiguous().transpose(1, 2)
        return x if self.source.random() > 0.01 else self.pick(None, [1], 3)

    def options(self, heads):
        options = {
            "scale": self.pick(0, 0.5, -1, "a", float("nan")),
            "window_size": self.pick((1, 2), (None, 0), (-1, 0), (-1, -1), (-2, 0), (1,), 5, (1.5, 0)),
            "sinks": self.tensor(heads, dtype=torch.float32),
            "return_lse": True,
            "precision": self.pick("16", "fp8", "auto", "8", 16),
        }
        return {name: value for name, value in options.items() if self.source.random() < 0.1}

    def quantiser(self):
        return {name: True for name in ("smooth_k", "hadamard") if self.source.random() < 0.1}

    def factors(self, batch, *heads):
        return tuple(self.tensor(batch, n, dtype=torch.float32) for n in heads)

    def dense(self):
        fp8 = self.pick(True, False)
        dtype = FP8 if fp8 else torch.bfloat16
        q, k, v = (self.tensor(2, heads, rows, 64, dtype=dtype) for heads, rows in ((4, 5), (2, 7), (2, 7)))
        descale = {"descale": self.factors(2, 4, 2, 2)} if fp8 else {}
        out = {"out": self.tensor(2, 4, 5, 64)} if self.source.random() < 0.2 else {}
        return attune.sdpa, (q, k, v), {**descale, **out, **self.options(4), **self.quantiser()}

    def packed(self):
        q, k, v = (self.tensor(rows, heads, 64) for heads, rows in ((4, 9), (2, 12), (2, 12)))
        cu = [self.tensor(3, dtype=torch.int32) for _ in "qk"]
        return attune.sdpa_varlen, (q, k, v, *cu, self.pick(5, 5, 0, 99), 6), {**self.options(4), **self.quantiser()}

    def cache(self):
        paged = self.pick(True, False)
        shape = (6, 2, 64, 64) if paged else (2, 2, 70, 64)
        dtype = self.pick(FP8, torch.bfloat16)
        caches = [self.tensor(*shape, dtype=dtype) for _ in "kv"]
        lengths = self.tensor(2, dtype=torch.int32)
        options = {
            "descale": self.factors(2, 2, 2) if dtype == FP8 else self.pick(None, self.factors(2, 2, 2)),
            "page_table": self.tensor(2, 3, dtype=torch.int32) if paged else None,
        }
        if self.pick(True, False):
            return attune.append, (self.tensor(2, 2, 3, 64), self.tensor(2, 2, 3, 64), *caches, lengths), options
        return attune.decode, (self.tensor(2, 4, 1, 64), *caches, lengths), {**options, **self.options(4)}

    def prefill(self):
        paged = self.pick(True, False)
        dtype = self.pick(FP8, torch.bfloat16)
        caches = [self.tensor(*((6, 2, 64, 64) if paged else (2, 2, 70, 64)), dtype=dtype) for _ in "kv"]
        lengths, cu = self.tensor(2, dtype=torch.int32), self.tensor(3, dtype=torch.int32)
        options = {
            "descale": self.factors(2, 2, 2) if dtype == FP8 else self.pick(None, self.factors(2, 2, 2)),
            "page_table": self.tensor(2, 3, dtype=torch.int32) if paged else None,
        }
        arguments = (self.tensor(9, 4, 64), *caches, lengths, cu, self.pick(5, 5, 5, 0, 99))
        return attune.prefill, arguments, {**options, **self.options(4)}

    def test_random_arguments(self):
        taken = 0
        for _ in range(2000):
            function, args, options = self.pick(self.dense, self.packed, self.cache, self.prefill)()
            before = self.calls()
            with contextlib.suppress(ValueError, TypeError, NotImplementedError):
                function(*args, **options)
            if self.calls() == before:
                continue
            taken += 1
            with (
                mock.patch.multiple(_attention, _attend=_library._nothing),
                mock.patch.multiple(_cache, _attend=_library._nothing, _append=_library._nothing),
            ):
                # The checks pass, so that it is the CPU that is refused.
                with self.assertRaisesRegex(NotImplementedError, "is on cpu", msg=(function, args, options)):
                    function(*args, **options)
        self.assertGreater(taken, 400)


class AttentionByAttributes(Attention):
    """As with PyTorch 2.9 and earlier."""

    exchange = False


class Quantisers(WithDouble):
    def test_append(self):
        k, v = random(2, 3, 4, 64), random(2, 3, 4, 64).transpose(1, 2).contiguous().transpose(1, 2)
        caches = [torch.zeros(2, 3, 100, 64).to(FP8) for _ in "kv"]
        lengths, descale = torch.tensor([3, 9], dtype=torch.int32), (torch.ones(2, 3), torch.ones(2, 3))
        self.assertIsNone(attune.append(k, v, *caches, lengths, descale=descale))
        p = self.received(params.Append)
        self.expect(
            p,
            k=k,
            v=v,
            k_cache=caches[0],
            v_cache=caches[1],
            lengths=lengths,
            page_table=None,
            descale_k=descale[0],
            descale_v=descale[1],
        )
        self.expect(p, batch=2, kv_heads=3, rows=4, head_dim=64, capacity=100, pages=0, dtype=BF16)
        self.expect(p, k_stride=(3 * 4 * 64, 4 * 64, 64), v_stride=(3 * 4 * 64, 64, 3 * 64))

    def test_append_to_pages(self):
        k = random(2, 3, 4, 64, dtype=torch.float16)
        (cache, v_cache), table = torch.zeros(2, 7, 3, 64, 64).to(FP8), torch.zeros(2, 5, dtype=torch.int32)
        lengths, f = torch.zeros(2, dtype=torch.int32), torch.ones(2, 3)
        attune.append(k, k, cache, v_cache, lengths, page_table=table, descale=(f, f))
        self.expect(
            self.received(params.Append), page_table=table, pages=7, page_size=64, max_pages=5, capacity=0, dtype=FP16
        )
        before = self.calls()
        with self.assertRaisesRegex(ValueError, "k_cache overlaps v_cache in memory"):
            attune.append(k, k, cache, cache, lengths, page_table=table, descale=(f, f), fallback=True)
        for changed in ({"descale": (f, f[:1])}, {"page_table": table.long()}, {"page_table": table[:1]}):
            with self.assertRaises(ValueError):
                attune.append(k, k, cache, v_cache, lengths, **{"page_table": table, "descale": (f, f), **changed})
        self.assertEqual(self.calls(), before)

    def test_named_arch(self):
        facts = mock.Mock(major=9, minor=0, multi_processor_count=132)
        with mock.patch.object(torch.cuda, "get_device_properties", return_value=facts):
            for named, want in {"": 90, "sm_80": 80, "sm_89": 89, "sm_90": 90, "sm_91": 90, "ampere": 90}.items():
                with mock.patch.dict("os.environ", {"ATTUNE_ARCH": named}):
                    self.assertEqual(_library.gpu(0), (want, 132), named)

    def test_quantize(self):
        q, k, v = random(2, 4, 5, 64), random(2, 2, 7, 64), random(2, 7, 2, 64).transpose(1, 2)
        y = [torch.empty(x.shape, dtype=FP8) for x in (q, k, v)]
        f = [torch.empty(x.shape[:2]) for x in (q, k, v)]
        mean = torch.empty(2, 2, 64)
        self.answer(0, workspace=64)
        self.assertTrue(_library.load().quantize(q, k, v, True, False, *y, *f, mean))
        p = self.received(params.Quantize)
        self.expect(
            p, q=q, k=k, v=v, y_q=y[0], y_k=y[1], y_v=y[2], descale_q=f[0], descale_k=f[1], descale_v=f[2], mean_k=mean
        )
        self.expect(p, batch=2, heads=4, kv_heads=2, queries=5, keys=7, head_dim=64, dtype=BF16, smooth_k=1, hadamard=0)
        self.expect(p, v_stride=(7 * 2 * 64, 64, 2 * 64), workspace=self.workspace, workspace_bytes=64)
        self.assertTrue(_library.load().quantize(q, None, None, False, True, y[0], None, None, f[0], None, None, None))
        self.expect(self.received(params.Quantize), k=None, v=None, y_k=None, mean_k=None, hadamard=1, kv_heads=0)
        self.answer(2, "head_dim is 64")
        with self.assertRaisesRegex(NotImplementedError, "head_dim is 64"):
            _library.load().quantize(q, None, None, False, True, y[0], None, None, f[0], None, None, None)

    def test_wrong_calls(self):
        module = _library.load()
        for function in (module.attend, module.append, module.quantize, module.explain):
            with self.assertRaises(TypeError):
                function(1)
        with self.assertRaises(ValueError):
            module.configure(torch.Tensor, torch.nn.Parameter, None, {}, (), 2)


class Workspaces(unittest.TestCase):
    """Which memory a call gets; _new is replaced, so that it is on a CPU."""

    def setUp(self):
        self.capturing = False
        saved = {
            name: getattr(_workspace, name)
            for name in ("_workspaces", "_new", "_is_capturing", "_is_pooled", "_capture")
        }
        self.addCleanup(lambda: [setattr(_workspace, name, value) for name, value in saved.items()])
        _workspace._workspaces = {}
        _workspace._new = lambda device, size: torch.zeros(size, dtype=torch.uint8)
        _workspace._is_capturing = lambda: self.capturing
        _workspace._is_pooled = lambda tensor: False
        _workspace._capture = lambda stream: self.capture
        self.capture = 7

    def test_one_for_each_stream(self):
        first = _workspace.take(0, 1, 100)
        self.assertEqual(first.numel(), 2 << 20)
        self.assertIs(_workspace.take(0, 1, 2 << 20), first)
        self.assertIsNot(_workspace.take(0, 2, 100), first)
        self.assertIsNot(_workspace.take(1, 1, 100), first)

    def test_growth(self):
        _workspace.take(0, 1, 8 << 20)
        grown = _workspace.take(0, 1, (8 << 20) + 1)
        self.assertEqual(grown.numel(), 10 << 20)
        self.assertIs(_workspace.take(0, 1, 5), grown)

    def test_capture(self):
        first = _workspace.take(0, 1, 100)
        self.capturing = True
        captured = _workspace.take(0, 1, 100)
        self.assertIsNot(captured, first)
        self.assertEqual(captured.numel(), 100)
        self.assertIs(_workspace.take(0, 1, 50), captured)
        self.assertIsNot(_workspace.take(0, 2, 50), captured)
        self.assertEqual(_workspace.take(0, 1, 200).numel(), 200)
        self.capture = 8
        self.assertEqual(_workspace.take(0, 1, 50).numel(), 50)
        self.capture = None  # the driver does not say
        self.assertIsNot(_workspace.take(0, 1, 50), _workspace.take(0, 1, 50))
        self.capturing = False
        self.assertIs(_workspace.take(0, 1, 100), first)
        self.assertEqual(_workspace._thread.captured, {})

    def test_capture_of_compiled_code(self):
        self.capturing = True
        with _workspace.temporary():
            self.assertIsNot(_workspace.take(0, 1, 50), _workspace.take(0, 1, 50))
        self.assertEqual(_workspace._thread.captured, {})
        self.assertIs(_workspace.take(0, 1, 50), _workspace.take(0, 1, 50))
        self.capturing = False
        _workspace.take(0, 1, 50)

    def test_number_of_a_capture(self):
        def info(stream, status, number, *rest):
            status._obj.value, number._obj.value = 1, stream.value + 4
            return 0

        before = _workspace._capture_info
        self.addCleanup(setattr, _workspace, "_capture_info", before)
        for function, want in ((info, 9), (None, None), (lambda *_: 1, None), (lambda *_: 0, None)):
            _workspace._capture_info = lambda: function
            self.assertEqual(Workspaces.capture_of(5), want)

    def test_private_pool(self):
        _workspace._is_pooled = lambda tensor: True
        first = _workspace.take(0, 1, 100)
        self.assertIsNot(_workspace.take(0, 1, 100), first)
        self.assertEqual(_workspace._workspaces, {})

    def test_pools_are_found(self):
        tensor = torch.zeros(8)
        segment = {"address": tensor.data_ptr(), "total_size": 32, "segment_pool_id": (0, 0)}
        is_pooled, before = Workspaces.pooled, torch.cuda.memory_snapshot
        self.addCleanup(setattr, torch.cuda, "memory_snapshot", before)
        for segments, want in (([segment], False), ([{**segment, "segment_pool_id": (0, 3)}], True), ([], False)):
            torch.cuda.memory_snapshot = lambda: segments
            self.assertEqual(is_pooled(tensor), want)

    pooled = staticmethod(_workspace._is_pooled)
    capture_of = staticmethod(_workspace._capture)


if __name__ == "__main__":
    unittest.main()
