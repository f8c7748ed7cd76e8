"""What PyTorch does to calls: derivatives, transforms, traces, compilation, views, outputs that are given."""

import threading
import unittest
import warnings
import weakref
from unittest import mock

import package  # noqa: F401 (before attune)
import test_call
import torch
import torch.nn.functional as functional
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.autograd import forward_ad
from torch.library import opcheck
from torch.utils._python_dispatch import TorchDispatchMode

import attune
from attune import _check, _library, _reference

FP8 = torch.float8_e4m3fn


def tensors(batch=2, heads=4, kv_heads=4, queries=9, keys=9, head_dim=64, dtype=torch.bfloat16):
    random = torch.Generator().manual_seed(4)
    shapes = ((batch, heads, queries, head_dim), (batch, kv_heads, keys, head_dim), (batch, kv_heads, keys, head_dim))
    return [torch.randn(s, generator=random).to(dtype) for s in shapes]


class Derivatives(unittest.TestCase):
    def setUp(self):
        warnings.simplefilter("ignore")  # of forward-mode differentiation, which loads parts of PyTorch
        self.addCleanup(warnings.resetwarnings)

    def test_forward_mode(self):
        """The tangent is that of differences."""
        q, k, v = (x.half() for x in tensors())
        direction = torch.ones_like(q)
        with forward_ad.dual_level():
            with self.assertRaisesRegex(NotImplementedError, "forward-mode"):
                attune.sdpa(forward_ad.make_dual(q, direction), k, v)
            with self.assertRaisesRegex(NotImplementedError, "forward-mode"):
                attune.sdpa(q, k, v, sinks=forward_ad.make_dual(torch.zeros(4), torch.ones(4)))
            o = attune.sdpa(forward_ad.make_dual(q, direction), k, v, fallback=True)
            got = forward_ad.unpack_dual(o).tangent
            attune.sdpa(q, k, v, fallback=True)  # without a tangent it is a plain call
        step = 1e-2
        ends = [_reference.explicit(q.float() + s * step, k, v, False, None, -1, -1, None)[0] for s in (1, -1)]
        torch.testing.assert_close(got.float(), (ends[0] - ends[1]) / (2 * step), atol=5e-3, rtol=2e-2)

    def test_transforms(self):
        q, k, v = tensors()
        call = lambda q, k, v: attune.sdpa(q, k, v, causal=True, window_size=(3, 0), fallback=True)
        both = torch.vmap(call)(*(torch.stack([x, x + 1]) for x in (q, k, v)))
        torch.testing.assert_close(both[1], call(q + 1, k + 1, v + 1), atol=2e-2, rtol=2e-2)
        tangent = torch.func.jvp(lambda q: call(q, k, v), (q,), (torch.ones_like(q),))[1]
        self.assertGreater(tangent.abs().max(), 0)
        gradient = torch.func.grad(lambda q: call(q, k, v).float().square().sum())(q)
        q.requires_grad_()
        call(q, k, v).float().square().sum().backward()
        torch.testing.assert_close(gradient, q.grad, atol=2e-2, rtol=2e-2)
        with self.assertRaisesRegex(NotImplementedError, "torch.func"):
            torch.vmap(lambda q: attune.sdpa(q, k, v))(torch.stack([q, q]))

    def test_append(self):
        _, k, v = tensors()
        caches, f = [torch.zeros(2, 4, 16, 64).to(FP8) for _ in "kv"], torch.ones(2, 4)
        lengths = torch.zeros(2, dtype=torch.int32)
        with forward_ad.dual_level(), self.assertRaisesRegex(NotImplementedError, "forward-mode"):
            dual = forward_ad.make_dual(k, k)
            attune.append(dual, v, *caches, lengths, descale=(f, f), fallback=True)

    def test_gradients(self):
        """Of sinks and factors too."""
        q, k, v = tensors()
        sinks = torch.randn(4, requires_grad=True)
        with self.assertRaisesRegex(NotImplementedError, "sinks or descale requires a gradient"):
            attune.sdpa(q, k, v, sinks=sinks)
        attune.sdpa(q, k, v, sinks=sinks, fallback=True).float().sum().backward()
        self.assertGreater(sinks.grad.abs().min(), 0)
        factors = [torch.ones(2, 4, requires_grad=True) for _ in "qkv"]
        with self.assertRaisesRegex(NotImplementedError, "sinks or descale requires a gradient"):
            attune.sdpa(q.to(FP8), k.to(FP8), v.to(FP8), descale=factors)
        attune.sdpa(q.to(FP8), k.to(FP8), v.to(FP8), descale=factors, fallback=True).float().sum().backward()
        self.assertGreater(factors[2].grad.abs().min(), 0)


class Tracing(unittest.TestCase):
    def setUp(self):
        warnings.simplefilter("ignore")  # torch.jit.trace is deprecated, and checks of arguments are not traced
        self.addCleanup(warnings.resetwarnings)

    def test_jit(self):
        q, k, v = tensors()
        other = torch.randn_like(q)
        for options in ({}, {"causal": True}):
            traced = torch.jit.trace(lambda q, k, v: attune.sdpa(q, k, v, fallback=True, **options), (q, k, v))
            torch.testing.assert_close(traced(other, k, v), attune.sdpa(other, k, v, fallback=True, **options))
        traced = torch.jit.trace(lambda q: attune.sdpa(q, k, v, out=torch.empty_like(q), fallback=True), (q,))
        torch.testing.assert_close(traced(other), attune.sdpa(other, k, v, fallback=True))

    def test_export(self):
        class Model(torch.nn.Module):
            def forward(self, q):
                return attune.sdpa(q, q, q, fallback=True) + functional.scaled_dot_product_attention(q, q, q)

        with FakeTensorMode(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            q = torch.empty(2, 8, 64, 64, dtype=torch.bfloat16, device="cuda")
            for strict in (False, True):
                with attune.patch():
                    program = torch.export.export(Model(), (q,), strict=strict)
                self.assertEqual(program.graph_module.code.count("torch.ops.attune.sdpa.default"), 2, strict)


class Compiled(unittest.TestCase):
    """With Inductor, which relies on the strides that the fake operators promise; on a CPU through the fallback."""

    def setUp(self):
        torch.compiler.reset()

    def test_strides(self):
        def block(x):
            q, k, v = (x[:, :, i].transpose(1, 2) for i in range(3))
            o = attune.sdpa(q, k, v, causal=True, fallback=True)
            return o.transpose(1, 2).reshape(x.shape[0], x.shape[1], -1) * 2

        for head_dim, dynamic in ((64, False), (72, True), (96, True)):
            torch.compiler.reset()
            compiled = torch.compile(block, fullgraph=True, dynamic=dynamic)
            for rows in (9, 12, 17):
                x = torch.randn(2, rows, 3, 4, head_dim).bfloat16()
                torch.testing.assert_close(compiled(x), block(x))

    def test_sequences(self):
        def step(q, k, v, cu, lengths):
            packed = attune.sdpa_varlen(q, k, v, cu, cu, 5, 5, causal=True, fallback=True)
            some = [x[:8].view(2, 4, 4, 64).transpose(1, 2) for x in (q, k, v)]
            return packed * 2, attune.decode(some[0][:, :, :1], some[1], some[2], lengths, fallback=True) * 2

        q, k, v = (torch.randn(9, 4, 64).half() for _ in "qkv")
        args = (q, k, v, torch.tensor([0, 4, 9], dtype=torch.int32), torch.tensor([1, 3], dtype=torch.int32))
        torch.testing.assert_close(torch.compile(step, fullgraph=True)(*args), step(*args))

    def test_operators(self):
        q, k, v = tensors()
        packed = torch.randn(2, 9, 3, 4, 64).bfloat16()
        strided = [packed[:, :, i].transpose(1, 2) for i in range(3)]
        sdpa, out, ops = (None, None, None, True, -1.0, -1, -1, None, True), torch.empty_like(q), torch.ops.attune
        lengths, factors = torch.tensor([1, 2], dtype=torch.int32), (torch.ones(2, 4), torch.ones(2, 4))
        opcheck(ops.sdpa.default, (q, k, v, *sdpa), {"fallback": True})
        opcheck(ops.sdpa.default, (*strided, *sdpa), {"fallback": True})
        opcheck(ops.sdpa.default, (*strided, *sdpa), {"fallback": True, "lengths": lengths})
        opcheck(ops.sdpa_out.default, (q, k, v, *sdpa, out), {"fallback": True})
        opcheck(ops.quantize.default, (q, k, v, True, True))
        caches = [torch.zeros(2, 4, 16, 64).to(FP8) for _ in "kv"]
        # PyTorch's test of schemas multiplies tensors, which 8-bit floats do not know.
        tests = ("test_autograd_registration", "test_faketensor")
        opcheck(ops.append.default, (k, v, *caches, lengths, None, *factors, True), test_utils=tests)


class Outputs(unittest.TestCase):
    def test_version(self):
        q, k, v = tensors()
        out = torch.empty_like(q)
        before = out._version
        attune.sdpa(q, k, v, out=out, fallback=True)
        self.assertGreater(out._version, before)

    def test_overlap(self):
        q, k, v = tensors()
        for out, name in ((q, "q"), (k, "k"), (v, "v"), (q[:, :, :], "q")):
            with self.assertRaisesRegex(ValueError, f"out overlaps {name} in memory"):
                attune.sdpa(q, k, v, out=out, fallback=True)
        rows = torch.zeros(2 * 4 * 9 + 1, 64).bfloat16()  # out is a row behind q
        with self.assertRaisesRegex(ValueError, "out overlaps q"):
            attune.sdpa(rows[:-1].view(q.shape), k, v, out=rows[1:].view(q.shape), fallback=True)

    def test_slices_of_one_tensor(self):
        packed = torch.randn(2, 9, 4, 4, 64).bfloat16()
        q, k, v, out = (packed[:, :, i].transpose(1, 2) for i in range(4))
        want = functional.scaled_dot_product_attention(q, k, v)
        torch.testing.assert_close(attune.sdpa(q, k, v, out=out, fallback=True), want)
        with self.assertRaisesRegex(ValueError, "out overlaps v"):
            attune.sdpa(q, k, v, out=packed.flatten(2, 3)[:, :, 9:13].transpose(1, 2), fallback=True)

    def test_overlaps_of_random_slices(self):
        """No overlap is missed, and of slices of one packed tensor none is invented."""
        random, counts = torch.Generator().manual_seed(2), {True: 0, False: 0}
        draw = lambda low, high: int(torch.randint(low, high, (), generator=random))
        for _ in range(300):
            packed = torch.arange(2 * 3 * 6 * 8).view(2, 3, 6, 8)  # batch, rows, heads of all tensors, head_dim
            parts = []
            for _ in range(2):
                first, column = draw(0, 6), draw(0, 2) * 4
                part = packed[draw(0, 2) :, draw(0, 3) :, first : draw(first, 6) + 1, column : column + draw(1, 5)]
                parts.append(part.transpose(1, 2))
            meet = bool(set(parts[0].flatten().tolist()) & set(parts[1].flatten().tolist()))
            if parts[0].shape[-1] == parts[1].shape[-1]:
                self.assertEqual(_check.overlap(*parts), meet)
                counts[meet] += 1
        self.assertGreater(min(counts.values()), 20, counts)

    def test_what_is_no_output(self):
        q, k, v = tensors()
        with self.assertRaisesRegex(ValueError, "out requires a gradient"):
            attune.sdpa(q, k, v, out=torch.empty_like(q, requires_grad=True), fallback=True)
        with self.assertRaisesRegex(ValueError, "out is a negative view"):
            attune.sdpa(q, k, v, out=torch._neg_view(torch.empty_like(q)), fallback=True)


class Largest(TorchDispatchMode):
    """The elements of the largest result in float32."""

    def __init__(self):
        super().__init__()
        self.elements = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        for x in result if isinstance(result, (tuple, list)) else (result,):
            if isinstance(x, torch.Tensor) and x.dtype == torch.float32:
                self.elements = max(self.elements, x.numel())
        return result


class Fallback(unittest.TestCase):
    """Nothing holds a score of every pair of rows in float32."""

    def largest(self, call):
        before, _reference._AT_ONCE = _reference._AT_ONCE, 1 << 14
        self.addCleanup(setattr, _reference, "_AT_ONCE", before)
        with Largest() as largest:
            result = _reference.attention(call)
        return result, largest.elements

    def check(self, queries, keys, options, lengths=None, **sizes):
        q, k, v = tensors(queries=queries, keys=keys, **sizes)
        call = attune._arguments.Call(q, k, v, options.get("causal", False), None, options.get("window_size", (-1, -1)),
                                      options.get("sinks"), None, options.get("return_lse", False), None,
                                      lengths=lengths)  # fmt: skip
        result, elements = self.largest(call)
        o, lse = result if call.return_lse else (result, None)
        want, want_lse = _reference.explicit(q, k, v, call.causal, None, *call.window_size, call.sinks, lengths)
        torch.testing.assert_close(o.float(), want, atol=2e-2, rtol=2e-2)
        if lse is not None:
            torch.testing.assert_close(lse, want_lse)
        scores = q.shape[0] * q.shape[1] * queries * keys
        self.assertLess(elements, scores / 4)

    def test_masks(self):
        for options in (
            {"causal": True},
            {"window_size": (40, 0)},
            {"window_size": (40, 7)},
            {"causal": True, "return_lse": True},
            {"window_size": (40, 0), "sinks": torch.randn(4)},
        ):
            for queries, keys in ((600, 700), (700, 600)):
                with self.subTest(queries=queries, **{k: str(v) for k, v in options.items()}):
                    self.check(queries, keys, options, kv_heads=2, head_dim=8)

    def test_groups(self):
        """Groups of query heads, without a mask and in E4M3 with one."""
        self.check(300, 400, {}, kv_heads=1, head_dim=8)
        q, k, v = tensors(kv_heads=1, queries=300, keys=300, head_dim=8)
        q8, k8, v8, descale = attune.quantize(q, k, v)
        call = attune._arguments.Call(q8, k8, v8, True, None, (-1, -1), None, descale, False, None)
        o, elements = self.largest(call)
        want = _reference.explicit(q, k, v, True, None, -1, -1, None)[0]
        self.assertLess((o.float() - want).norm() / want.norm(), 0.08)
        self.assertLess(elements, 2 * 4 * 300 * 300 / 4)

    def test_lengths(self):
        lengths = torch.tensor([0, 555], dtype=torch.int32)
        self.check(400, 700, {"causal": True}, lengths, kv_heads=1, head_dim=8)
        self.check(400, 700, {"return_lse": True}, lengths, kv_heads=1, head_dim=8)

    def test_packed(self):
        """As each sequence by itself; a sequence without rows or keys, and rows behind the last one."""
        ends_q, ends_k = [0, 5, 5, 12, 17], [0, 9, 12, 12, 20]
        q, k, v = torch.randn(19, 4, 64).half(), torch.randn(21, 2, 64).half(), torch.randn(21, 2, 64).half()
        cu = [torch.tensor(x, dtype=torch.int32) for x in (ends_q, ends_k)]
        for options in ({}, {"causal": True}, {"window_size": (2, 1)}, {"causal": True, "sinks": torch.randn(4)}):
            o, lse = attune.sdpa_varlen(q, k, v, *cu, 8, 10, return_lse=True, fallback=True, **options)
            plain = attune.sdpa_varlen(q, k, v, *cu, 8, 10, fallback=True, **options)
            torch.testing.assert_close(plain, o, atol=2e-3, rtol=2e-3)
            self.assertEqual(o[17:].abs().max(), 0)
            self.assertEqual(o[5:12].abs().max(), 0)  # no keys
            for b in (0, 3):
                rows, columns = slice(*ends_q[b : b + 2]), slice(*ends_k[b : b + 2])
                one = [x.transpose(0, 1)[None] for x in (q[rows], k[columns], v[columns])]
                want, want_lse = _reference.explicit(*one, options.get("causal", False), None,
                                                     *options.get("window_size", (-1, -1)),
                                                     options.get("sinks"))  # fmt: skip
                torch.testing.assert_close(o[rows].float(), want[0].transpose(0, 1), atol=2e-3, rtol=2e-3)
                torch.testing.assert_close(lse[:, rows], want_lse[0])

    def test_packed_out_of_range(self):
        """What cu_seqlens contain is not checked; rows that are not there are neither read nor written."""
        q = torch.randn(9, 4, 64).half()
        for ends in ([0, 4, 90], [-5, 4, 9], [0, 7, 3], [2**30, 2**30 + 4, 9]):
            cu = torch.tensor(ends, dtype=torch.int32)
            o = attune.sdpa_varlen(q, q, q, cu, cu, 9, 9, causal=True, fallback=True)
            self.assertTrue(o.isfinite().all(), ends)

    def test_no_value_is_read(self):
        """Lengths stay on the device, so that a CUDA graph can be captured; fake tensors have no values."""
        with FakeTensorMode():
            q = torch.empty(19, 4, 64, dtype=torch.float16)
            cu, lengths = torch.empty(5, dtype=torch.int32), torch.empty(2, dtype=torch.int32)
            call = attune._arguments.Call(q, q, q, True, None, (-1, -1), None, None, True, None, cu_seqlens_q=cu,
                                          cu_seqlens_k=cu, max_seqlen_q=8, max_seqlen_k=8)  # fmt: skip
            self.assertEqual(_reference.attention(call)[1].shape, (4, 19))
            q = torch.empty(2, 4, 1, 64, dtype=torch.float16)
            k = torch.empty(2, 4, 32, 64, dtype=torch.float16)
            call = attune._arguments.Call(q, k, k, True, None, (-1, -1), None, None, False, None, lengths=lengths)
            self.assertEqual(_reference.attention(call).shape, q.shape)


class QuickWay(test_call.WithDouble):
    """What the compiled part must not take, because the memory of the tensors is not all that counts."""

    def refused(self, text, call):
        before = self.calls()
        with self.assertRaisesRegex((NotImplementedError, ValueError), text):
            call()
        self.assertEqual(self.calls(), before)

    def test_views_and_derivatives(self):
        q, k, v = tensors()
        sinks, f = torch.zeros(4), torch.ones(2, 4)
        negative = torch._neg_view(q)
        self.refused("q is on cpu", lambda: attune.sdpa(negative, k, v))
        self.refused("q is on cpu", lambda: attune.sdpa(q, k, torch._neg_view(v)))
        self.refused("q is on cpu", lambda: attune.sdpa(q, k, v, sinks=torch._neg_view(sinks)))
        self.refused("negative view", lambda: attune.sdpa(q, k, v, out=torch._neg_view(torch.empty_like(q))))
        self.refused("requires a gradient", lambda: attune.sdpa(q, k, v, sinks=torch.zeros(4, requires_grad=True)))
        factors = (f, f, torch.ones(2, 4, requires_grad=True))
        q8, k8, v8 = (x.to(FP8) for x in (q, k, v))
        self.refused("requires a gradient", lambda: attune.sdpa(q8, k8, v8, descale=factors))
        torch.testing.assert_close(
            attune.sdpa(negative, k, v, fallback=True), functional.scaled_dot_product_attention(-q, k, v)
        )
        cache = torch._neg_view(torch.zeros(2, 4, 16, 64).to(FP8))
        self.refused("k_cache is a negative view", lambda: attune.append(
            k, v, cache, cache, torch.zeros(2, dtype=torch.int32), descale=(f, f)))  # fmt: skip
        with forward_ad.dual_level():
            self.refused("forward-mode", lambda: attune.sdpa(forward_ad.make_dual(q, q), k, v))

    def test_trace(self):
        q, k, v = tensors()
        before = self.calls()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the function is deprecated
            # A check of the trace would call the function again, which the double then computes.
            traced = torch.jit.trace(lambda q: attune.sdpa(q, k, v, fallback=True), (q,), check_trace=False)
        self.assertEqual(self.calls(), before)
        torch.testing.assert_close(traced(-q), functional.scaled_dot_product_attention(-q, k, v))

    def test_outputs(self):
        q, k, v = tensors()
        out = torch.empty_like(q)
        before = out._version
        attune.sdpa(q, k, v, out=out)
        self.assertGreater(out._version, before)
        self.refused("is on cpu", lambda: attune.sdpa(q, k, v, out=q))
        packed = torch.randn(2, 9, 4, 4, 64).bfloat16()
        q, k, v, out = (packed[:, :, i].transpose(1, 2) for i in range(4))
        self.refused("is on cpu", lambda: attune.sdpa(q, k, v, out=out))  # Python finds out that they are apart
        caches = [torch.zeros(2, 4, 16, 64).to(FP8) for _ in "kv"]
        before = [x._version for x in caches]
        f = torch.ones(2, 4)
        attune.append(k, v, *caches, torch.zeros(2, dtype=torch.int32), descale=(f, f))
        self.assertTrue(all(x._version > n for x, n in zip(caches, before)))

    def test_version_by_version(self):
        """As with a PyTorch whose function takes one tensor."""

        several = torch._C._increment_version

        def one(tensor):
            if not isinstance(tensor, torch.Tensor):
                raise TypeError("increment_version expects a tensor")
            several((tensor,))

        x = torch.zeros(3)
        with mock.patch.object(torch._C, "_increment_version", one):
            bump = _library._bump_function()
            self.assertIs(bump, _library._bump_each)
            bump((x,))
            with torch.inference_mode():
                bump((torch.zeros(3),))
        self.assertEqual(x._version, 1)

    def test_old_driver(self):
        """A driver that cannot load the code is no error where PyTorch may compute."""
        q, k, v = tensors()
        self.answer(4, "cuModuleLoadDataEx failed: install a newer driver")
        with self.assertRaises(NotImplementedError):
            attune.sdpa(q, k, v)
        want = functional.scaled_dot_product_attention(q, k, v)
        torch.testing.assert_close(attune.sdpa(q, k, v, fallback=True), want)

    def test_threads_that_end(self):
        """Their workspaces are given back."""
        self.answer(0, workspace=64)
        self.lasts = True
        kept = []

        def call():
            self.workspace = torch.zeros(4096, dtype=torch.uint8)
            x = torch.randn(1, 2, next(test_call.FRESH), 64).bfloat16()
            attune.sdpa(x, x, x)
            kept.append(weakref.ref(self.workspace))

        for _ in range(3):
            thread = threading.Thread(target=call)
            thread.start()
            thread.join()
        self.workspace = None
        self.assertEqual([x() for x in kept], [None] * 3)


class DynamicBatch(unittest.TestCase):
    """Compiled calls whose batch changes: its size is a symbol while PyTorch traces the checks."""

    def calls(self):
        """Functions, and what makes their arguments for a batch."""
        random = lambda *shape: torch.randn(shape, generator=torch.Generator().manual_seed(1)).half()
        row, step = lambda n: random(n, 4, 1, 64), {"fallback": True}
        cache, lengths = lambda n: random(n, 2, 32, 64), lambda n: torch.full((n,), 9, dtype=torch.int32)
        codes = lambda n: torch.zeros(n, 2, 32, 64, dtype=FP8)
        packed, cu = lambda n: random(4 * n, 4, 64), lambda n: 4 * torch.arange(n + 1, dtype=torch.int32)
        tree, heads = lambda n: torch.ones(n, 1, dtype=torch.int64), lambda n: torch.rand(n, 4)
        table = lambda n: torch.zeros(n, 2, dtype=torch.int32)

        def append(k, k_cache, v_cache, n, f):
            attune.append(k, k, k_cache, v_cache, n, descale=(f, f), **step)
            return k_cache.view(torch.uint8).clone(), v_cache.view(torch.uint8).clone()

        return {
            "decode": (lambda q, c, n: attune.decode(q, c, c, n, **step), row, cache, lengths),
            "tree": (lambda q, c, n, t: attune.decode(q, c, c, n, tree_mask=t, **step), row, cache, lengths, tree),
            "pages": (lambda q, c, n, t: attune.decode(q, c, c, n, page_table=t, **step), row, cache, lengths, table),
            "prefill": (lambda q, c, n, cu: attune.prefill(q, c, c, n, cu, 4, **step), packed, cache, lengths, cu),
            "varlen": (lambda q, cu: attune.sdpa_varlen(q, q, q, cu, cu, 4, 4, **step), packed, cu),
            "slopes": (lambda q, s: attune.sdpa(q, q, q, alibi_slopes=s, **step), row, heads),
            "descale": (lambda q, f: attune.sdpa(*[q.to(FP8)] * 3, descale=(f, f, f), **step), row, heads),
            "append": (append, lambda n: random(n, 2, 1, 64), codes, codes, lengths, lambda n: torch.ones(n, 2)),
        }

    def test_compile(self):
        for name, (function, *makers) in self.calls().items():
            with self.subTest(name):
                compiled = torch.compile(function, fullgraph=True, backend="eager", dynamic=True)
                for batch in (2, 3):
                    given = [make(batch) for make in makers]
                    want = function(*(x.clone() for x in given))
                    torch.testing.assert_close(compiled(*given), want, atol=2e-3, rtol=2e-3)

    def test_refusals_are_a_line(self):
        """Of compiled code too, which learns it when it runs."""
        q = tensors()[0]
        text = "^q is on cpu: attune runs on CUDA devices; fallback=True computes it by PyTorch$"
        with self.assertRaisesRegex(NotImplementedError, text):
            torch.compile(lambda q: attune.sdpa(q, q, q), fullgraph=True, backend="eager")(q)

    def test_export(self):
        class Step(torch.nn.Module):
            def forward(self, q, cache, lengths):
                return attune.decode(q, cache, cache, lengths, fallback=True)

        _, *makers = self.calls()["decode"]
        batch = torch.export.Dim("batch")
        exported = torch.export.export(Step(), tuple(x(2) for x in makers), dynamic_shapes=({0: batch},) * 3, strict=True)
        given = [x(3) for x in makers]
        torch.testing.assert_close(exported.module()(*given), Step()(*given), atol=2e-3, rtol=2e-3)


if __name__ == "__main__":
    unittest.main()
