"""The argument softcap without a GPU: what the library is given, what is refused, and what PyTorch computes instead."""

import ctypes
import unittest
from unittest import mock

import package  # noqa: F401 (before attune)
import params
import test_call
import test_precision
import test_serving
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

import attune
from attune import _check, _operators, _reference

FP8 = torch.float8_e4m3fn
UNSUPPORTED = 2


def exact(q, k, v, softcap, causal=False, window=(-1, -1), sinks=None, scale=None):
    """(o, lse) of dense tensors in float64, from the definition."""
    q, k, v = (x.double() for x in (q, k, v))
    k, v = (x.repeat_interleave(q.shape[1] // k.shape[1], dim=1) for x in (k, v))
    scores = q @ k.transpose(-2, -1) * (q.shape[3] ** -0.5 if scale is None else scale)
    scores = softcap * torch.tanh(scores / softcap)
    queries, keys = scores.shape[-2:]
    distance = torch.arange(keys) - (torch.arange(queries)[:, None] + keys - queries)
    hidden = torch.zeros(queries, keys, dtype=torch.bool)
    if causal:
        hidden |= distance > 0
    if window[0] >= 0:
        hidden |= distance < -window[0]
    if window[1] >= 0:
        hidden |= distance > window[1]
    scores = scores.masked_fill(hidden, -torch.inf)
    lse = scores.logsumexp(-1)
    if sinks is not None:  # which are not capped
        lse = torch.logaddexp(lse, sinks.double()[None, :, None])
    return torch.exp(scores - lse[..., None]) @ v, lse


def loud(*shape, dtype=torch.bfloat16):
    """Scaled scores of two such tensors have a standard deviation of 16, so that caps matter."""
    return test_call.random(*shape, dtype=torch.float32).mul(4).to(dtype)


class Library(test_call.WithDouble):
    def calls_with(self, **options):
        q = test_call.random(1, 2, 8, 64)
        rows, k, _, lengths = test_precision.cache()
        cu = torch.tensor([0, 1, 2, 3], dtype=torch.int32)
        return (
            lambda: attune.sdpa(q, q, q, **options),
            lambda: attune.sdpa_varlen(*test_precision.packed(), **options),
            lambda: attune.decode(rows, k, k, lengths, **options),
            lambda: attune.prefill(rows[:, :, 0], k, k, lengths, cu, 1, **options),
            lambda: attune.explain(q, q, q, **options),
        )

    def received_by_any(self):
        """The parameters of the last forward or explain."""
        return params.Forward.in_dll(test_call.DOUBLE, "double_forward")

    def test_what_the_library_is_given(self):
        for given, want in ((30.0, 30.0), (5, 5.0), (None, 0.0), (0.0, 0.0), (0, 0.0)):
            for call in self.calls_with(softcap=given):
                self.received_by_any().softcap = -1
                call()
                self.expect(self.received_by_any(), softcap=want, precision=0, scale=0)
        for call in self.calls_with():
            self.received_by_any().softcap = -1
            call()
            self.expect(self.received_by_any(), softcap=0)

    def test_tiny(self):
        """It stays a cap: 0 would be none."""
        for call in self.calls_with(softcap=1e-60):
            call()
            self.assertTrue(0 < self.received_by_any().softcap < 1e-37)

    def test_fields_behind(self):
        """The struct of the tests is that of the header."""
        attune.sdpa(*[test_call.random(1, 2, 8, 64)] * 3, softcap=2.0, precision="16", scale=0.5)
        size = ctypes.sizeof(params.Forward)
        self.expect(self.received(), softcap=2.0, precision=2, scale=0.5, struct_size=size)

    def test_workspaces_are_those_of_the_cap(self):
        """The answers of the library are remembered by all parameters."""
        q = test_call.random(1, 2, next(test_call.FRESH), 64)
        for size, cap in ((100, None), (200, 30.0), (300, 50.0)):
            self.answer(0, workspace=size)
            attune.sdpa(q, q, q, softcap=cap)
        self.assertEqual([size for _, _, size in self.asked], [100, 200, 300])

    def test_refusal_of_the_library(self):
        """E4M3 tensors with a softcap have no kernel: the library says so, and PyTorch computes them."""
        q8, f = test_call.random(1, 2, 8, 64).to(FP8), torch.ones(1, 2)
        self.answer(UNSUPPORTED, "softcap is 30; with it all are FP16")
        want = "softcap is 30; with it all are FP16; fallback=True computes it by PyTorch"
        found = attune.explain(q8, q8, q8, descale=(f, f, f), softcap=30.0)
        self.assertEqual((found.kernel, found.reason), ("pytorch", want))
        found = attune.explain(*[test_call.random(1, 2, 8, 64)] * 3, smooth_k=True, softcap=30.0)
        self.assertRegex(found.reason, "smooth_k is set, and softcap is 30.0: smoothing shifts the scores")


class Arguments(unittest.TestCase):
    def test_values(self):
        q = test_call.random(1, 2, 8, 64)
        caches = test_precision.cache()
        cu = torch.tensor([0, 1, 2, 3], dtype=torch.int32)
        calls = (
            lambda cap: attune.sdpa(q, q, q, softcap=cap, fallback=True),
            lambda cap: attune.explain(q, q, q, softcap=cap),
            lambda cap: attune.sdpa_varlen(*test_precision.packed(), softcap=cap, fallback=True),
            lambda cap: attune.decode(*caches, softcap=cap, fallback=True),
            lambda cap: attune.prefill(caches[0][:, :, 0], *caches[1:], cu, 1, softcap=cap, fallback=True),
        )
        for call in calls:
            for value in (-1, -0.5, float("nan"), float("inf"), -float("inf"), 1e39):
                with self.assertRaisesRegex(ValueError, "softcap is .*: it must be finite in float32"):
                    call(value)
            for value in ("30", [30.0], torch.tensor([1.0, 2.0])):
                with self.assertRaisesRegex(TypeError, f"softcap is a {type(value).__name__}, not a number"):
                    call(value)

    def test_smooth_k(self):
        with FakeTensorMode():
            q = torch.empty(2, 8, 16, 64, dtype=torch.bfloat16, device="cuda")
            for cap in (None, 0.0):
                attune.sdpa(q, q, q, smooth_k=True, softcap=cap)
            with self.assertRaisesRegex(NotImplementedError, "smoothing shifts the scores, but not their cap"):
                attune.sdpa(q, q, q, smooth_k=True, softcap=20.0)


class Fallback(unittest.TestCase):
    def close(self, got, want, tolerance):
        error = (got.double() - want).pow(2).mean().sqrt() / want.pow(2).mean().sqrt()
        self.assertLess(error.item(), tolerance)

    def test_dense(self):
        q, k, v = loud(2, 4, 9, 64), loud(2, 2, 13, 64), test_call.random(2, 2, 13, 64)
        for options in ({}, {"causal": True}, {"window_size": (4, 2)}, {"sinks": torch.tensor([0.5, -1, 2, 0])},
                        {"scale": 0.7}):  # fmt: skip
            for cap in (0.5, 5, 50.0):
                with self.subTest(cap=cap, **options):
                    want, want_lse = exact(
                        q, k, v, cap, options.get("causal", False), options.get("window_size", (-1, -1)),
                        options.get("sinks"), options.get("scale"),
                    )  # fmt: skip
                    o, lse = attune.sdpa(q, k, v, softcap=cap, return_lse=True, fallback=True, **options)
                    self.close(o, want, 0.004)
                    self.close(lse, want_lse, 1e-5)
                    torch.testing.assert_close(attune.sdpa(q, k, v, softcap=cap, fallback=True, **options), o)

    def test_no_cap(self):
        q = loud(1, 2, 7, 64)
        want = attune.sdpa(q, q, q, fallback=True)
        for cap in (None, 0, 0.0):
            torch.testing.assert_close(attune.sdpa(q, q, q, softcap=cap, fallback=True), want, rtol=0, atol=0)
        mean = q.float().mean(dim=2, keepdim=True).expand_as(q)
        torch.testing.assert_close(attune.sdpa(q, q, q, softcap=1e-60, fallback=True).float(), mean, atol=0.05, rtol=0)

    def test_factors(self):
        q, k, v = (attune.quantize(x) for x in (loud(1, 4, 9, 64), loud(1, 2, 13, 64), loud(1, 2, 13, 64)))
        got = attune.sdpa(q[0], k[0], v[0], descale=(q[1], k[1], v[1]), softcap=3.0, fallback=True)
        values = [x.float() * f[..., None, None] for x, f in (q, k, v)]
        self.close(got, exact(*values, 3.0)[0], 0.002)

    def test_blocks(self):
        """The scores in memory are those of a block of rows, not of the whole problem."""
        q, sizes = loud(1, 2, 40, 64), []
        tanh = torch.tanh

        def watched(x):
            sizes.append(x.numel())
            return tanh(x)

        with mock.patch.object(_reference, "_AT_ONCE", 2 * 40 * 8), mock.patch.object(torch, "tanh", watched):
            o = attune.sdpa(q, q, q, softcap=3.0, causal=True, fallback=True)
        self.assertEqual(len(sizes), 5)
        self.assertLessEqual(max(sizes), 2 * 40 * 8)
        self.close(o, exact(q, q, q, 3.0, causal=True)[0], 0.004)

    def test_sequences(self):
        q, k, v = (loud(16, heads, 64) for heads in (4, 2, 2))
        cu = torch.tensor([0, 5, 16], dtype=torch.int32)
        o = attune.sdpa_varlen(q, k, v, cu, cu, 11, 11, causal=True, softcap=4.0, fallback=True)
        for rows in (slice(0, 5), slice(5, 16)):
            alone = (x[rows].transpose(0, 1)[None] for x in (q, k, v))
            self.close(o[rows], exact(*alone, 4.0, causal=True)[0][0].transpose(0, 1), 0.004)

    def test_caches(self):
        for paged in (False, True):
            arguments, given = test_serving.problem(paged, torch.bfloat16)
            q, k, v, lengths, cu, most = arguments
            o, lse = attune.prefill(*arguments, **given, softcap=0.7, return_lse=True, fallback=True)
            want, want_lse = test_serving.by_sequences(arguments, given, softcap=0.7)
            torch.testing.assert_close(o.float(), want, atol=0.02, rtol=0.02)
            torch.testing.assert_close(lse, want_lse, atol=1e-3, rtol=1e-3)
            step = attune.decode(q[:4, :, None], k, v, lengths, **given, softcap=0.7, fallback=True)
            one = attune.prefill(q[:4], k, v, lengths, test_serving.offsets((1, 1, 1, 1)), 1, **given, softcap=0.7,
                                 fallback=True)  # fmt: skip
            torch.testing.assert_close(step[:, :, 0], one, atol=0.01, rtol=0.01)

    def test_gradients(self):
        q, k, v = (test_call.random(1, 2, n, 8, dtype=torch.float16).requires_grad_() for n in (5, 6, 6))
        attune.sdpa(q, k, v, softcap=0.5, fallback=True).float().pow(2).sum().backward()
        exact_q = q.detach().double().requires_grad_()
        exact(exact_q, k.detach(), v.detach(), 0.5)[0].pow(2).sum().backward()
        self.close(q.grad, exact_q.grad, 0.01)


class Operators(unittest.TestCase):
    def test_schemas(self):
        for operator in (_operators._sdpa_op, _operators._sdpa_out_op):
            schema = str(operator._opoverload._schema)
            self.assertIn('str precision="auto", float softcap=0., Tensor? alibi_slopes=None, Tensor? tree_mask=None)', schema)

    def test_opcheck(self):
        q = test_call.random(1, 2, 8, 64)
        arguments = (q, q, q, None, None, None, True, -1.0, -1, -1, None, True)
        torch.library.opcheck(_operators._sdpa_op, arguments, {"fallback": True, "softcap": 2.0})
        options = {"fallback": True, "softcap": 2.0}
        torch.library.opcheck(_operators._sdpa_out_op, (*arguments, torch.empty_like(q)), options)

    def test_compile(self):
        q = loud(1, 2, 8, 64)
        for options in ({"causal": True}, {"return_lse": True}, {"out": torch.empty_like(q)}):
            function = lambda x: attune.sdpa(x, x, x, softcap=0.5, precision="16", fallback=True, **options)
            compiled = torch.compile(function, backend="aot_eager", fullgraph=True)
            got = compiled(q)
            torch.testing.assert_close(got, function(q))
            o = got[0] if options.get("return_lse") else got
            want, _ = exact(q, q, q, 0.5, options.get("causal", False))
            self.assertLess((o.double() - want).pow(2).mean().sqrt().item(), 0.01)
        with FakeTensorMode():
            x = torch.empty(2, 8, 16, 64, dtype=_check.HALVES[1], device="cuda")
            self.assertEqual(attune.sdpa(x, x, x, softcap=30.0).shape, x.shape)


if __name__ == "__main__":
    unittest.main()
