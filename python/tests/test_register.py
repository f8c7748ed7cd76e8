"""attune.register: the operators of PyTorch's flash attention, here for tensors on a CPU."""

import unittest
from unittest import mock

import package  # noqa: F401 (before attune)
import standin
import torch

import attune
from attune import _calls, _register

HAS_REGISTRY = hasattr(torch.nn.attention, "register_flash_attention_impl") and hasattr(torch.library, "get_kernel")
OPERATORS = torch.ops.aten


def random(*shape, seed=1):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).bfloat16()


class Original:
    """What PyTorch has for CUDA tensors, which a CPU cannot run: it keeps its calls, and its results are marked."""

    def __init__(self):
        self.calls = []

    def call_boxed(self, keys, *args, **named):
        self.calls.append((args, named))
        tensors = [x for x in (*args, *named.values()) if isinstance(x, torch.Tensor)]
        o, lse = torch.full_like(tensors[0], 7), torch.zeros(1)
        rest = (torch.zeros(2, dtype=torch.uint64), torch.zeros((), dtype=torch.uint64), torch.zeros(0))
        return (o, lse, None, None, 1, 1, *rest) if len(args) + len(named) < 8 else (o, lse, *rest)


@unittest.skipUnless(HAS_REGISTRY, "PyTorch is older than 2.11")
class Registered(unittest.TestCase):
    def setUp(self):
        self.original = Original()
        patches = (
            mock.patch.object(_register, "_KEY", "CPU"),
            mock.patch.object(torch.library, "get_kernel", lambda *_: self.original),
        )
        for patch in patches:
            patch.start()
            self.addCleanup(patch.stop)
        self.calls = attune.register()
        self.addCleanup(lambda: torch.nn.attention.restore_flash_attention_impl(_raise_warn=False))

    def expect(self, taken, fallback, reason=""):
        self.assertEqual((self.calls.taken, self.calls.fallback, len(self.original.calls)), (taken, fallback, fallback))
        self.assertIn(reason, str(self.calls))

    def test_dense(self):
        q, k = random(2, 4, 24, 64), random(2, 2, 40, 64, seed=2)
        with standin.library():
            o, lse, *_ = OPERATORS._scaled_dot_product_flash_attention(q, k, k, scale=0.2)
            square, *_ = OPERATORS._scaled_dot_product_flash_attention(q, q, q, 0.0, True)
        want, want_lse = attune.sdpa(q, k, k, scale=0.2, return_lse=True, fallback=True)
        torch.testing.assert_close((o, lse), (want, want_lse))
        torch.testing.assert_close(square, attune.sdpa(q, q, q, causal=True, fallback=True), rtol=0.02, atol=0.02)
        self.expect(2, 0)

    def test_calls_that_stay(self):
        q = random(1, 2, 24, 64)
        cases = [
            ((q, q, q, 0.1), "dropout"),
            ((q[:, :, :9], q, q, 0.0, True), "a causal mask that is not square"),
            ((q[..., :32],) * 3, "head dim 32"),
            ((q.float(),) * 3, "float32"),
        ]
        for n, (args, reason) in enumerate(cases, 1):
            with standin.library() as attend:
                o = OPERATORS._scaled_dot_product_flash_attention(*args)[0]
            self.assertEqual((attend.call_count, o.flatten()[0].item()), (0, 7))
            self.expect(0, n, reason)
        OPERATORS._scaled_dot_product_flash_attention(q, q, q)  # no GPU
        self.expect(0, 5, "q is on cpu")

    def test_gradient(self):
        """PyTorch computes the forward pass of what its backward pass differentiates."""
        q = random(1, 2, 24, 64).requires_grad_()
        with standin.library() as attend:
            OPERATORS._scaled_dot_product_flash_attention(q, q, q)
        self.assertEqual(attend.call_count, 0)
        self.expect(0, 1, "a gradient is wanted")

    def test_packed(self):
        """varlen_attn, whose causal mask and window end at the last key."""
        from torch.nn.attention import varlen

        q, k = random(20, 4, 64), random(31, 2, 64, seed=2)
        of_q, of_k = (torch.tensor(x, dtype=torch.int32) for x in ([0, 9, 20], [0, 13, 31]))
        for window in ((-1, -1), (-1, 0), (5, 0), (5, 3)):
            with standin.library(), torch.no_grad():
                o, lse = varlen.varlen_attn(q, k, k, of_q, of_k, 99, 99, window_size=window, enable_gqa=True,
                                            return_aux=varlen.AuxRequest(lse=True))  # fmt: skip
            want = attune.sdpa_varlen(q, k, k, of_q, of_k, 11, 18, window_size=window, return_lse=True, fallback=True)
            torch.testing.assert_close((o, lse), want)
        out = torch.empty_like(q)
        with standin.library(), torch.no_grad():
            varlen.varlen_attn_out(out, q, k, k, of_q, of_k, 11, 18, enable_gqa=True)
        torch.testing.assert_close(out, attune.sdpa_varlen(q, k, k, of_q, of_k, 11, 18, fallback=True),
                                   rtol=0.02, atol=0.01)  # fmt: skip
        self.expect(5, 0)

    def test_padded(self):
        q = random(2, 12, 4, 64)
        with standin.library():
            o, lse, *_ = OPERATORS._flash_attention_forward(q, q, q, None, None, 12, 12, 0.0, True, False)
        want = attune.sdpa(*(q.transpose(1, 2),) * 3, causal=True, return_lse=True, fallback=True)
        torch.testing.assert_close((o.transpose(1, 2), lse), want)
        with standin.library():
            OPERATORS._flash_attention_forward(q, q, q, None, None, 12, 12, 0.0, True, False, num_splits=1)
        self.expect(1, 1, "a number of splits")

    def test_pages(self):
        """A decode step over pages, which have rows before heads here."""
        from torch.nn.attention import varlen

        q, pages = random(3, 4, 64), random(5, 16, 2, 64, seed=2)
        table = torch.tensor([[4, 0], [2, 2], [1, 3]], dtype=torch.int32)
        lengths, of_q = torch.tensor([20, 3, 32], dtype=torch.int32), torch.arange(4, dtype=torch.int32)
        options = {"seqused_k": lengths, "block_table": table, "window_size": (-1, 0), "enable_gqa": True}
        with standin.library(), torch.no_grad():
            o = varlen.varlen_attn(q, pages, pages, of_q, None, 1, 32, **options)
        cache = pages.transpose(1, 2)
        want = attune.decode(q[:, :, None], cache, cache, lengths, page_table=table, fallback=True)[:, :, 0]
        torch.testing.assert_close(o, want, rtol=0.02, atol=0.01)
        with standin.library(), torch.no_grad():
            varlen.varlen_attn(random(30, 4, 64), pages, pages, of_q * 10, None, 10, 32, **options)
            varlen.varlen_attn(random(30, 4, 64), pages, pages, of_q * 10, None, 11, 32, **options)
        self.expect(2, 1, "a prefill over a paged cache")

    def test_precision(self):
        asked = []

        def sdpa(q, k, v, **options):
            asked.append(options.get("precision"))
            raise NotImplementedError("a test")

        q = random(1, 2, 24, 64)
        with mock.patch.object(_register, "sdpa", sdpa):
            OPERATORS._scaled_dot_product_flash_attention(q, q, q)
            attune.register(precision="16")
            OPERATORS._scaled_dot_product_flash_attention(q, q, q)
        self.assertEqual(asked, [None, "16"])

    def test_computed_precision(self):
        """A cache in 16 bits is read as it is, also with precision="fp8"."""
        from torch.nn.attention import varlen

        asked = []

        def explain(q, k, v, **options):
            asked.append({name: options.get(name) for name in ("lengths", "page_table", "cu_seqlens_q", "precision")})
            return attune.Explanation("form", "decode", "16" if "lengths" in options else "fp8", 1, 0, 0.1, "a test")

        q, rows, pages = random(1, 2, 24, 64), random(20, 2, 64), random(2, 16, 2, 64)
        offsets, lengths = torch.tensor([0, 20], dtype=torch.int32), torch.tensor([20], dtype=torch.int32)
        table = torch.tensor([[0, 1]], dtype=torch.int32)
        calls = attune.register(precision="fp8")
        with standin.library(), torch.no_grad():
            OPERATORS._scaled_dot_product_flash_attention(q, q, q)
            varlen.varlen_attn(rows, rows, rows, offsets, offsets, 20, 20)
            varlen.varlen_attn(rows[:1], pages, pages, offsets // 20, None, 1, 32, seqused_k=lengths, block_table=table)
        with mock.patch.object(_calls, "explain", explain):
            rows = list(calls.rows)
        self.assertEqual([call["precision"] for call in asked], ["fp8", "fp8", None])
        self.assertEqual([call["cu_seqlens_q"] is not None for call in asked], [False, True, False])
        self.assertEqual((asked[2]["page_table"].shape, asked[2]["page_table"].dtype), (table.shape, torch.int32))
        self.assertEqual([row.precision for row in rows], ["fp8", "fp8", "16"])

    def test_restore(self):
        self.assertEqual(torch.nn.attention.current_flash_attention_impl(), "attune")
        torch.nn.attention.restore_flash_attention_impl()
        self.assertIsNone(torch.nn.attention.current_flash_attention_impl())
        q = random(1, 2, 24, 64)
        with self.assertRaises(NotImplementedError):  # no kernel for a CPU
            OPERATORS._scaled_dot_product_flash_attention(q, q, q)
        torch.nn.attention.activate_flash_attention_impl("attune")
        OPERATORS._scaled_dot_product_flash_attention(q, q, q)
        self.expect(0, 1)

    def test_missing_operator(self):
        """An operator that this PyTorch does not have is left out."""
        torch.nn.attention.restore_flash_attention_impl(_raise_warn=False)
        with mock.patch.dict(_register._ATTEMPTS, {"_flash_attention_of_another_version": _register._dense}):
            self.calls = attune.register()
        self.expect(0, 0)


class Kernels(unittest.TestCase):
    @unittest.skipUnless(HAS_REGISTRY and torch.version.cuda, "PyTorch is older than 2.11, or has no CUDA")
    def test_cuda(self):
        """The kernels of CUDA are exchanged, and are PyTorch's again afterwards."""
        before = repr(torch.library.get_kernel("aten::_flash_attention_forward", "CUDA"))
        attune.register()
        during = repr(torch.library.get_kernel("aten::_flash_attention_forward", "CUDA"))
        torch.nn.attention.restore_flash_attention_impl()
        self.assertNotEqual(during, before)
        self.assertEqual(repr(torch.library.get_kernel("aten::_flash_attention_forward", "CUDA")), before)

    def test_old_pytorch(self):
        with mock.patch.object(torch, "library", object()):
            with self.assertRaisesRegex(NotImplementedError, r"needs PyTorch 2.11 or later; with attune.patch\(\)"):
                attune.register()


if __name__ == "__main__":
    unittest.main()
