"""attune.patch without a GPU: which calls it takes, of fake tensors, and which stay PyTorch's."""

import threading
import unittest
import warnings

import package  # before attune
import torch
import torch.nn.functional as functional
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.autograd import forward_ad
from torch.nn.attention import SDPBackend, sdpa_kernel

import attune
from attune import _patch

ORIGINAL = functional.scaled_dot_product_attention


def cuda(*shape, dtype=torch.bfloat16, **options):
    return torch.empty(shape, dtype=dtype, device="cuda", **options)


class Patch(unittest.TestCase):
    def counted(self, *args, **options):
        """(taken, fallback) of one call."""
        with attune.patch() as calls:
            functional.scaled_dot_product_attention(*args, **options)
        return calls.taken, calls.fallback

    def takes(self, *args, **options):
        self.assertEqual(self.counted(*args, **options), (1, 0), options)

    def leaves(self, *args, **options):
        self.assertEqual(self.counted(*args, **options), (0, 1), options)

    @unittest.skipIf(package.cannot_fake_cuda(), package.cannot_fake_cuda())
    def test_calls_that_are_taken(self):
        with FakeTensorMode():
            q, k = cuda(2, 8, 64, 64), cuda(2, 2, 64, 64)
            self.takes(q, q, q)
            self.takes(q, q, q, is_causal=True)
            self.takes(q, k, k, scale=0.3, enable_gqa=True)
            self.takes(q, k, k, scale=1, enable_gqa=True)
            self.takes(torch.nn.Parameter(q, requires_grad=False), q, q)
            self.takes(q[:, :, :1], k, k, enable_gqa=True)  # decoding reads K and V once, as they are
            strided = cuda(2, 64, 3, 8, 128)
            self.takes(*(strided[:, :, i].transpose(1, 2) for i in range(3)))
            with torch.no_grad():
                self.takes(q.requires_grad_(), q, q)

    @unittest.skipIf(package.cannot_fake_cuda(), package.cannot_fake_cuda())
    def test_calls_that_stay(self):
        with FakeTensorMode():
            q, k = cuda(2, 8, 64, 64), cuda(2, 2, 64, 64)
            self.leaves(q, q, q, dropout_p=0.1)
            self.leaves(q, q, q, attn_mask=cuda(64, 64, dtype=torch.bool))
            self.leaves(q[:, :, 1:], q, q, is_causal=True)
            self.leaves(q[0], q[0], q[0])
            self.leaves(q[:, None], q[:, None], q[:, None])
            self.leaves(q.float(), q.float(), q.float())
            self.leaves(q, q[:1], q[:1])  # broadcast
            self.leaves(q, q[:, :1], q[:, :1])
            self.leaves(q, q, cuda(2, 8, 64, 128))  # values of another head dim
            self.leaves(*(cuda(2, 8, 64, 96),) * 3)
            self.leaves(q, q, q, scale=-1.0)
            self.leaves(q.requires_grad_(), q, q)
            self.leaves(cuda(2, 64, 16, 64), cuda(2, 1, 4096, 64), cuda(2, 1, 4096, 64), enable_gqa=True)  # 1024 rows
            self.leaves(q[:0], q[:0], q[:0])

    def test_tensor_as_scale(self):
        """PyTorch takes it, and attune must not raise."""
        q = torch.randn(1, 2, 8, 64)
        scale = torch.tensor(0.5)
        with FakeTensorMode():
            fake = cuda(1, 2, 8, 64)
            self.assertTrue(_patch._takes(fake, fake, fake, False, 0.5, False))
            self.assertFalse(_patch._takes(fake, fake, fake, False, scale, False))
        with attune.patch():
            got = functional.scaled_dot_product_attention(q, q, q, scale=scale)
        torch.testing.assert_close(got, ORIGINAL(q, q, q, scale=0.5))

    def test_other_tensors(self):
        """On a CPU, nested and subclasses: what PyTorch computes."""
        q = torch.randn(2, 4, 9, 64).bfloat16()
        nested = torch.nested.nested_tensor([q[0].transpose(0, 1), q[0, :, :5].transpose(0, 1)], layout=torch.jagged)
        nested = nested.transpose(1, 2)

        class Sub(torch.Tensor):
            pass

        for args in ((q, q, q), (q.as_subclass(Sub), q, q), (nested, nested, nested), (q[:, :1], q, q)):
            with attune.patch() as calls:
                got = functional.scaled_dot_product_attention(*args)
            self.assertEqual((calls.taken, calls.fallback), (0, 1))
            self.assertEqual(type(got), type(ORIGINAL(*args)))

    def test_autocast(self):
        """PyTorch's function converts its arguments, so that the patch does."""
        with FakeTensorMode():
            q = cuda(2, 8, 64, 64)
            before = torch.is_autocast_enabled("cuda"), torch.get_autocast_dtype("cuda")
            self.addCleanup(lambda: (torch.set_autocast_enabled("cuda", before[0]),
                                     torch.set_autocast_dtype("cuda", before[1])))  # fmt: skip
            torch.set_autocast_enabled("cuda", True)
            torch.set_autocast_dtype("cuda", torch.float16)
            with attune.patch() as calls:
                o = functional.scaled_dot_product_attention(q.float(), q, q.half())
            self.assertEqual((calls.taken, o.dtype), (1, torch.float16))
            torch.set_autocast_enabled("cuda", False)

    @unittest.skipIf(package.cannot_fake_cuda(), package.cannot_fake_cuda())
    def test_chosen_backends(self):
        with FakeTensorMode():
            q = cuda(2, 8, 64, 64)
            for backends in (SDPBackend.MATH, [SDPBackend.MATH, SDPBackend.EFFICIENT_ATTENTION]):
                with sdpa_kernel(backends):
                    self.leaves(q, q, q)
            self.takes(q, q, q)

    def test_transforms(self):
        q = torch.randn(2, 1, 4, 9, 64).bfloat16()
        with attune.patch() as calls, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            torch.vmap(lambda x: functional.scaled_dot_product_attention(x, x, x))(q)
            self.assertEqual(calls.fallback, 1)
            with FakeTensorMode(), forward_ad.dual_level():
                x = cuda(2, 8, 64, 64)
                dual = forward_ad.make_dual(x, torch.ones_like(x))
                self.assertFalse(_patch._takes(dual, x, x, False, None, False))

    def test_nesting(self):
        q = torch.randn(1, 2, 8, 64)
        with attune.patch() as outer:
            patched = functional.scaled_dot_product_attention
            self.assertIsNot(patched, ORIGINAL)
            with attune.patch() as inner:
                got = functional.scaled_dot_product_attention(q, q, q, is_causal=True)
            torch.testing.assert_close(got, ORIGINAL(q, q, q, is_causal=True))
            functional.scaled_dot_product_attention(q, q, q)
        self.assertEqual((outer.fallback, inner.fallback), (1, 1))
        self.assertIs(functional.scaled_dot_product_attention, ORIGINAL)
        torch.testing.assert_close(patched(q, q, q), ORIGINAL(q, q, q))  # a reference that was kept

    def test_again(self):
        """What patch returns is entered again, also within its own block, and is a decorator."""
        q, again = torch.randn(1, 2, 8, 64), attune.patch()
        for _ in range(2):
            with again as outer:
                with again as inner:
                    functional.scaled_dot_product_attention(q, q, q)
                functional.scaled_dot_product_attention(q, q, q)
            self.assertEqual((outer.fallback, inner.fallback), (1, 1))
            self.assertIs(functional.scaled_dot_product_attention, ORIGINAL)
        self.assertIsNot(again(lambda: functional.scaled_dot_product_attention)(), ORIGINAL)
        self.assertIs(functional.scaled_dot_product_attention, ORIGINAL)

    def test_threads(self):
        """Blocks of two threads that end in the order of their beginnings leave nothing behind."""
        entered, leave = threading.Event(), threading.Event()

        def other():
            with attune.patch():
                entered.set()
                leave.wait()

        thread = threading.Thread(target=other)
        with attune.patch():
            thread.start()
            entered.wait()
        self.assertIsNot(functional.scaled_dot_product_attention, ORIGINAL)
        leave.set()
        thread.join()
        self.assertIs(functional.scaled_dot_product_attention, ORIGINAL)

    def test_patch_of_another_program(self):
        """A function that was there before, or that came later, stays in place."""
        seen = []

        def theirs(*args, **options):
            seen.append(1)
            return ORIGINAL(*args, **options)

        q = torch.randn(1, 2, 8, 64)
        self.addCleanup(setattr, functional, "scaled_dot_product_attention", ORIGINAL)
        functional.scaled_dot_product_attention = theirs
        with attune.patch():
            functional.scaled_dot_product_attention(q, q, q)
        self.assertEqual(seen, [1])
        self.assertIs(functional.scaled_dot_product_attention, theirs)
        functional.scaled_dot_product_attention = ORIGINAL
        with attune.patch():
            functional.scaled_dot_product_attention = theirs
        self.assertIs(functional.scaled_dot_product_attention, theirs)


if __name__ == "__main__":
    unittest.main()
