"""Tests without a GPU: arguments, the operators under fake tensors, the fallback."""

import unittest
import warnings

import package  # before attune
import torch
import torch.nn.functional as functional
from torch._subclasses.fake_tensor import FakeTensorMode

import attune
from attune import _library, _quantize, _reference

FP8 = torch.float8_e4m3fn


def tensors(batch=2, heads=4, kv_heads=2, queries=5, keys=7, head_dim=64, dtype=torch.bfloat16):
    random = torch.Generator().manual_seed(1)
    shapes = ((batch, heads, queries, head_dim), (batch, kv_heads, keys, head_dim), (batch, kv_heads, keys, head_dim))
    return [torch.randn(s, generator=random).to(dtype) for s in shapes]


class Arguments(unittest.TestCase):
    def refused(self, text, *args, error=ValueError, **options):
        with self.assertRaisesRegex(error, text):
            attune.sdpa(*args, **options)

    def test_tensors(self):
        q, k, v = tensors()
        self.refused("q is a list, not a tensor", [1], k, v, error=TypeError)
        self.refused("k has 3 dimensions, not 4", q, k[0], v)
        self.refused("q has the layout torch.sparse_coo", q.to_sparse(), k, v, error=TypeError)
        self.refused("q is torch.float32, not float16", q.float(), k, v, error=TypeError)
        self.refused("v is torch.float16, and q is torch.bfloat16", q, k, v.half(), error=TypeError)
        self.refused("k is on meta, and q is on cpu", q, k.to("meta"), v)
        self.refused("batch and head_dim differ", q, k[:1], v[:1])
        self.refused(r"k is \[2, 2, 7, 64\], and v is \[2, 2, 6, 64\]", q, k, v[:, :, 1:])
        self.refused("q has 4 heads, which the 3 of k do not divide", q, *(torch.cat([x, x[:, :1]], 1) for x in (k, v)))

    def test_options(self):
        q, k, v = tensors()
        self.refused("window_size is", q, k, v, window_size=(-2, 0))
        self.refused(r"window_size is 3: it is \(left, right\)", q, k, v, window_size=3)
        self.refused(r"window_size is \(1, 2, 3\)", q, k, v, window_size=(1, 2, 3))
        self.refused("window_size is .*a number of keys", q, k, v, window_size=(1.5, 0))
        self.refused(r"sinks is torch.float32 \[3\], not float32 \[4\]", q, k, v, sinks=torch.zeros(3))
        self.refused("sinks is torch.float16", q, k, v, sinks=torch.zeros(4).half())
        self.refused("sinks is a list", q, k, v, sinks=[0, 0, 0, 0], error=TypeError)
        self.refused("sinks is on meta", q, k, v, sinks=torch.zeros(4, device="meta"))
        self.refused("scale is a str", q, k, v, scale="1", error=TypeError)
        self.refused("scale is nan", q, k, v, scale=float("nan"))
        self.refused("scale is -1", q, k, v, scale=-1)
        self.refused("descale is given, and q is torch.bfloat16", q, k, v, descale=(1, 2, 3))
        self.refused("out is .* on cpu, and q is", q, k, v, out=k)
        self.refused("out is torch.float32", q, k, v, out=q.float(), error=TypeError)
        self.refused("out is a list", q, k, v, out=[], error=TypeError)
        self.refused(
            "out has strides .*rows must be contiguous",
            q,
            k,
            v,
            out=torch.empty(2, 4, 64, 5, dtype=q.dtype).transpose(2, 3),
        )
        self.refused(
            "out has strides .*not overlap", q, k, v, out=torch.empty(2, 1, 5, 64, dtype=q.dtype).expand(q.shape)
        )
        self.refused("hadamard is set, and head_dim is 48", *(x[..., :48] for x in (q, k, v)), hadamard=True)

    def test_factors(self):
        q, k, v = (x.to(torch.float8_e4m3fn) for x in tensors())
        ones = lambda heads: torch.ones(2, heads)
        self.refused("descale is missing", q, k, v)
        self.refused("descale has 2 tensors, not 3", q, k, v, descale=(ones(4), ones(2)))
        self.refused("descale is a Tensor", q, k, v, descale=ones(4), error=TypeError)
        self.refused("descale of v is a int", q, k, v, descale=(ones(4), ones(2), 1), error=TypeError)
        self.refused("descale of q is torch.float16", q, k, v, descale=(ones(4).half(), ones(2), ones(2)))
        self.refused("descale of q is on meta", q, k, v, descale=(ones(4).to("meta"), ones(2), ones(2)))
        descale = (ones(4), ones(2), ones(2))
        self.refused("smooth_k is set, and q is torch.float8_e4m3fn", q, k, v, descale=descale, smooth_k=True)
        self.refused("hadamard is set, and q is torch.float8_e4m3fn", q, k, v, descale=descale, hadamard=True)
        self.refused(
            r"descale of k is torch.float32 \[2, 4\], not float32 \[2, 2\]",
            q,
            k,
            v,
            descale=(ones(4), ones(4), ones(2)),
        )

    def test_what_is_not_supported(self):
        q, k, v = tensors()
        self.refused("q is on cpu", q, k, v, error=NotImplementedError)
        self.refused("there is no backward pass", q.requires_grad_(), k, v, error=NotImplementedError)


class Library(unittest.TestCase):
    def test_absent(self):
        before = _library._call
        self.addCleanup(setattr, _library, "_call", before)
        _library._call, _library._problem = None, ImportError("no module")
        with self.assertRaisesRegex(RuntimeError, "the compiled part of attune is missing .*`make wheel`"):
            attune.version()


class Operators(unittest.TestCase):
    def test_fake_tensors(self):
        with FakeTensorMode():
            q = torch.empty(2, 8, 16, 64, dtype=torch.bfloat16, device="cuda")
            k = torch.empty(2, 2, 32, 64, dtype=torch.bfloat16, device="cuda")
            o = attune.sdpa(q, k, k, causal=True)
            self.assertEqual((o.shape, o.dtype, o.device.type), (q.shape, torch.bfloat16, "cuda"))
            o, lse = attune.sdpa(q, k, k, return_lse=True)
            self.assertEqual((lse.shape, lse.dtype), ((2, 8, 16), torch.float32))
            q8, k8 = q.to(torch.float8_e4m3fn), k.to(torch.float8_e4m3fn)
            factors = [torch.empty(2, heads, device="cuda") for heads in (8, 2, 2)]
            self.assertEqual(attune.sdpa(q8, k8, k8, descale=factors).dtype, torch.float16)
            self.assertIs(attune.sdpa(q, k, k, out=o), o)

    def test_fake_packed(self):
        with FakeTensorMode():
            q = torch.empty(20, 8, 64, dtype=torch.float16, device="cuda")
            cu = torch.empty(4, dtype=torch.int32, device="cuda")
            o, lse = attune.sdpa_varlen(q, q, q, cu, cu, 9, 9, return_lse=True)
            self.assertEqual((o.shape, o.dtype, lse.shape), (q.shape, q.dtype, (8, 20)))

    def test_fake_cache(self):
        with FakeTensorMode():
            q = torch.empty(3, 8, 1, 128, dtype=torch.bfloat16, device="cuda")
            k = torch.empty(3, 2, 1, 128, dtype=torch.bfloat16, device="cuda")
            cache = torch.empty(10, 2, 64, 128, dtype=FP8, device="cuda")
            lengths, table = (torch.empty(shape, dtype=torch.int32, device="cuda") for shape in ((3,), (3, 4)))
            descale = [torch.empty(3, 2, device="cuda") for _ in "kv"]
            self.assertIsNone(attune.append(k, k, cache, cache.clone(), lengths, page_table=table, descale=descale))
            o = attune.decode(q, cache, cache, lengths, page_table=table, descale=descale)
            self.assertEqual((o.shape, o.dtype), (q.shape, q.dtype))
            halves = torch.empty(10, 2, 16, 128, dtype=torch.bfloat16, device="cuda")
            o = attune.decode(q, halves, halves, lengths, page_table=table)
            self.assertEqual((o.shape, o.dtype), (q.shape, q.dtype))

    @unittest.skipIf(package.cannot_fake_cuda(), package.cannot_fake_cuda())
    def test_fake_quantize(self):
        with FakeTensorMode():
            q = torch.empty(2, 8, 16, 64, dtype=torch.bfloat16, device="cuda")
            q8, k8, _, descale = attune.quantize(q, q[:, :2], q[:, :2])
            self.assertEqual((q8.dtype, k8.shape, descale[1].shape), (FP8, (2, 2, 16, 64), (2, 2)))

    def compiled(self, function, *args):
        torch.testing.assert_close(torch.compile(function, fullgraph=True, backend="aot_eager")(*args), function(*args))

    def test_compile(self):
        """Whole graphs, on a CPU through the fallback."""
        q, k, v = tensors(queries=7)
        self.compiled(lambda q, k, v: attune.sdpa(q * 2, k, v, causal=True, fallback=True) + 1, q, k, v)
        self.compiled(
            lambda q, k, v: attune.sdpa(q, k, v, window_size=(2, 0), return_lse=True, fallback=True)[1] + 1, q, k, v
        )
        self.compiled(lambda q, k, v: attune.sdpa(q, k, v, out=torch.empty_like(q), fallback=True), q, k, v)
        self.compiled(lambda q, k, v: attune.quantize(q, k, v, smooth_k=True, hadamard=True)[1].float(), q, k, v)

    def test_compile_dynamic(self):
        function = lambda q, k, v: attune.sdpa(q, k, v, causal=True, fallback=True) + 1
        compiled = torch.compile(function, fullgraph=True, backend="aot_eager", dynamic=True)
        for queries in (5, 7, 9):
            q, k, v = tensors(queries=queries, keys=12)
            torch.testing.assert_close(compiled(q, k, v), function(q, k, v))

    def test_export(self):
        class Model(torch.nn.Module):
            def forward(self, q, k, v):
                return attune.sdpa(q, k, v, causal=True)

        with FakeTensorMode():
            q = torch.empty(2, 8, 16, 64, dtype=torch.bfloat16, device="cuda")
            program = torch.export.export(Model(), (q, q, q), strict=False)
        self.assertIn("torch.ops.attune.sdpa.default", program.graph_module.code)

    def test_compile_packed(self):
        q, cu = torch.randn(9, 4, 64).half(), torch.tensor([0, 4, 9], dtype=torch.int32)
        self.compiled(lambda q: attune.sdpa_varlen(q, q, q, cu, cu, 5, 5, fallback=True), q)

    def test_compile_cache(self):
        k, lengths, f = tensors()[1], torch.tensor([2, 5], dtype=torch.int32), torch.ones(2, 2)

        def step(k, lengths):
            caches = [torch.zeros(2, 2, 16, 64).to(FP8) for _ in "kv"]
            attune.append(k, k, *caches, lengths, descale=(f, f), fallback=True)
            return attune.decode(k, *caches, lengths + 7, descale=(f, f), fallback=True)

        self.compiled(step, k, lengths)

    def test_schemas(self):
        for name, changed in (
            ("sdpa", []),
            ("sdpa_out", ["out"]),
            ("append", ["k_cache", "v_cache"]),
            ("quantize", []),
        ):
            schema = getattr(torch.ops.attune, name).default._schema
            self.assertEqual([x.name for x in schema.arguments if x.alias_info and x.alias_info.is_write], changed)

    @unittest.skipIf(package.cannot_fake_cuda(), package.cannot_fake_cuda())
    def test_refusals(self):
        with FakeTensorMode():
            q = torch.empty(2, 8, 16, 64, dtype=torch.bfloat16, device="cuda")
            odd, cu = q[..., :21], torch.empty(3, dtype=torch.int32, device="cuda")
            large = torch.empty(1, 1, 2**31, 64, dtype=torch.bfloat16, device="cuda")
            for text, call in (
                ("head_dim is 21", lambda: attune.sdpa(odd, odd, odd)),
                ("an extent is over 2\\^31 - 1", lambda: attune.sdpa(large, large, large)),
                (
                    "smooth_k is set, and sinks",
                    lambda: attune.sdpa(q, q, q, smooth_k=True, sinks=torch.empty(8, device="cuda")),
                ),
                (
                    "smooth_k and return_lse",
                    lambda: attune.sdpa_varlen(q[0], q[0], q[0], cu, cu, 8, 8, smooth_k=True, return_lse=True),
                ),
            ):
                with self.assertRaisesRegex(NotImplementedError, text):
                    call()


class Fallback(unittest.TestCase):
    def test_plain(self):
        q, k, v = tensors(queries=7)
        for causal in (False, True):
            want = functional.scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=True)
            # PyTorch 2.6 rounds differently for groups of heads.
            torch.testing.assert_close(attune.sdpa(q, k, v, causal=causal, fallback=True), want, atol=2**-8, rtol=2**-7)

    def test_masks_and_lse(self):
        q, k, v = tensors(queries=5, keys=9)
        for causal, window in ((True, None), (False, (2, 1)), (True, (3, None))):
            o, lse = attune.sdpa(q, k, v, causal=causal, window_size=window, return_lse=True, fallback=True)
            for row in range(5):
                own = row + 4
                first = 0 if window is None else max(0, own - window[0])
                last = own if causal else own + window[1]
                keys = slice(first, min(9, last + 1))
                some_k, some_v = k[:, :, keys].float(), v[:, :, keys].float()
                scores = q[:, :, row : row + 1].float() @ some_k.repeat_interleave(2, 1).transpose(-2, -1) / 8
                torch.testing.assert_close(lse[:, :, row], scores.logsumexp(-1)[..., 0])
                want = scores.softmax(-1) @ some_v.repeat_interleave(2, 1)
                torch.testing.assert_close(o[:, :, row].float(), want[:, :, 0], atol=1e-2, rtol=1e-2)

    def test_sinks(self):
        q, k, v = tensors()
        sinks = torch.linspace(-1, 2, 4)
        o, lse = attune.sdpa(q, k, v, sinks=sinks, return_lse=True, fallback=True)
        plain, without = attune.sdpa(q, k, v, return_lse=True, fallback=True)
        share = torch.exp(without - lse)[..., None]
        torch.testing.assert_close(lse, torch.logaddexp(without, sinks[None, :, None]))
        torch.testing.assert_close(o.float(), plain.float() * share, atol=1e-2, rtol=1e-2)

    def test_factors_and_out(self):
        x = tensors(dtype=torch.float32)
        quantised = [attune.quantize(one) for one in x]
        out = torch.empty(2, 4, 5, 64, dtype=torch.bfloat16)
        got = attune.sdpa(*(y for y, _ in quantised), descale=[d for _, d in quantised], out=out, fallback=True)
        self.assertIs(got, out)
        want, _ = _reference.explicit(*x, False, None, -1, -1, None)
        torch.testing.assert_close(out.float(), want, atol=0.1, rtol=0.1)

    def test_empty(self):
        q, k, v = tensors()
        self.assertEqual(attune.sdpa(q[:0], k[:0], v[:0], fallback=True).shape, (0, 4, 5, 64))

    def test_gradients(self):
        q, k, v = tensors(queries=7, dtype=torch.float16)
        attune.sdpa(q.requires_grad_(), k, v, fallback=True).sum().backward()
        self.assertEqual(q.grad.shape, q.shape)

    def test_packed(self):
        random = torch.Generator().manual_seed(2)
        q, k, v = (torch.randn(rows, heads, 64, generator=random).half() for rows, heads in ((9, 4), (12, 2), (12, 2)))
        cu_seqlens_q, cu_seqlens_k = (torch.tensor(x, dtype=torch.int32) for x in ([0, 4, 4, 9], [0, 5, 7, 12]))
        o, lse = attune.sdpa_varlen(
            q, k, v, cu_seqlens_q, cu_seqlens_k, 5, 5, causal=True, return_lse=True, fallback=True
        )
        self.assertEqual((o.shape, o.dtype, lse.shape), (q.shape, q.dtype, (4, 9)))
        for rows, keys in ((slice(0, 4), slice(0, 5)), (slice(4, 9), slice(7, 12))):
            one = [x.transpose(0, 1)[None] for x in (q[rows], k[keys], v[keys])]
            want, want_lse = attune.sdpa(*one, causal=True, return_lse=True, fallback=True)
            torch.testing.assert_close(o[rows], want[0].transpose(0, 1))
            torch.testing.assert_close(lse[:, rows], want_lse[0])

    def test_old_names(self):
        q, k, cu = torch.randn(9, 2, 8).half(), torch.randn(9, 1, 8).half(), torch.tensor([0, 4, 9], dtype=torch.int32)
        cache, lengths = torch.zeros(2, 1, 8, 8).to(torch.float8_e4m3fn), torch.tensor([8, 8], dtype=torch.int32)
        descale = (torch.ones(2, 1), torch.ones(2, 1))
        calls = {
            "window": lambda **new: attune.sdpa_varlen(q, k, k, cu, cu, 5, 5, fallback=True, **new),
            "cu_queries": lambda **new: attune.sdpa_varlen(
                q, k, k, cu_seqlens_k=cu, max_seqlen_q=5, max_seqlen_k=5, fallback=True, **new
            ),
            "cu_keys": lambda **new: attune.sdpa_varlen(
                q, k, k, cu, max_seqlen_q=5, max_seqlen_k=5, fallback=True, **new
            ),
            "max_queries": lambda **new: attune.sdpa_varlen(q, k, k, cu, cu, max_seqlen_k=5, fallback=True, **new),
            "max_keys": lambda **new: attune.sdpa_varlen(q, k, k, cu, cu, 5, fallback=True, **new),
        }
        names = {
            "window": ("window_size", (2, 0)),
            "cu_queries": ("cu_seqlens_q", cu),
            "cu_keys": ("cu_seqlens_k", cu),
            "max_queries": ("max_seqlen_q", 5),
            "max_keys": ("max_seqlen_k", 5),
        }
        batch = [x.transpose(0, 1)[None] for x in (q, k, k)]
        decode = torch.randn(2, 2, 1, 8).half()
        for old, (new, value) in names.items():
            with (
                self.subTest(old),
                self.assertWarnsRegex(DeprecationWarning, f"{old} of attune.sdpa_varlen is now {new}") as warned,
            ):
                o = calls[old](**{old: value})
            self.assertEqual(warned.filename, __file__)
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                torch.testing.assert_close(o, calls[old](**{new: value}))
            with self.assertRaisesRegex(TypeError, f"got {new} and {old}, its old name"):
                calls[old](**{old: value, new: value})
        with self.assertWarnsRegex(DeprecationWarning, "window of attune.sdpa is now window_size"):
            o = attune.sdpa(*batch, window=(2, None), fallback=True)
        torch.testing.assert_close(o, attune.sdpa(*batch, window_size=(2, -1), fallback=True))
        with self.assertWarnsRegex(DeprecationWarning, "window of attune.decode is now window_size"):
            attune.decode(decode, cache, cache, lengths, descale=descale, window=(2, 0), fallback=True)
        with self.assertRaisesRegex(TypeError, "unexpected keyword argument 'windows'"):
            attune.sdpa(*batch, windows=(2, 0))

    def test_packed_arguments(self):
        q, k = torch.zeros(9, 4, 64).half(), torch.zeros(12, 2, 64).half()
        cu = torch.tensor([0, 4, 9], dtype=torch.int32)

        def refused(text, *args, error=ValueError, **options):
            with self.assertRaisesRegex(error, text):
                attune.sdpa_varlen(*args, **options)

        refused(r"q has 4 dimensions, not 3: \[rows, heads, head_dim\]", q[None], k, k, cu, cu, 5, 5)
        refused("k is .*: head_dim differ", q, k[..., :32], k[..., :32], cu, cu, 5, 5)
        refused("cu_seqlens_q is torch.int64", q, k, k, cu.long(), cu, 5, 5)
        refused("cu_seqlens_q is a list", q, k, k, [0, 9], cu, 5, 5, error=TypeError)
        refused("cu_seqlens_q has 1 elements", q, k, k, cu[:1], cu[:1], 5, 5)
        refused(r"cu_seqlens_k is torch.int32 \[2\], not int32 \[3\]", q, k, k, cu, cu[:2], 5, 5)
        refused("max_seqlen_q is 10: it must be from 0 to 9", q, k, k, cu, cu, 10, 5)
        refused("max_seqlen_k is -1", q, k, k, cu, cu, 5, -1)
        refused("descale is given", q, k, k, cu, cu, 5, 5, descale=(1, 2, 3))
        q8, k8, one = q.to(FP8), k.to(FP8), torch.ones(1, 4)
        refused(
            r"descale of q is torch.float32 \[1, 4\], not float32 \[2, 4\]",
            q8,
            k8,
            k8,
            cu,
            cu,
            5,
            5,
            descale=(one, one, one),
        )
        refused("q is on cpu", q, k, k, cu, cu, 5, 5, error=NotImplementedError)


class Quantise(unittest.TestCase):
    def test_one_tensor(self):
        x = torch.tensor([[[[0.0, -3.0], [1.5, 448.0]], [[0.0, 0.0], [0.0, 0.0]]]])
        y, descale = attune.quantize(x)
        torch.testing.assert_close(descale, torch.tensor([[1.0, 1.0]]))
        torch.testing.assert_close(y.float(), x)

    def test_what_is_not_finite(self):
        x = torch.tensor([[[[torch.nan, torch.inf, -torch.inf, 2.0]]]], dtype=torch.bfloat16)
        y, descale = attune.quantize(x)
        self.assertEqual(descale.item(), (torch.tensor(2.0) / 448).item())
        self.assertEqual(y.view(torch.uint8)[0, 0, 0].tolist(), [0x7F, 0x7E, 0xFE, 0x7E])

    def test_small(self):
        x = torch.full((1, 1, 1, 8), 2.0**-120)
        y, descale = attune.quantize(x)
        self.assertEqual(descale.item(), (torch.tensor(2.0**-112) / 448).item())
        self.assertEqual(y.float().max().item(), 448 / 256)

    def test_options(self):
        q, k, v = tensors()
        k += 5
        q8, k8, v8, (dq, dk, dv), mean = attune.quantize(q, k, v, smooth_k=True, hadamard=True, return_mean=True)
        torch.testing.assert_close(mean, k.float().mean(2), atol=1e-5, rtol=1e-5)
        q_, k_ = q8.float() * dq[..., None, None], k8.float() * dk[..., None, None]
        group = lambda x: x.repeat_interleave(2, 1).transpose(2, 3)
        torch.testing.assert_close(q_ @ group(k_), q.float() @ group(k.float() - mean[:, :, None]), atol=2, rtol=0.1)
        torch.testing.assert_close(v8.float() * dv[..., None, None], v.float(), atol=0.02, rtol=0.07)
        self.assertEqual(len(attune.quantize(q, k, v)), 4)

    def test_hadamard_keeps_lengths(self):
        x = torch.randn(3, 64, generator=torch.Generator().manual_seed(3))
        rotated = _quantize._hadamard(x)
        torch.testing.assert_close(rotated @ rotated.T, x @ x.T)
        torch.testing.assert_close(_quantize._hadamard(rotated), x)

    def test_arguments(self):
        q, k, v = tensors()

        def refused(text, *args, error=ValueError, **options):
            with self.assertRaisesRegex(error, text):
                attune.quantize(*args, **options)

        refused("q has 3 dimensions", q[0])
        refused("q is torch.int32", q.int(), error=TypeError)
        refused("q is torch.float8_e4m3fn", q.to(FP8), error=TypeError)
        refused("v is missing", q, k)
        refused("k is missing", q, None, v)
        refused("k is torch.float16, and q is", q, k.half(), v, error=TypeError)
        refused("batch and head_dim differ", q, k[:1], v[:1])
        refused("and v is", q, k, v[:, :1])
        refused("v is on meta", q, k, v.to("meta"))
        refused("smooth_k is set, and there is no k", q, smooth_k=True)
        refused("return_mean is set, and there is no k", q, return_mean=True)
        refused("hadamard is set, and head_dim is 48", q[..., :48], hadamard=True)


if __name__ == "__main__":
    unittest.main()
