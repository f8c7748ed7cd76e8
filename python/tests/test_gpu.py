"""Tests on a Hopper GPU with the library of the installed wheel."""

import itertools
import threading
import time
import unittest

import package
import torch
import torch.nn.functional as functional

import attune
from attune import _quantize, _reference, _workspace

FP8 = torch.float8_e4m3fn


def reason():
    if not torch.cuda.is_available():
        return "no GPU"
    if torch.cuda.get_device_capability()[0] != 9:
        return f"{torch.cuda.get_device_name()} is no Hopper GPU"
    return "the package has a double of the library" if package.double() else None


def randn(*shape, dtype=torch.bfloat16, seed=1):
    return torch.randn(shape, generator=torch.Generator("cuda").manual_seed(seed), device="cuda", dtype=dtype)


def tensors(batch, heads, kv_heads, queries, keys, head_dim, dtype=torch.bfloat16):
    shapes = ((batch, heads, queries, head_dim), (batch, kv_heads, keys, head_dim), (batch, kv_heads, keys, head_dim))
    return [randn(*shape, dtype=dtype, seed=i) for i, shape in enumerate(shapes)]


def same(got, want):
    torch.testing.assert_close(got, want, atol=0, rtol=0)


@unittest.skipIf(reason(), reason())
class OnGPU(unittest.TestCase):
    # What E4M3 costs on normal inputs: the documented tolerance.
    tolerance = {"atol": 0.06, "rtol": 0.06}

    def near(self, got, want):
        error = (got.float() - want.float()).abs()
        allowed = self.tolerance["atol"] + self.tolerance["rtol"] * want.abs()
        self.assertLess((error > allowed).float().mean().item(), 0.01)
        self.assertLess(error.mean().item(), 0.02)

    def compare(self, got, q, k, v, causal=False, scale=None, window=(-1, -1), sinks=None):
        self.near(got, _reference.explicit(q, k, v, causal, scale, *window, sinks)[0])


class Attention(OnGPU):
    def test_shapes(self):
        for shape in (
            (1, 8, 8, 512, 512, 64),
            (2, 12, 12, 197, 197, 64),
            (1, 32, 8, 300, 300, 128),
            (1, 4, 4, 256, 256, 256),
            (2, 3, 3, 33, 500, 64),
        ):
            for causal in (False, True):
                for dtype in (torch.float16, torch.bfloat16):
                    q, k, v = tensors(*shape, dtype=dtype)
                    with self.subTest(shape=shape, causal=causal, dtype=dtype):
                        o = attune.sdpa(q, k, v, causal=causal)
                        self.assertEqual((o.shape, o.dtype), (q.shape, dtype))
                        self.compare(o, q, k, v, causal)

    def test_scale(self):
        for dim in (64, 128, 256):
            q, k, v = tensors(1, 8, 8, 300, 300, dim)
            self.compare(attune.sdpa(q, k, v, scale=0.2), q, k, v, scale=0.2)
            self.near(attune.sdpa(q, k, v, scale=0.0), v.float().mean(2, keepdim=True).expand(q.shape))

    def test_strides(self):
        qkv = randn(2, 256, 3, 8, 64, dtype=torch.float16)
        q, k, v = (qkv[:, :, i].transpose(1, 2) for i in range(3))
        o = attune.sdpa(q, k, v)
        same(o, attune.sdpa(q.contiguous(), k.contiguous(), v.contiguous()))
        odd = randn(1, 2, 300, 72)[..., 4:68]
        self.compare(attune.sdpa(odd, odd, odd), odd, odd, odd)
        k = randn(2, 1, 256, 64, dtype=torch.float16).expand(2, 8, 256, 64)
        self.compare(attune.sdpa(q, k, k), q, k, k)

    def test_strided_output(self):
        q, k, v = tensors(2, 8, 8, 256, 256, 64, torch.float16)
        out = torch.zeros(2, 256, 8, 64, dtype=q.dtype, device="cuda").transpose(1, 2)
        attune.sdpa(q, k, v, out=out)
        self.compare(out, q, k, v)

    def test_order_of_output(self):
        """O has the dimension order of q where the form takes that, and in a compiled graph."""
        for dim in (64, 128, 256):
            q, k, v = tensors(2, 8, 8, 256, 256, dim)
            rows_first = [x.transpose(1, 2).contiguous().transpose(1, 2) for x in (q, k, v)]
            o, want = attune.sdpa(*rows_first), attune.sdpa(q, k, v)
            self.assertTrue(want.is_contiguous())
            self.assertEqual(o.stride(), rows_first[0].stride())
            same(o, want)
            reshaped = torch.compile(lambda q, k, v: attune.sdpa(q, k, v).transpose(1, 2).reshape(2, 256, -1), fullgraph=True)
            same(reshaped(*rows_first), want.transpose(1, 2).reshape(2, 256, -1))

    def test_strided_e4m3(self):
        q, k, v, descale = attune.quantize(*tensors(2, 8, 8, 256, 256, 64))
        strided = [x.view(torch.uint8).transpose(1, 2).contiguous().transpose(1, 2).view(FP8) for x in (q, k, v)]
        self.near(attune.sdpa(*strided, descale=descale), attune.sdpa(q, k, v, descale=descale))

    def test_quantised_inside(self):
        """FP16 and BF16 inputs give what their E4M3 tensors give; by the same kernel with options."""
        for dtype in (torch.float16, torch.bfloat16):
            q, k, v = tensors(2, 10, 10, 1024, 1024, 64, dtype)
            q8, k8, v8, descale = attune.quantize(q, k, v, hadamard=True)
            want = attune.sdpa(q8, k8, v8, descale=descale, out=torch.empty_like(q))
            same(attune.sdpa(q, k, v, hadamard=True), want)
            self.compare(attune.sdpa(q, k, v), q, k, v)

    def test_short(self):
        """With few keys nothing is quantised: the error is that of 16 bits."""
        sizes = ((3, 197, 197, 64), (3, 512, 512, 64), (3, 600, 33, 64), (8, 2048, 2048, 64), (16, 300, 400, 128),
                 (99, 190, 190, 64), (8, 1500, 1500, 128), (64, 40, 70, 128), (16, 300, 400, 256), (64, 40, 70, 256))  # fmt: skip
        for (batch, queries, keys, dim), dtype in itertools.product(sizes, (torch.float16, torch.bfloat16)):
            with self.subTest(queries=queries, keys=keys, dim=dim, dtype=dtype):
                q, k, v = tensors(batch, 8, 2, queries, keys, dim, dtype)
                o = attune.sdpa(q, k, v, causal=True)
                want, want_lse = _reference.explicit(q, k, v, True, None, -1, -1, None)
                self.assertLess(((o.float() - want).norm() / want.norm()).item(), 0.006)
                rows_first = [x.transpose(1, 2).contiguous().transpose(1, 2) for x in (q, k, v)]
                same(attune.sdpa(*rows_first, causal=True), o)
                o, lse = attune.sdpa(q, k, v, causal=True, return_lse=True)
                self.assertLess(((o.float() - want).norm() / want.norm()).item(), 0.004)
                seen = want_lse > -torch.inf
                self.assertTrue((lse[~seen] == -torch.inf).all())
                self.assertLess((lse - want_lse)[seen].abs().max().item(), 0.01)

    def test_precision(self):
        """The error is that of the class which attune.explain states, whatever the selection prefers."""
        for queries, keys, dim in ((300, 400, 64), (100, 9000, 128), (4000, 4000, 256)):
            q, k, v = tensors(1, 8, 2, queries, keys, dim)
            want = _reference.explicit(q, k, v, False, None, -1, -1, None)[0]
            for precision, low, high in (("16", 0, 0.006), ("fp8", 0.02, 0.08)):
                with self.subTest(queries=queries, keys=keys, dim=dim, precision=precision):
                    o = attune.sdpa(q, k, v, precision=precision)
                    error = ((o.float() - want).norm() / want.norm()).item()
                    self.assertTrue(low <= error <= high, error)
                    self.assertEqual(attune.explain(q, k, v, precision=precision).precision, precision)
        want = _reference.explicit(q, k, v, False, None, 9, 0, None)[0]
        o = attune.sdpa(q, k, v, window_size=(9, 0), precision="16")
        self.assertLess(((o.float() - want).norm() / want.norm()).item(), 0.006)

    def test_lse(self):
        q, k, v = tensors(1, 8, 2, 300, 400, 128)
        for options in ({}, {"smooth_k": True}, {"hadamard": True}, {"smooth_k": True, "hadamard": True}):
            with self.subTest(options=options):
                o, lse = attune.sdpa(q, k + 3, v, causal=True, return_lse=True, **options)
                want, want_lse = _reference.explicit(q, k + 3, v, True, None, -1, -1, None)
                self.assertEqual((lse.shape, lse.dtype), ((1, 8, 300), torch.float32))
                self.assertLess((lse - want_lse).abs().max().item(), 1.0)
                if options:
                    self.near(o, want)

    def test_options(self):
        q, k, v = tensors(1, 4, 4, 1100, 1100, 64)  # fewer keys are not quantised
        k = k + 8 * randn(1, 4, 1, 64, seed=9)
        want = _reference.explicit(q, k, v, False, None, -1, -1, None)[0]
        error = lambda **options: ((attune.sdpa(q, k, v, **options).float() - want).norm() / want.norm()).item()
        self.assertLess(error(smooth_k=True), 0.7 * error())
        self.assertLess(error(smooth_k=True, hadamard=True), 0.7 * error())

    def test_window(self):
        q, k, v = tensors(2, 8, 2, 300, 400, 64)
        for causal, window in ((True, (100, 0)), (False, (64, 32)), (True, (16, -1))):
            with self.subTest(causal=causal, window=window):
                o = attune.sdpa(q, k, v, causal=causal, window_size=window)
                self.compare(o, q, k, v, causal, window=window)

    def test_sinks(self):
        q, k, v = tensors(2, 8, 2, 300, 400, 64)
        sinks = torch.linspace(-1, 6, 8, device="cuda")
        self.compare(attune.sdpa(q, k, v, causal=True, sinks=sinks), q, k, v, True, sinks=sinks)

    def test_softcap(self):
        """By prefill16, which quantises nothing; a decode step too."""
        for head_dim in (64, 128, 256):
            for dtype in (torch.float16, torch.bfloat16):
                for queries in (1, 300):
                    q, k, v = tensors(2, 8, 2, queries, 400, head_dim, dtype=dtype)
                    with self.subTest(head_dim=head_dim, dtype=dtype, queries=queries):
                        o = attune.sdpa(8 * q, k, v, causal=True, softcap=5.0)
                        want, _ = _reference.explicit(8 * q, k, v, True, None, -1, -1, None, softcap=5.0)
                        error = (o - want).square().mean().sqrt() / want.square().mean().sqrt()
                        self.assertLess(error.item(), 0.01)

    def test_other_head_dims(self):
        """By prefill16 in the form with more columns, from a packed QKV tensor whose other heads are NaN."""
        for head_dim, queries in itertools.product((8, 40, 72, 80, 96, 112, 160, 248), (1, 300)):
            qkv = randn(2, 300, 3, 4, head_dim)
            q, k, v = (qkv[:, :, i, :2].transpose(1, 2) for i in range(3))
            qkv[:, :, :, 2:] = torch.nan
            q = q[:, :, -queries:]
            with self.subTest(head_dim=head_dim, queries=queries):
                o, lse = attune.sdpa(q, k, v, causal=True, return_lse=True)
                want, want_lse = _reference.explicit(q, k, v, True, None, -1, -1, None)
                error = (o - want).square().mean().sqrt() / want.square().mean().sqrt()
                self.assertLess(error.item(), 0.01)
                self.assertLess((lse - want_lse).abs().max().item(), 0.01)

    def test_bias(self):
        """ALiBi slopes, and trees of tokens over padded caches, by prefill16."""
        slopes = torch.linspace(0, 0.3, 16, device="cuda").view(2, 8)
        words = torch.randint(-(2**63), 2**63 - 1, (2, 40), generator=torch.Generator().manual_seed(5)).cuda()
        lengths = torch.tensor([400, 33], dtype=torch.int32, device="cuda")
        for head_dim in (64, 128, 256):
            q, k, v = tensors(2, 8, 2, 40, 400, head_dim, dtype=torch.bfloat16)
            for options in ({"alibi_slopes": slopes}, {"tree_mask": words}, {"alibi_slopes": slopes, "tree_mask": words}):
                with self.subTest(head_dim=head_dim, options=list(options)):
                    o = attune.decode(q, k, v, lengths, causal=False, **options)
                    want, _ = _reference.explicit(q, k, v, False, None, -1, -1, None, lengths, **options)
                    error = (o - want).square().mean().sqrt() / want.square().mean().sqrt()
                    self.assertLess(error.item(), 0.01)

    def test_packed(self):
        q, k, v = randn(700, 8, 64, seed=1), randn(900, 2, 64, seed=2), randn(900, 2, 64, seed=3)
        cu_seqlens_q, cu_seqlens_k = (
            torch.tensor(x, dtype=torch.int32, device="cuda") for x in ([0, 5, 300, 700], [0, 105, 400, 900])
        )
        o, lse = attune.sdpa_varlen(q, k, v, cu_seqlens_q, cu_seqlens_k, 400, 500, causal=True, return_lse=True)
        want, want_lse = attune.sdpa_varlen(
            *(x.cpu() for x in (q, k, v, cu_seqlens_q, cu_seqlens_k)),
            400,
            500,
            causal=True,
            return_lse=True,
            fallback=True,
        )
        self.near(o.cpu(), want)
        self.assertLess((lse.cpu() - want_lse).abs().max().item(), 0.5)

    def test_empty(self):
        q, k, v = tensors(2, 4, 4, 16, 16, 64)
        self.assertEqual(attune.sdpa(q[:0], k[:0], v[:0]).shape, (0, 4, 16, 64))
        o, lse = attune.sdpa(q, k[:, :, :0], v[:, :, :0], return_lse=True)
        self.assertEqual((o.abs().max().item(), lse.max().item()), (0, -float("inf")))

    def test_patch(self):
        q, k, v = tensors(1, 8, 8, 512, 512, 64, torch.float16)
        with attune.patch() as calls:
            o = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
            functional.scaled_dot_product_attention(q[..., :40], k[..., :40], v[..., :40])
        same(o, attune.sdpa(q, k, v, causal=True))
        self.assertEqual((calls.taken, calls.fallback), (1, 1))


class Quantise(OnGPU):
    def test_same_as_pytorch(self):
        q, k, v = (x.transpose(1, 2).contiguous().transpose(1, 2) for x in tensors(2, 6, 3, 333, 512, 128))
        got, want = _quantize._launch(q, k, v, False, False), _quantize.by_torch(q, k, v, False, False)
        for x, y in zip(got, want):
            same(x.float(), y.float())
        y, descale = attune.quantize(q)
        same(y.float(), want[0].float())
        same(descale, want[1])

    def test_options(self):
        q, k, v = tensors(2, 6, 3, 333, 512, 128, torch.float16)
        for smooth_k, hadamard in ((True, False), (False, True), (True, True)):
            got, want = (
                _quantize._launch(q, k + 2, v, smooth_k, hadamard),
                _quantize.by_torch(q, k + 2, v, smooth_k, hadamard),
            )
            for x, y in zip(got, want):
                different = (x.float() != y.float()).float().mean().item()
                self.assertTrue(different < 1e-3 or torch.allclose(x.float(), y.float(), atol=1e-5), different)

    def test_float32(self):
        y, descale = attune.quantize(randn(1, 2, 30, 64, dtype=torch.float32))
        self.assertEqual((y.dtype, y.device.type, descale.shape), (FP8, "cuda", (1, 2)))


def pages(cache, page_size):
    """The cache in pages of a random order, and the page table."""
    batch, kv_heads, capacity, _ = cache.shape
    each = capacity // page_size
    order = torch.randperm(batch * each, generator=torch.Generator().manual_seed(6)).cuda()
    rows = cache.view(torch.uint8).view(batch, kv_heads, each, page_size, -1).transpose(1, 2).flatten(0, 1)
    paged = torch.empty_like(rows)
    paged[order] = rows
    return paged.view(cache.dtype), order.view(batch, each).int()


class Cache(OnGPU):
    def problem(self, batch=3, heads=32, kv_heads=8, queries=1, head_dim=128, capacity=1024, dtype=torch.bfloat16):
        q, k, v = tensors(batch, heads, kv_heads, queries, capacity, head_dim, dtype)
        (k8, dk), (v8, dv) = attune.quantize(k), attune.quantize(v)
        lengths = torch.tensor([1, 700, capacity], dtype=torch.int32, device="cuda")[:batch]
        return q, k8, v8, lengths, (dk, dv)

    def want(self, q, k, v, lengths, descale, window=(-1, -1), sinks=None):
        k, v = (x.float() * d[..., None, None] for x, d in zip((k, v), descale))
        return _reference.explicit(q, k, v, True, None, *window, sinks, lengths)

    def test_decode(self):
        for queries, heads, head_dim, dtype in (
            (1, 32, 128, torch.bfloat16),
            (4, 8, 64, torch.float16),
            (2, 64, 128, torch.bfloat16),
            (1, 8, 256, torch.float16),
        ):
            q, k, v, lengths, descale = self.problem(queries=queries, heads=heads, head_dim=head_dim, dtype=dtype)
            with self.subTest(queries=queries, heads=heads, head_dim=head_dim):
                want, want_lse = self.want(q, k, v, lengths, descale)
                o, lse = attune.decode(q, k, v, lengths, descale=descale, return_lse=True)
                self.assertEqual((o.shape, o.dtype), (q.shape, dtype))
                self.near(o, want)
                seen = want_lse > -torch.inf
                self.assertLess((lse - want_lse)[seen].abs().max().item(), 0.3)
                for size in (16, 32, 64, 128, 256):
                    (k_pages, table), (v_pages, _) = pages(k, size), pages(v, size)
                    same(attune.decode(q, k_pages, v_pages, lengths, page_table=table, descale=descale), o)

    def test_window_and_sinks(self):
        q, k, v, lengths, descale = self.problem()
        sinks = torch.linspace(-1, 6, 32, device="cuda")
        o = attune.decode(q, k, v, lengths, descale=descale, window_size=(128, 0), sinks=sinks)
        self.near(o, self.want(q, k, v, lengths, descale, (128, 0), sinks)[0])

    def test_many_queries(self):
        """More rows than the decode kernel has."""
        q, k, v, lengths, descale = self.problem(queries=16)
        self.near(attune.decode(q, k, v, lengths, descale=descale), self.want(q, k, v, lengths, descale)[0])

    def test_prefill(self):
        """Chunks and decode steps over caches, as the fallback computes them."""
        _, k, v, lengths, descale = self.problem(capacity=1024)
        cu = torch.tensor([0, 1, 301, 340], dtype=torch.int32, device="cuda")
        q = randn(340, 32, 128)
        for options in ({}, {"causal": False}, {"window_size": (128, 0)}):
            with self.subTest(**options):
                o, lse = attune.prefill(q, k, v, lengths, cu, 300, descale=descale, return_lse=True, **options)
                want, want_lse = attune.prefill(
                    *(x.cpu() for x in (q, k, v, lengths, cu)), 300, descale=[x.cpu() for x in descale],
                    return_lse=True, fallback=True, **options,
                )  # fmt: skip
                self.near(o.cpu(), want)
                self.assertLess((lse.cpu() - want_lse).abs().max().item(), 0.5)
                for size in (16, 64, 256):
                    (k_pages, table), (v_pages, _) = pages(k, size), pages(v, size)
                    paged = attune.prefill(
                        q, k_pages, v_pages, lengths, cu, 300, page_table=table, descale=descale, **options
                    )
                    same(paged, o)

    def test_merge(self):
        """Both halves of the keys give what all do."""
        q, k, v = tensors(2, 8, 2, 200, 600, 128)
        halves = [attune.sdpa(q, k[:, :, x], v[:, :, x], return_lse=True) for x in (slice(0, 300), slice(300, 600))]
        o, lse = attune.merge(*halves[0], *halves[1])
        want, want_lse = attune.sdpa(q, k, v, return_lse=True, precision="16")
        torch.testing.assert_close(o, want, atol=0.01, rtol=0.02)
        torch.testing.assert_close(lse, want_lse, atol=1e-2, rtol=1e-2)

    def test_cache_in_16_bits(self):
        """The error is that of O and of P, a fraction of what E4M3 costs."""
        sinks = torch.linspace(-1, 6, 32, device="cuda")
        for queries, head_dim, dtype in (
            (1, 128, torch.bfloat16),
            (4, 64, torch.float16),
            (16, 128, torch.float16),
            (3, 256, torch.bfloat16),
        ):
            q, k, v = tensors(3, 32, 8, queries, 1024, head_dim, dtype)
            lengths = torch.tensor([queries, 700, 1024], dtype=torch.int32, device="cuda")
            with self.subTest(queries=queries, head_dim=head_dim, dtype=dtype):
                want, want_lse = _reference.explicit(q, k, v, True, None, -1, -1, None, lengths)
                o, lse = attune.decode(q, k, v, lengths, return_lse=True)
                torch.testing.assert_close(o.float(), want, atol=0.01, rtol=0.01)
                torch.testing.assert_close(lse, want_lse, atol=1e-3, rtol=1e-3)
                for size in (16, 64, 256):
                    (k_pages, table), (v_pages, _) = pages(k, size), pages(v, size)
                    same(attune.decode(q, k_pages, v_pages, lengths, page_table=table), o)
                o = attune.decode(q, k, v, lengths, window_size=(128, 0), sinks=sinks)
                want = _reference.explicit(q, k, v, True, None, 128, 0, sinks, lengths)[0]
                torch.testing.assert_close(o.float(), want, atol=0.01, rtol=0.01)
                rows_first = q.transpose(1, 2).contiguous().transpose(1, 2)
                compiled = torch.compile(lambda q, k, v, n: attune.decode(q, k, v, n), fullgraph=True, backend="aot_eager")
                same(compiled(rows_first, k, v, lengths), attune.decode(q, k, v, lengths))

    def test_sdpa_of_few_queries(self):
        """A decode step of a model in 16 bits takes K and V as they are."""
        q, k, v = tensors(2, 16, 4, 2, 1000, 128)
        want = _reference.explicit(q, k, v, False, None, -1, -1, None)[0]
        torch.testing.assert_close(attune.sdpa(q, k, v).float(), want, atol=0.01, rtol=0.01)

    def test_append(self):
        for dtype in (torch.float16, torch.bfloat16):
            _, k, v, _, descale = self.problem(capacity=256)
            rows = randn(3, 5, 8, 128, dtype=dtype).transpose(1, 2)
            lengths = torch.tensor([0, 62, 253], dtype=torch.int32, device="cuda")
            for size in (0, 16, 64):
                caches, table = [k.clone(), v.clone()], None
                if size > 0:
                    (k_pages, table), (v_pages, _) = pages(k, size), pages(v, size)
                    caches = [k_pages, v_pages]
                wanted = [x.clone() for x in caches]
                attune.append(rows, rows * 2, *caches, lengths, page_table=table, descale=descale)
                _reference.append(rows, rows * 2, *wanted, lengths, table, *descale)
                for x, y in zip(caches, wanted):
                    same(x.view(torch.uint8), y.view(torch.uint8))

    def test_loop_in_a_graph(self):
        """Tokens that are appended and attended to by replays are those of direct calls."""
        _, k, v, lengths, descale = self.problem()
        lengths = lengths.clamp(max=900)
        new = [randn(3, heads, 1, 128, seed=i) for i, heads in enumerate((32, 8, 8))]

        def step(caches, lengths):
            attune.append(*new[1:], *caches, lengths, descale=descale)
            lengths += 1
            return attune.decode(new[0], *caches, lengths, descale=descale)

        caches, wanted, n, m = [k.clone(), v.clone()], [k.clone(), v.clone()], lengths.clone(), lengths.clone()
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            step(caches, n)
        torch.cuda.current_stream().wait_stream(stream)
        want = step(wanted, m)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            o = step(caches, n)
        for i in range(5):
            new[0].copy_(randn(3, 32, 1, 128, seed=20 + i))
            graph.replay()
            want = step(wanted, m)
            same(o, want)


class Streams(OnGPU):
    def test_stream_and_graph(self):
        q, k, v = tensors(1, 8, 8, 512, 512, 64, torch.float16)
        want = attune.sdpa(q, k, v)
        out = torch.zeros_like(q)
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            attune.sdpa(q, k, v, out=out)
        torch.cuda.current_stream().wait_stream(stream)
        same(out, want)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            first = attune.sdpa(q, k, v)
            captured = attune.sdpa(first, k, v)
        want = attune.sdpa(want, k, v)
        for _ in range(3):
            captured.zero_()
            graph.replay()
            same(captured, want)

    def test_first_call_in_a_capture(self):
        """A new stream has no workspace yet, and its form may not be loaded."""
        q, k, v = tensors(3, 7, 7, 77, 777, 64, torch.float16)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            captured = attune.sdpa(q, k, v)
        graph.replay()
        same(captured, attune.sdpa(q, k, v))

    def test_counters_stay_zero(self):
        q, k, v = tensors(2, 8, 2, 512, 512, 128)
        for _ in range(3):
            attune.sdpa(q, k, v)
            attune.decode(
                q[:, :, :1],
                k.to(FP8),
                v.to(FP8),
                torch.full((2,), 512, dtype=torch.int32, device="cuda"),
                descale=(torch.ones(2, 2, device="cuda"),) * 2,
            )
        torch.cuda.synchronize()
        self.assertTrue(_workspace._workspaces)
        for _, workspace in _workspace._workspaces.values():
            self.assertEqual(workspace[:65536].max().item(), 0)

    def test_growth(self):
        """A larger workspace replaces one that the stream has not passed yet."""
        small, large = tensors(1, 2, 2, 64, 64, 256), tensors(4, 16, 16, 2048, 2048, 128)
        with torch.cuda.stream(torch.cuda.Stream()):
            torch.cuda._sleep(20_000_000)
            results = [attune.sdpa(*small), attune.sdpa(*large), attune.sdpa(*small)]
        torch.cuda.synchronize()
        same(results[0], results[2])
        self.compare(results[1][:1, :1], *(x[:1, :1] for x in large))

    def test_streams_beside_each_other(self):
        q, k, v = tensors(2, 8, 8, 4096, 4096, 64)  # with a workspace
        want = attune.sdpa(q, k, v)
        torch.cuda.synchronize()
        streams, results = [torch.cuda.Stream() for _ in range(4)], []
        for _ in range(10):
            for stream in streams:
                with torch.cuda.stream(stream):
                    results.append(attune.sdpa(q, k, v))
        torch.cuda.synchronize()
        for o in results:
            same(o, want)

    def test_new_thread(self):
        """A thread whose first call of CUDA is attune's has no context yet."""
        q, k, v, descale = attune.quantize(*tensors(1, 2, 2, 64, 64, 64))
        out, problems = torch.empty(q.shape, dtype=torch.float16, device="cuda"), []

        def call():
            try:
                attune.sdpa(q, k, v, descale=descale, out=out)
            except Exception as problem:  # shown by the test
                problems.append(problem)

        thread = threading.Thread(target=call)
        thread.start()
        thread.join()
        self.assertEqual(problems, [])
        same(out, attune.sdpa(q, k, v, descale=descale))

    @unittest.skipIf(torch.cuda.device_count() < 2, "one GPU")
    def test_other_device(self):
        q, k, v = (x.to("cuda:1") for x in tensors(1, 8, 8, 512, 512, 64))
        self.assertEqual(attune.sdpa(q, k, v).device, q.device)


class Operators(OnGPU):
    def test_compile(self):
        q, k, v = tensors(1, 8, 8, 512, 512, 64, torch.float16)
        function = lambda q, k, v: attune.sdpa(q * 2, k, v, causal=True) + 1
        for mode in (None, "reduce-overhead"):
            compiled = torch.compile(function, fullgraph=True, mode=mode)
            for _ in range(4):
                same(compiled(q, k, v).clone(), function(q, k, v))

    def test_compile_fallback(self):
        q, k, v = tensors(1, 8, 8, 100, 100, 40, torch.float16)
        compiled = torch.compile(lambda q, k, v: attune.sdpa(q, k, v, fallback=True) + 1, fullgraph=True)
        torch.testing.assert_close(
            compiled(q, k, v), functional.scaled_dot_product_attention(q, k, v) + 1, atol=1e-2, rtol=1e-2
        )

    def test_schemas(self):
        q, k, v = tensors(1, 8, 8, 512, 512, 64)
        q8, k8, v8, descale = attune.quantize(q, k, v)
        # PyTorch cannot compare E4M3 tensors, which test_schema does with all arguments.
        checks, of_e4m3 = ("test_schema", "test_faketensor"), ("test_faketensor",)
        ops, lengths = torch.ops.attune, torch.tensor([9], dtype=torch.int32, device="cuda")
        torch.library.opcheck(
            ops.sdpa.default, (q8, k8, v8, *descale, True, -1.0, -1, -1, None, False), test_utils=of_e4m3
        )
        torch.library.opcheck(
            ops.sdpa.default, (q, k, v, None, None, None, True, -1.0, -1, -1, None, True), test_utils=checks
        )
        torch.library.opcheck(
            ops.sdpa.default,
            (q[:, :, :1], k, v, None, None, None, True, -1.0, -1, -1, None, True, False, False, None, None, 0, 0, lengths),
            test_utils=checks,
        )
        torch.library.opcheck(
            ops.sdpa_out.default,
            (q, k, v, None, None, None, True, -1.0, -1, -1, None, False, torch.empty_like(q)),
            test_utils=checks,
        )
        torch.library.opcheck(ops.quantize.default, (q, k, v, True, False), test_utils=of_e4m3)
        torch.library.opcheck(
            ops.append.default,
            (k[:, :, :1], v[:, :, :1], k8, v8, lengths, None, *descale[1:], False),
            test_utils=of_e4m3,
        )


class Overhead(OnGPU):
    def test_cpu_time(self):
        """The CPU time of calls, printed; the GPU is not waited for."""
        q, k, v = tensors(1, 8, 8, 128, 128, 64)
        q8, k8, v8, descale = attune.quantize(q, k, v)
        half = torch.empty(q.shape, dtype=torch.float16, device="cuda")
        lengths = torch.full((1,), 128, dtype=torch.int32, device="cuda")
        one, out, same = q[:, :, :1].contiguous(), q[:, :, :1].clone(), torch.empty_like(q)
        new_k, new_v = k[:, :, :1], v[:, :, :1]  # a slice takes 2 us itself
        calls = {
            "sdpa, E4M3 with out": lambda: attune.sdpa(q8, k8, v8, descale=descale, out=half),
            "sdpa, BF16 with out": lambda: attune.sdpa(q, k, v, out=same),
            "sdpa, BF16": lambda: attune.sdpa(q, k, v),
            "decode with out": lambda: attune.decode(one, k8, v8, lengths, descale=descale[1:], out=out),
            "append": lambda: attune.append(new_k, new_v, k8, v8, lengths, descale=descale[1:]),
            "PyTorch's function, BF16": lambda: functional.scaled_dot_product_attention(q, k, v),
        }
        print()
        for name, call in calls.items():
            best = float("inf")
            for _ in range(20):
                torch.cuda.synchronize()
                start = time.perf_counter()
                for _ in range(50):
                    call()
                best = min(best, (time.perf_counter() - start) / 50)
            print(f"CPU time of {name}: {1e6 * best:.1f} us")


if __name__ == "__main__":
    unittest.main()
