"""The argument precision and attune.explain without a GPU: what the library is given, and what is refused."""

import dataclasses
import unittest
from types import SimpleNamespace
from unittest import mock

import package  # noqa: F401 (before attune)
import params
import test_call
import torch
import torch.nn.functional as functional
from torch._subclasses.fake_tensor import FakeTensorMode

import attune
from attune import _operators, _patch

FP8 = torch.float8_e4m3fn
NAMES = {"auto": 0, "fp8": 1, "16": 2}


def cache(dtype=torch.bfloat16):
    """The arguments of decode: q, the caches, and lengths."""
    q, k = test_call.random(3, 8, 1, 64), test_call.random(3, 2, 70, 64).to(dtype)
    return q, k, k, torch.ones(3, dtype=torch.int32)


def packed():
    """The arguments of sdpa_varlen."""
    q, cu = test_call.random(9, 4, 64), torch.tensor([0, 4, 9], dtype=torch.int32)
    return q, q, q, cu, cu, 5, 5


class Precision(test_call.WithDouble):
    def test_what_the_library_is_given(self):
        q = test_call.random(1, 2, 8, 64)
        for name, number in NAMES.items():
            computed = "".join(list(name))  # another object than the interned string
            for call in (
                lambda: attune.sdpa(q, q, q, precision=computed),
                lambda: attune.sdpa_varlen(*packed(), precision=name),
                lambda: attune.decode(*cache(), precision=name),
            ):
                call()
                self.expect(self.received(), precision=number)
        attune.sdpa(q, q, q)
        self.expect(self.received(), precision=0)

    def test_workspaces_are_those_of_the_precision(self):
        q = test_call.random(1, 2, next(test_call.FRESH), 64)
        for size, name in ((100, "fp8"), (200, "16"), (300, "auto")):
            self.answer(0, workspace=size)
            attune.sdpa(q, q, q, precision=name)
        self.assertEqual([size for _, _, size in self.asked], [100, 200, 300])

    def test_patch(self):
        """The block that was entered last decides. Tensors on a CPU count as those of a GPU here."""
        q = test_call.random(1, 2, 20, 64)
        with mock.patch.object(_patch, "_takes", lambda *args: True):
            with attune.patch(precision="fp8"):
                functional.scaled_dot_product_attention(q, q, q)
                self.expect(self.received(), precision=1)
                with attune.patch("16"):
                    functional.scaled_dot_product_attention(q, q, q)
                    self.expect(self.received(), precision=2)
                functional.scaled_dot_product_attention(q, q, q)
                self.expect(self.received(), precision=1)
            with attune.patch():
                functional.scaled_dot_product_attention(q, q, q)
                self.expect(self.received(), precision=0)
        with self.assertRaisesRegex(ValueError, "precision is '8'"), attune.patch("8"):
            pass


class Refused(unittest.TestCase):
    def refused(self, text, function, *args, **options):
        for call in (function, attune.explain):
            if call is attune.explain and function is not attune.sdpa:
                continue
            with self.assertRaisesRegex(ValueError, text):
                call(*args, **options)

    def test_arguments(self):
        q = test_call.random(1, 2, 8, 64)
        q8, f = q.to(FP8), torch.ones(1, 2)
        for value in (16, None, "8", "bf16", ("16",)):
            self.refused('precision is .*, not "auto", "fp8" or "16"', attune.sdpa, q, q, q, precision=value)
        self.refused("q is torch.float8_e4m3fn: E4M3 tensors are computed in FP8", attune.sdpa, q8, q8, q8,
                     descale=(f, f, f), precision="16")  # fmt: skip
        for option in ("smooth_k", "hadamard"):
            self.refused(f'{option} is set, and precision is "16"', attune.sdpa, q, q, q, precision="16",
                         **{option: True})  # fmt: skip
        self.refused("precision is 16", attune.sdpa_varlen, *packed(), precision=16)
        descale = (torch.ones(3, 2), torch.ones(3, 2))
        self.refused("k is torch.float8_e4m3fn", attune.decode, *cache(FP8), descale=descale, precision="16")
        self.refused("precision is 16", attune.decode, *cache(), precision=16)

    def test_fallback(self):
        """PyTorch computes in the given type, whatever the precision."""
        q = test_call.random(1, 2, 8, 64)
        want = attune.sdpa(q, q, q, fallback=True)
        for name in NAMES:
            torch.testing.assert_close(attune.sdpa(q, q, q, precision=name, fallback=True), want, rtol=0, atol=0)
            attune.sdpa_varlen(*packed(), precision=name, fallback=True)
            attune.decode(*cache(), precision=name, fallback=True)

    def test_operators(self):
        """Graphs keep the argument, which is behind those of earlier schemas and has a default."""
        schema = str(_operators._sdpa_op._opoverload._schema)
        self.assertIn('bool fallback=False, str precision="auto",', schema)
        q, seen = test_call.random(1, 2, 8, 64), []

        def attention(call, fallback):
            seen.append((call.precision, fallback))
            return run(call, fallback)

        run = _operators._run
        with mock.patch.object(_operators, "_run", attention):
            function = lambda x: attune.sdpa(x, x, x, precision="16", fallback=True)
            compiled = torch.compile(function, backend="aot_eager", fullgraph=True)
            torch.testing.assert_close(compiled(q), attune.sdpa(q, q, q, fallback=True))
        self.assertIn(("16", True), seen)
        arguments = (q, q, q, None, None, None, False, -1.0, -1, -1, None, False)
        options = {"fallback": True, "precision": "16"}
        torch.library.opcheck(_operators._sdpa_op, arguments, options)


class Explain(test_call.WithDouble):
    def shape(self, *shape, dtype=torch.bfloat16):
        return torch.empty(shape, dtype=dtype, device="meta")

    def test_dense(self):
        q, k = self.shape(2, 8, 5, 64), self.shape(2, 2, 7, 64)
        self.answer(0, workspace=4000)
        found = attune.explain(q, k, k, causal=True, window_size=(3, 0), return_lse=True, precision="fp8")
        want = attune.Explanation("form", "kernel", "16", 2, 4000, 0.5, "the double says so", "sm_90")
        self.assertEqual(found, want)
        self.assertEqual(self.asked, [])  # no memory
        p = params.Forward.in_dll(test_call.DOUBLE, "double_forward")
        self.expect(p, batch=2, heads=8, kv_heads=2, queries=5, keys=7, head_dim=64)
        self.expect(p, precision=1, causal=1, dtype=3, q_dtype=0)
        self.expect(p, window_left=3, window_right=0, has_window=1, out_dtype=3, k_stride=(2 * 7 * 64, 7 * 64, 64))
        self.assertTrue(p.lse and p.workspace and not p.sinks)
        with self.assertRaises(dataclasses.FrozenInstanceError):
            found.form = "other"
        self.assertEqual(
            str(found),
            "kernel     kernel, form form\ngpu        sm_90\nprecision  16, documented error 0.5\n"
            "launches   2 launches, 4000 bytes of workspace\nreason     the double says so",
        )

    def test_sequences(self):
        q, cu = self.shape(9, 4, 64), self.shape(3, dtype=torch.int32)
        attune.explain(q, q, q, cu_seqlens_q=cu, cu_seqlens_k=cu, max_seqlen_q=5, max_seqlen_k=6)
        p = params.Forward.in_dll(test_call.DOUBLE, "double_forward")
        self.expect(p, batch=2, queries=5, keys=6, total_queries=9, total_keys=9, causal=0)
        self.assertTrue(p.cu_queries and p.cu_keys)
        pages, f = self.shape(10, 2, 16, 64, dtype=FP8), self.shape(3, 2, dtype=torch.float32)
        table, lengths = self.shape(3, 4, dtype=torch.int32), self.shape(3, dtype=torch.int32)
        attune.explain(self.shape(3, 8, 1, 64), pages, pages, lengths=lengths, page_table=table, descale=(f, f))
        p = params.Forward.in_dll(test_call.DOUBLE, "double_forward")
        self.expect(p, dtype=1, q_dtype=3, keys=64, page_size=16, pages=10, max_pages=4, causal=1)
        self.assertTrue(p.key_lengths and p.page_table and p.descale_k and not p.descale_q)

    def test_any_tensors(self):
        with FakeTensorMode():
            q = torch.empty(2, 5, 8, 64, dtype=torch.float16, device="cuda").transpose(1, 2)
            self.assertEqual(attune.explain(q, q, q).kernel, "kernel")
            self.expect(params.Forward.in_dll(test_call.DOUBLE, "double_forward"), q_stride=(5 * 8 * 64, 64, 8 * 64),
                        o_stride=(5 * 8 * 64, 64, 8 * 64))  # fmt: skip
        x = test_call.random(2, 3, 5, 64)
        attune.explain(x[:, :1].expand(2, 3, 5, 64), x, x)  # what the call would copy
        self.expect(params.Forward.in_dll(test_call.DOUBLE, "double_forward"), q_stride=(3 * 5 * 64, 5 * 64, 64))

    def test_smooth_k_with_lse(self):
        q = self.shape(2, 3, 5, 64)
        found = attune.explain(q, q, q, smooth_k=True, return_lse=True)
        self.assertRegex(found.reason, "operators of PyTorch correct the log-sum-exp")
        self.expect(params.Forward.in_dll(test_call.DOUBLE, "double_forward"), dtype=1, smooth_k=0, out_dtype=3)

    def test_gpu(self):
        q = self.shape(2, 3, 5, 64)
        found = attune.explain(q, q, q, arch="sm_89", multiprocessors=58)
        self.expect(params.Forward.in_dll(test_call.DOUBLE, "double_forward"), arch=89, multiprocessors=58)
        self.assertEqual(found.arch, "sm_89")
        self.assertEqual(attune.explain(q, q, q, arch="sm_90a", multiprocessors=132).arch, "sm_90")
        self.assertEqual(attune.explain(q, q, q).arch, "sm_90")
        for arch, multiprocessors in (("L4", 58), (89, 58), ("sm_", 58), (None, 58), ("sm_89", None), ("sm_89", 0),
                                      ("sm_89", True), ("sm_89", 2**24 + 1)):
            with self.assertRaisesRegex(ValueError, "^(arch|multiprocessors) is "):
                attune.explain(q, q, q, arch=arch, multiprocessors=multiprocessors)

    def test_smooth_k_of_the_current_gpu(self):
        """Tensors that are on no GPU are planned for the current one, whose kernels may correct the log-sum-exp."""
        q = self.shape(2, 3, 5, 64)
        on_h200 = attune.explain(q, q, q, smooth_k=True, return_lse=True)
        facts = SimpleNamespace(major=8, minor=9, multi_processor_count=58)
        with (
            mock.patch.object(torch.cuda, "is_initialized", lambda: True),
            mock.patch.object(torch.cuda, "current_device", lambda: 0),
            mock.patch.object(torch.cuda, "get_device_properties", lambda device: facts),
        ):
            on_l4 = attune.explain(q, q, q, smooth_k=True, return_lse=True)
        named = attune.explain(q, q, q, smooth_k=True, return_lse=True, arch="sm_89", multiprocessors=58)
        self.assertEqual(on_l4.launches, named.launches)
        self.assertNotEqual(on_l4.reason, on_h200.reason)

    def test_what_has_no_kernel(self):
        q = self.shape(2, 3, 5, 64)
        self.answer(2, "sinks are too deep")
        want = "sinks are too deep; fallback=True computes it by PyTorch"
        self.assertEqual(attune.explain(q, q, q), attune.Explanation(None, "pytorch", None, 0, 0, None, want))
        self.answer(0)
        self.assertRegex(attune.explain(q[..., :60], q[..., :60], q[..., :60]).reason, "head_dim is 60; .* by PyTorch")
        self.assertEqual(attune.explain(*[self.shape(2, 3, 5, 72)] * 3).kernel, "kernel")
        self.assertRegex(attune.explain(q.clone().requires_grad_(), q, q).reason, "no backward pass")
        self.assertEqual(attune.explain(q, q[:, :, :0], q[:, :, :0]).kernel, "none")
        self.assertEqual(str(attune.explain(q, q[:, :, :0], q[:, :, :0])).count("\n"), 1)

    def test_words_of_the_package(self):
        """The library's own words are those of C: addresses and names of constants."""
        q = self.shape(2, 3, 5, 64)
        for told, wanted in (
            ("tree_mask is 0x7f36e0001a00; with it q must be FP16, without hadamard and ATTUNE_SDPA_PRECISION_FP8, "
             "and the library exported with prefill16", 'tree_mask is given; with it q must be FP16, without hadamard and precision="fp8"'),
            ("page_table is 0x101100000000; paged k and v must be in E4M3", "page_table is given; paged k and v must be in E4M3"),
            ("precision is ATTUNE_SDPA_PRECISION_16; no form has it", 'precision is "16"; no form has it'),
            ("key_lengths is 0x10; so it must be NULL", "lengths is given; so it must be None"),
            ("cu_keys is NULL; beside cu_queries", "cu_seqlens_k is None; beside cu_seqlens_q"),
            ("q_stride[1] is 72; it must be a multiple of 16", "a stride of q is 72; it must be a multiple of 16"),
            ("k is ATTUNE_SDPA_E4M3", "k is E4M3"),
            ("q_dtype is 3 and out_dtype 2; on sm_89 both", "the dtype of q is BF16 and that of o FP16; on sm_89 both"),
            ("q_dtype is ATTUNE_SDPA_E4M3, which sm_80", "the dtype of q is E4M3, which sm_80"),
            ("dtype is 1, head_dim 264", "dtype is E4M3, head_dim 264"),
        ):  # fmt: skip
            self.answer(2, told)
            self.assertEqual(attune.explain(q, q, q).reason, f"{wanted}; fallback=True computes it by PyTorch")

    def test_precision_fp8_of_caches(self):
        q, pages, n = self.shape(3, 8, 1, 64), self.shape(10, 2, 16, 64), self.shape(3, dtype=torch.int32)
        table, cu = self.shape(3, 4, dtype=torch.int32), self.shape(4, dtype=torch.int32)
        f = self.shape(3, 2, dtype=torch.float32)
        found = attune.explain(q, *[pages.to(FP8)] * 2, lengths=n, page_table=table, descale=(f, f))
        self.assertTrue(found.of_codes)  # the error is not that of a cache that attune quantises
        self.assertIn("documented error 0.5 over the E4M3 k and v as given\n", str(found))
        self.assertFalse(attune.explain(q, pages, pages, lengths=n, page_table=table).of_codes)
        found = attune.explain(q, pages, pages, lengths=n, page_table=table, precision="fp8")
        self.assertRegex(found.reason, '^precision is "fp8", and k_cache is torch.bfloat16, in pages: no quantiser')
        caches = self.shape(3, 2, 64, 64)
        given = {"lengths": n, "cu_seqlens_q": cu, "max_seqlen_q": 1, "precision": "fp8"}
        self.assertRegex(attune.explain(q[:, :, 0], caches, caches, **given).reason, "^precision .*, of packed queries: no")
        self.assertEqual(attune.explain(q, caches, caches, lengths=n, precision="fp8").kernel, "kernel")

    def test_wrong_arguments(self):
        q, n = self.shape(2, 3, 5, 64), self.shape(2, dtype=torch.int32)
        with self.assertRaisesRegex(ValueError, "page_table is given, and lengths is None"):
            attune.explain(q, q, q, page_table=n)
        with self.assertRaisesRegex(ValueError, "a cache has no such option"):
            attune.explain(q, q, q, lengths=n, smooth_k=True)
        with self.assertRaisesRegex(TypeError, "cu_seqlens_k is None"):
            attune.explain(q[0], q[0], q[0], cu_seqlens_q=n, max_seqlen_q=3)
        with self.assertRaisesRegex(ValueError, "scale is -1"):
            attune.explain(q, q, q, scale=-1)
        cu = self.shape(3, dtype=torch.int32)
        for text, given in (("max_seqlen_q is a NoneType", {}), ("max_seqlen_k is a NoneType", {"max_seqlen_q": 3})):
            with self.assertRaisesRegex(TypeError, text):  # as sdpa_varlen and prefill say it
                attune.explain(q[0], q[0], q[0], cu_seqlens_q=cu, cu_seqlens_k=cu, **given)
        with self.assertRaisesRegex(TypeError, "max_seqlen_q is a NoneType"):
            attune.explain(q[0], q, q, cu_seqlens_q=cu, lengths=n)


if __name__ == "__main__":
    unittest.main()
