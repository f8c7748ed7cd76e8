"""The shapes of PyTorch's own tests of scaled_dot_product_attention (test/test_transformers.py).

On a Hopper GPU attune computes them; on a CPU PyTorch does through fallback=True, with FP8 inputs.
"""

import itertools
import unittest

import package  # noqa: F401 (before attune)
import torch
import torch.nn.functional as functional

import attune
from attune import _reference

ON_GPU = torch.cuda.is_available() and torch.cuda.get_device_capability() == (9, 0) and package.double() is None
DEVICE = "cuda" if ON_GPU else "cpu"

BATCHES = (1, 8) if ON_GPU else (2,)
LENGTHS = (4, 7, 8, 64, 103, 127, 143, 256, 312, 512, 579, 1024, 2048) if ON_GPU else (4, 7, 103)
SUPPORTED = (64, 128, 256)
OTHER = (8, 16, 21, 32, 72, 96, 160, 192, 203)
GROUPS = ((4, 4), (16, 8), (10, 2))  # heads of q, of k and v

# What E4M3 costs on normal inputs, as docs/accuracy.md has it: 5.3 % of the RMS of O. Short
# sequences average over few keys, so that O is larger, and so is its error in absolute terms.
LARGEST_RELATIVE = 0.08


def tensors(batch, heads, kv_heads, queries, keys, head_dim, dtype):
    random = torch.Generator(DEVICE).manual_seed(batch + queries + keys)
    shapes = ((batch, heads, queries, head_dim), (batch, kv_heads, keys, head_dim), (batch, kv_heads, keys, head_dim))
    return [torch.randn(shape, generator=random, device=DEVICE, dtype=dtype) for shape in shapes]


def computed(q, k, v, causal, scale):
    """attune's result; on a CPU that of FP8 inputs by PyTorch."""
    if ON_GPU:
        return attune.sdpa(q, k, v, causal=causal, scale=scale)
    q8, k8, v8, descale = attune.quantize(q, k, v)
    return attune.sdpa(q8, k8, v8, causal=causal, scale=scale, descale=descale, out=torch.empty_like(q), fallback=True)


class Shapes(unittest.TestCase):
    def compare(self, batch, group, queries, keys, head_dim, causal, scale, dtype):
        q, k, v = tensors(batch, *group, queries, keys, head_dim, dtype)
        factor = 1 / head_dim if scale == "l1" else None
        got = computed(q, k, v, causal, factor)
        self.assertEqual((got.shape, got.dtype), (q.shape, dtype))
        want, _ = _reference.explicit(q, k, v, causal, factor, -1, -1, None)
        self.assertTrue(torch.isfinite(got).all())
        self.assertLess((got.float() - want).norm() / want.norm(), LARGEST_RELATIVE)

    def test_square(self):
        for batch, rows, head_dim, causal, scale in itertools.product(
            BATCHES, LENGTHS, SUPPORTED, (False, True), (None, "l1")
        ):
            with self.subTest(batch=batch, rows=rows, head_dim=head_dim, causal=causal, scale=scale):
                self.compare(batch, GROUPS[0], rows, rows, head_dim, causal, scale, torch.bfloat16)

    def test_other_numbers_of_keys(self):
        for queries, keys, head_dim, causal in itertools.product(
            LENGTHS[::2], LENGTHS[1::2], SUPPORTED[:2], (False, True)
        ):
            if causal and queries > keys:  # rows that see no key, which PyTorch does not test
                continue
            with self.subTest(queries=queries, keys=keys, head_dim=head_dim, causal=causal):
                self.compare(1, GROUPS[0], queries, keys, head_dim, causal, None, torch.float16)

    def test_groups(self):
        for group, rows, head_dim, causal in itertools.product(GROUPS[1:], LENGTHS[1::2], SUPPORTED[:2], (False, True)):
            with self.subTest(group=group, rows=rows, head_dim=head_dim, causal=causal):
                self.compare(2, group, rows, rows, head_dim, causal, None, torch.bfloat16)

    def test_other_head_dims(self):
        """A GPU computes multiples of 8 in 16 bits. Others raise NotImplementedError with the reason, or PyTorch
        computes them. attune.patch leaves all to PyTorch."""
        for head_dim, causal in itertools.product(OTHER, (False, True)):
            q, k, v = tensors(1, 4, 4, 103, 103, head_dim, torch.bfloat16)
            with self.subTest(head_dim=head_dim, causal=causal):
                want = functional.scaled_dot_product_attention(q, k, v, is_causal=causal)
                if ON_GPU and head_dim % 8 == 0:
                    off = attune.sdpa(q, k, v, causal=causal).float() - want.float()
                    self.assertLess(off.norm() / want.float().norm(), 0.01)
                    with self.assertRaisesRegex(NotImplementedError, f"head_dim is {head_dim}"):
                        attune.sdpa(q, k, v, causal=causal, precision="fp8")
                else:
                    with self.assertRaisesRegex(
                        NotImplementedError, f"head_dim is {head_dim}" if ON_GPU else "q is on cpu"
                    ):
                        attune.sdpa(q, k, v, causal=causal)
                    torch.testing.assert_close(attune.sdpa(q, k, v, causal=causal, fallback=True), want)
                with attune.patch() as calls:
                    torch.testing.assert_close(functional.scaled_dot_product_attention(q, k, v, is_causal=causal), want)
                self.assertEqual((calls.taken, calls.fallback), (0, 1))


if __name__ == "__main__":
    unittest.main()
