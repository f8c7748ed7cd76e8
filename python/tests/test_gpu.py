"""Tests on a Hopper GPU with the library of the installed wheel."""

import time
import unittest

import package  # noqa: F401 (before attune)
import torch
import torch.nn.functional as functional

import attune
from attune import _reference


def reason():
    if not torch.cuda.is_available():
        return "no GPU"
    if torch.cuda.get_device_capability()[0] != 9:
        return f"{torch.cuda.get_device_name()} is no Hopper GPU"
    return None


def tensors(batch, heads, kv_heads, queries, keys, head_dim, dtype=torch.bfloat16):
    random = torch.Generator("cuda").manual_seed(1)
    shapes = ((batch, heads, queries, head_dim), (batch, kv_heads, keys, head_dim), (batch, kv_heads, keys, head_dim))
    return [torch.randn(s, generator=random, device="cuda", dtype=dtype) for s in shapes]


@unittest.skipIf(reason(), reason())
class OnGPU(unittest.TestCase):
    # What E4M3 costs on normal inputs: the documented tolerance.
    tolerance = {"atol": 0.06, "rtol": 0.06}

    def compare(self, got, q, k, v, causal=False, scale=None):
        want, _ = _reference.explicit(q, k, v, causal, scale, -1, -1, None)
        error = (got.float() - want).abs()
        allowed = self.tolerance["atol"] + self.tolerance["rtol"] * want.abs()
        self.assertLess((error > allowed).float().mean().item(), 0.01)
        self.assertLess(error.mean().item(), 0.02)

    def test_shapes(self):
        for shape in ((1, 8, 8, 512, 512, 64), (2, 12, 12, 197, 197, 64), (1, 32, 8, 300, 300, 128), (1, 4, 4, 256, 256, 256), (2, 3, 3, 33, 500, 64)):
            for causal in (False, True):
                for dtype in (torch.float16, torch.bfloat16):
                    q, k, v = tensors(*shape, dtype=dtype)
                    with self.subTest(shape=shape, causal=causal, dtype=dtype):
                        try:
                            o = attune.sdpa(q, k, v, causal=causal)
                        except NotImplementedError as problem:
                            self.skipTest(str(problem))
                        self.assertEqual((o.shape, o.dtype), (q.shape, dtype))
                        self.compare(o, q, k, v, causal)

    def test_strides(self):
        q, k, v = (x.transpose(1, 2).contiguous().transpose(1, 2) for x in tensors(2, 8, 8, 256, 256, 64, torch.float16))
        self.compare(attune.sdpa(q, k, v), q, k, v)

    def test_stream_and_graph(self):
        q, k, v = tensors(1, 8, 8, 512, 512, 64, torch.float16)
        want = attune.sdpa(q, k, v)
        out = torch.zeros_like(q)
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            attune.sdpa(q, k, v, out=out)
        torch.cuda.current_stream().wait_stream(stream)
        torch.testing.assert_close(out, want, atol=0, rtol=0)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            captured = attune.sdpa(q, k, v)
        captured.zero_()
        graph.replay()
        torch.testing.assert_close(captured, want, atol=0, rtol=0)

    def test_compile(self):
        q, k, v = tensors(1, 8, 8, 512, 512, 64, torch.float16)
        compiled = torch.compile(lambda q, k, v: attune.sdpa(q * 2, k, v, causal=True) + 1, fullgraph=True)
        torch.testing.assert_close(compiled(q, k, v), attune.sdpa(q * 2, k, v, causal=True) + 1, atol=0, rtol=0)

    def test_operator(self):
        q, k, v = (attune.quantize(x) for x in tensors(1, 8, 8, 512, 512, 64))
        arguments = (q[0], k[0], v[0], q[1], k[1], v[1], True, 0.0, -1, -1, None, False)
        torch.library.opcheck(torch.ops.attune.sdpa.default, arguments, test_utils=("test_schema", "test_faketensor"))

    def test_patch(self):
        q, k, v = tensors(1, 8, 8, 512, 512, 64, torch.float16)
        with attune.patch():
            o = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        torch.testing.assert_close(o, attune.sdpa(q, k, v, causal=True), atol=0, rtol=0)

    def test_overhead(self):
        """The CPU time of a call with E4M3 tensors, printed; the GPU is not waited for."""
        (q, dq), (k, dk), (v, dv) = (attune.quantize(x) for x in tensors(1, 8, 8, 128, 128, 64))
        out = torch.empty(q.shape, dtype=torch.float16, device="cuda")
        descale = (dq, dk, dv)
        best = float("inf")
        for _ in range(20):
            torch.cuda.synchronize()
            start = time.perf_counter()
            for _ in range(50):
                attune.sdpa(q, k, v, descale=descale, out=out)
            best = min(best, (time.perf_counter() - start) / 50)
        print(f"CPU time of a call: {1e6 * best:.1f} us")


if __name__ == "__main__":
    unittest.main()
