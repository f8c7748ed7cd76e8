"""Tests without a GPU: arguments, the operators under fake tensors, the fallback, the patch."""

import ctypes
import unittest

import torch
import torch.nn.functional as functional
from torch._subclasses.fake_tensor import FakeTensorMode

import attune
from attune import _attention, _library, _reference


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
        self.refused("q is torch.float32, not float16", q.float(), k, v, error=TypeError)
        self.refused("v is torch.float16, and q is torch.bfloat16", q, k, v.half(), error=TypeError)
        self.refused("k is on meta, and q is on cpu", q, k.to("meta"), v)
        self.refused("batch and head_dim differ", q, k[:1], v[:1])
        self.refused(r"k is \[2, 2, 7, 64\], and v is \[2, 2, 6, 64\]", q, k, v[:, :, 1:])
        self.refused("q has 4 heads, which the 3 of k do not divide", q, *(torch.cat([x, x[:, :1]], 1) for x in (k, v)))

    def test_options(self):
        q, k, v = tensors()
        self.refused("window is", q, k, v, window=(-2, 0))
        self.refused("sinks is torch.float32", q, k, v, sinks=torch.zeros(3))
        self.refused("descale is given, and q is torch.bfloat16", q, k, v, descale=(1, 2, 3))
        self.refused("out is .* on cpu, and q is", q, k, v, out=k)
        self.refused("out is torch.float32", q, k, v, out=q.float(), error=TypeError)
        self.refused("must be contiguous", q, k, v, out=torch.empty(2, 5, 4, 64, dtype=q.dtype).transpose(1, 2))

    def test_factors(self):
        q, k, v = (x.to(torch.float8_e4m3fn) for x in tensors())
        ones = lambda heads: torch.ones(2, heads)
        self.refused("descale is missing", q, k, v)
        self.refused("descale has 2 tensors, not 3", q, k, v, descale=(ones(4), ones(2)))
        self.refused(r"descale of k is torch.float32 \[2, 4\], not float32 \[2, 2\]", q, k, v, descale=(ones(4), ones(4), ones(2)))

    def test_what_is_not_supported(self):
        q, k, v = tensors()
        self.refused("q is on cpu", q, k, v, error=NotImplementedError)
        self.refused("there is no backward pass", q.requires_grad_(), k, v, error=NotImplementedError)


class Library(unittest.TestCase):
    def test_params_have_no_padding(self):
        fields = [ctypes.c_size_t] + 8 * [ctypes.c_void_p] + 6 * [ctypes.c_int32] + 12 * [ctypes.c_int64]
        fields += 3 * [ctypes.c_int32] + [ctypes.c_float] + 2 * [ctypes.c_int32] + 2 * [ctypes.c_void_p] + [ctypes.c_size_t]
        params = type("Params", (ctypes.Structure,), {"_fields_": [(f"f{i}", t) for i, t in enumerate(fields)]})
        self.assertEqual(ctypes.sizeof(params), _library.PARAMS.size)
        self.assertEqual(_library.PARAMS.size, 240)


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


class Fallback(unittest.TestCase):
    def test_plain(self):
        q, k, v = tensors(queries=7)
        for causal in (False, True):
            want = functional.scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=True)
            torch.testing.assert_close(attune.sdpa(q, k, v, causal=causal, fallback=True), want)

    def test_masks_and_lse(self):
        q, k, v = tensors(queries=5, keys=9)
        for causal, window in ((True, None), (False, (2, 1)), (True, (3, None))):
            o, lse = attune.sdpa(q, k, v, causal=causal, window=window, return_lse=True, fallback=True)
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

    def test_quantize(self):
        x = torch.tensor([[[[0.0, -3.0], [1.5, 448.0]], [[0.0, 0.0], [0.0, 0.0]]]])
        y, descale = attune.quantize(x)
        torch.testing.assert_close(descale, torch.tensor([[1.0, 1.0]]))
        torch.testing.assert_close(y.float(), x)


class Patch(unittest.TestCase):
    def test_calls_that_stay(self):
        q, k, v = tensors(kv_heads=4, queries=7)
        original = functional.scaled_dot_product_attention
        with attune.patch():
            self.assertIsNot(functional.scaled_dot_product_attention, original)
            with attune.patch():
                got = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        self.assertIs(functional.scaled_dot_product_attention, original)
        torch.testing.assert_close(got, original(q, k, v, is_causal=True))

    def test_calls_that_are_taken(self):
        with FakeTensorMode(), attune.patch():
            q = torch.empty(2, 8, 16, 64, dtype=torch.bfloat16, device="cuda")
            calls = []
            forward = _attention._through_dispatcher
            _attention._through_dispatcher = lambda *args: calls.append(1) or forward(*args)
            try:
                functional.scaled_dot_product_attention(q, q, q, is_causal=True)
                functional.scaled_dot_product_attention(q, q, q, dropout_p=0.1)
                functional.scaled_dot_product_attention(q[:, :, 1:], q, q, is_causal=True)
            finally:
                _attention._through_dispatcher = forward
            self.assertEqual(len(calls), 1)


if __name__ == "__main__":
    unittest.main()
