"""attune.prefill and attune.merge without a GPU."""

import unittest

import package  # before attune
import params
import test_call
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

import attune
from attune import _operators, _reference

FP8 = torch.float8_e4m3fn
QUERIES, KEYS = (4, 0, 1, 7), (20, 9, 33, 7)  # of each sequence: a chunk, none, a decode step, a prompt


def offsets(lengths):
    return torch.tensor([0, *lengths], dtype=torch.int32).cumsum(0, dtype=torch.int32)


def problem(paged, dtype, q_dtype=torch.bfloat16, heads=4, kv_heads=2, dim=64):
    """The arguments of prefill. Pages are in any order, and keys behind the last one are NaN."""
    random = torch.Generator().manual_seed(3)
    q = torch.randn(sum(QUERIES), heads, dim, generator=random).to(q_dtype)
    lengths, capacity = torch.tensor(KEYS, dtype=torch.int32), 48
    caches = [torch.randn(len(KEYS), kv_heads, capacity, dim, generator=random) for _ in "kv"]
    for cache in caches:
        for b, n in enumerate(KEYS):
            cache[b, :, n:] = torch.nan
    options = {}
    if dtype == FP8:
        options["descale"] = tuple(0.5 + torch.rand(len(KEYS), kv_heads, generator=random) for _ in "kv")
    if paged:
        size = 16
        order = torch.randperm(len(KEYS) * capacity // size, generator=random)
        options["page_table"] = order.view(len(KEYS), -1).int()
        pages = [x.unflatten(2, (-1, size)).transpose(1, 2).flatten(0, 1) for x in caches]
        caches = [torch.empty_like(x).index_copy_(0, order, x) for x in pages]
    return (q, *(x.to(dtype) for x in caches), lengths, offsets(QUERIES), max(QUERIES)), options


def by_sequences(arguments, options, causal=True, window=(-1, -1), sinks=None, softcap=None):
    """(o, lse) in float32, each sequence by itself over its own keys."""
    q, k, v, lengths, cu, _ = arguments
    table, descale = options.get("page_table"), options.get("descale")
    parts, lses = [], []
    for b, n in enumerate(lengths.tolist()):
        keys = []
        for i, cache in enumerate((k, v)):
            x = cache.float()
            x = x[b] if table is None else torch.cat(list(x[table[b].long()]), dim=1)
            x = x[None, :, :n]
            keys.append(x if descale is None else x * descale[i][b][None, :, None, None])
        rows = q[cu[b] : cu[b + 1]].float().transpose(0, 1)[None]
        if rows.shape[2] == 0:
            continue
        o, lse = _reference.explicit(rows, *keys, causal, None, *window, sinks, softcap=softcap)
        parts.append(o[0].transpose(0, 1))
        lses.append(lse[0])
    return torch.cat(parts), torch.cat(lses, dim=1)


class Prefill(unittest.TestCase):
    def test_fallback(self):
        for paged in (False, True):
            for dtype in (FP8, torch.bfloat16, torch.float16):
                q_dtype = torch.bfloat16 if dtype == FP8 else dtype
                arguments, given = problem(paged, dtype, q_dtype)
                for options in ({}, {"causal": False}, {"window_size": (5, 0)}, {"sinks": torch.randn(4)}):
                    with self.subTest(paged=paged, dtype=dtype, **options):
                        o, lse = attune.prefill(*arguments, **given, **options, return_lse=True, fallback=True)
                        want, want_lse = by_sequences(
                            arguments, given, options.get("causal", True), options.get("window_size", (-1, -1)),
                            options.get("sinks"),
                        )  # fmt: skip
                        self.assertEqual((o.dtype, o.shape, lse.shape), (q_dtype, arguments[0].shape, (4, 12)))
                        torch.testing.assert_close(o.float(), want, atol=0.02, rtol=0.02)
                        torch.testing.assert_close(lse, want_lse, atol=1e-3, rtol=1e-3)
                        plain = attune.prefill(*arguments, **given, **options, fallback=True)
                        torch.testing.assert_close(plain, o, atol=0.02, rtol=0.02)

    def test_last_queries_equal_decode(self):
        """One query of each sequence is a decode step."""
        (q, k, v, lengths, _, _), given = problem(True, FP8)
        o = attune.prefill(q[:4], k, v, lengths, offsets((1, 1, 1, 1)), 1, **given, fallback=True)
        step = attune.decode(q[:4, :, None], k, v, lengths, **given, fallback=True)
        torch.testing.assert_close(o, step[:, :, 0], atol=0.01, rtol=0.01)

    def test_shared_dtype(self):
        """Queries in E4M3 come with their own factors and give FP16; out decides otherwise."""
        (q, *rest), given = problem(False, FP8)
        q8, factor = q.to(FP8), torch.full((len(KEYS), 4), 0.5)
        given["descale"] = (factor, *given["descale"])
        o = attune.prefill(q8, *rest, **given, fallback=True)
        want, _ = by_sequences((q8.float() * 0.5, *rest), {**given, "descale": given["descale"][1:]})
        self.assertEqual(o.dtype, torch.float16)
        torch.testing.assert_close(o.float(), want, atol=0.02, rtol=0.02)
        out = torch.empty_like(q)
        self.assertIs(attune.prefill(q8, *rest, **given, out=out, fallback=True), out)

    def test_compile(self):
        arguments, given = problem(True, FP8)
        function = lambda *args: attune.prefill(*args, **given, return_lse=True, fallback=True)
        compiled = torch.compile(function, backend="aot_eager", fullgraph=True)(*arguments)
        torch.testing.assert_close(compiled, function(*arguments))
        (q, k, v, lengths, cu, most), given = problem(True, torch.bfloat16)
        operator = (q, k, v, None, None, None, True, -1.0, -1, -1, None, True, False, False, cu, None, most, 0,
                    lengths, given["page_table"], True)  # fmt: skip
        torch.library.opcheck(_operators._sdpa_op, operator)

    def test_fake_tensors(self):
        with FakeTensorMode():
            q, cache = (torch.empty(s, dtype=torch.bfloat16, device="cuda") for s in ((9, 8, 64), (3, 2, 70, 64)))
            n, cu = (torch.empty(s, dtype=torch.int32, device="cuda") for s in (3, 4))
            o, lse = attune.prefill(q, cache, cache, n, cu, 5, return_lse=True)
            self.assertEqual((o.shape, o.dtype, lse.shape), (q.shape, q.dtype, (8, 9)))

    def test_arguments(self):
        (q, k, v, lengths, cu, most), given = problem(False, FP8)

        def refused(text, *args, error=ValueError, **options):
            with self.assertRaisesRegex(error, text):
                attune.prefill(*args, **{**given, **options})

        refused("q has 4 dimensions, not 3", q[None], k, v, lengths, cu, most)
        refused("k_cache has 3 dimensions, not 4", q, k[0], v[0], lengths, cu, most)
        refused(r"k_cache is .*, and cu_seqlens_q has 3 sequences: batch differs", q, k, v, lengths, cu[:4], most)
        refused(r"lengths is torch.int32 \[3\], not int32 \[4\]", q, k, v, lengths[:3], cu, most)
        refused("lengths is a NoneType", q, k, v, None, cu, most, error=TypeError)
        refused("cu_seqlens_q is None", q, k, v, lengths, None, most, error=TypeError)
        refused("max_seqlen_q is 13: it must be from 0 to 12", q, k, v, lengths, cu, 13)
        refused("k_cache is .*: head_dim differs", q[..., :32], k, v, lengths, cu, most)
        refused("descale is missing", q, k, v, lengths, cu, most, descale=None)
        refused(r"page_table is torch.int64", q, k, v, lengths, cu, most, page_table=lengths[:, None].long())
        refused("E4M3 tensors are computed in FP8", q, k, v, lengths, cu, most, precision="16")
        refused("q is on cpu", q, k, v, lengths, cu, most, error=NotImplementedError)

    def test_empty(self):
        (q, k, v, lengths, cu, most), given = problem(False, FP8)
        o = attune.prefill(q, k[:, :, :0], v[:, :, :0], lengths * 0, cu, most, **given, fallback=True)
        self.assertEqual((o.shape, o.abs().max().item()), (q.shape, 0))
        self.assertEqual(attune.prefill(q[:0], k, v, lengths, cu * 0, 0, **given, fallback=True).shape, (0, 4, 64))


class PrefillCall(test_call.WithDouble):
    """What the library is given."""

    def test_caches(self):
        for dtype, code in ((FP8, test_call.E4M3), (torch.bfloat16, test_call.BF16)):
            for paged in (False, True):
                (q, k, v, lengths, cu, most), given = problem(paged, dtype)
                o, lse = attune.prefill(q, k, v, lengths, cu, most, **given, window_size=(9, 0), return_lse=True)
                self.assertEqual((o.shape, lse.shape), (q.shape, (4, 12)))
                p = self.received()
                self.expect(p, q=q, k=k, v=v, o=o, lse=lse, cu_queries=cu, cu_keys=None, key_lengths=lengths)
                self.expect(p, batch=4, heads=4, kv_heads=2, queries=7, keys=48, head_dim=64, total_queries=12)
                self.expect(p, dtype=code, q_dtype=test_call.BF16 if dtype == FP8 else 0, out_dtype=test_call.BF16)
                self.expect(p, causal=1, window_left=9, page_table=given.get("page_table"), pages=12 if paged else 0)
                self.expect(p, page_size=16 if paged else 0, max_pages=3 if paged else 0, total_keys=0)
                self.expect(p, q_stride=(0, 64, 4 * 64), k_stride=tuple(k.stride()[:3]))
                self.expect(p, descale_q=None, descale_k=given["descale"][0] if dtype == FP8 else None)

    def test_explain(self):
        (q, k, v, lengths, cu, most), given = problem(True, FP8)
        found = attune.explain(q, k, v, lengths=lengths, cu_seqlens_q=cu, max_seqlen_q=most, **given)
        self.assertEqual(found.kernel, "kernel")
        p = params.Forward.in_dll(test_call.DOUBLE, "double_forward")
        self.expect(p, causal=1, queries=7, total_queries=12, cu_keys=None, page_size=16)
        with self.assertRaisesRegex(ValueError, "cu_seqlens_k and lengths are given"):
            attune.explain(q, k, v, lengths=lengths, cu_seqlens_q=cu, cu_seqlens_k=cu, max_seqlen_q=most, **given)

    def test_refused_by_the_library(self):
        """What the library does not compute, as 16-bit caches of many queries today, the fallback does."""
        arguments, given = problem(False, torch.bfloat16)
        self.answer(2, "cu_keys is NULL")
        with self.assertRaises(NotImplementedError):
            attune.prefill(*arguments, **given)
        o = attune.prefill(*arguments, **given, fallback=True)
        torch.testing.assert_close(o.float(), by_sequences(arguments, given)[0], atol=0.02, rtol=0.02)


def _rows(pools, factors, table):
    """Keys and values of a sequence, [2, 1, kv_heads, rows, head_dim], from pages in E4M3."""
    x = torch.stack([pool.float()[table.long()] for pool in pools]) * factors[:, None, :, None, None]
    return x.transpose(1, 2).flatten(2, 3)[:, None]


class Merge(unittest.TestCase):
    def parts(self, dtype=torch.float32, at=5):
        """q, k and v, and the results of both parts of the keys and of all."""
        random = torch.Generator().manual_seed(5)
        q, k, v = (torch.randn(2, 4, n, 64, generator=random).to(dtype) for n in (6, 12, 12))
        attend = lambda keys: _reference.explicit(q, k[:, :, keys], v[:, :, keys], False, None, -1, -1, None)
        return [attend(x) for x in (slice(0, at), slice(at, 12), slice(0, 12))]

    def test_two_parts(self):
        (o_a, lse_a), (o_b, lse_b), (o, lse) = self.parts()
        for dtype, tolerance in ((torch.float32, 1e-5), (torch.bfloat16, 0.02), (torch.float16, 3e-3)):
            got, got_lse = attune.merge(o_a.to(dtype), lse_a, o_b.to(dtype), lse_b)
            self.assertEqual((got.dtype, got_lse.dtype), (dtype, torch.float32))
            torch.testing.assert_close(got.float(), o, atol=tolerance, rtol=tolerance)
            torch.testing.assert_close(got_lse, lse, atol=1e-5, rtol=1e-5)

    def test_packed(self):
        (o_a, lse_a), (o_b, lse_b), (o, lse) = self.parts()
        rows = lambda x: x[0].transpose(0, 1)
        got, got_lse = attune.merge(rows(o_a), lse_a[0], rows(o_b), lse_b[0], packed=True)
        torch.testing.assert_close(got, rows(o))
        torch.testing.assert_close(got_lse, lse[0])

    def test_rows_without_keys(self):
        """They may have any o, and both parts may be without keys."""
        (o_a, lse_a), (o_b, lse_b), _ = self.parts()
        o_a[:, :, :4], lse_a[:, :, :4] = torch.nan, -torch.inf
        o_b[:, :, 2:4], lse_b[:, :, 2:4] = torch.nan, -torch.inf
        o, lse = attune.merge(o_a, lse_a, o_b, lse_b)
        torch.testing.assert_close((o[:, :, :2], lse[:, :, :2]), (o_b[:, :, :2], lse_b[:, :, :2]))
        self.assertTrue((o[:, :, 2:4] == 0).all() and (lse[:, :, 2:4] == -torch.inf).all())
        self.assertTrue(o.isfinite().all())

    def test_shared_prefix(self):
        """Pages of a prefix have factors of their own: its attention is a call of its own."""
        random = torch.Generator().manual_seed(7)
        q = torch.randn(3, 4, 1, 64, generator=random).bfloat16()
        pools, factors = [], []
        for size in (1.0, 5.0):  # keys and values of the prefix, and of the sequences
            x = size * torch.randn(2, 12, 2, 16, 64, generator=random)
            factors.append(x.abs().amax((1, 3, 4)) / 448)
            pools.append((x / factors[-1][:, None, :, None, None]).to(torch.float8_e4m3fn))
        tables = [torch.tensor(x, dtype=torch.int32) for x in ([[3, 1]] * 3, [[0, 1], [2, 3], [4, 5]])]
        lengths = [torch.tensor(x, dtype=torch.int32) for x in ([32, 32, 32], [1, 20, 32])]
        parts = [
            attune.decode(q, *pool, n, page_table=table, descale=tuple(f[:, None].expand(2, 3, 2)), causal=own,
                          return_lse=True, fallback=True)
            for own, pool, n, table, f in zip((False, True), pools, lengths, tables, factors)
        ]  # fmt: skip
        got, lse = attune.merge(*parts[0], *parts[1])
        for b in range(3):
            rows = [_rows(pool, f, table[b])[:, :, :, : n[b]] for pool, f, table, n in zip(pools, factors, tables, lengths)]
            k, v = torch.cat(rows, 3)
            want, want_lse = _reference.explicit(q[b : b + 1], k, v, False, None, -1, -1, None)
            torch.testing.assert_close(got[b : b + 1].float(), want, atol=0.03, rtol=0.02)
            torch.testing.assert_close(lse[b : b + 1], want_lse, atol=1e-3, rtol=1e-3)

    def test_large_scores(self):
        """Neither part overflows, and the smaller one vanishes."""
        o = torch.ones(1, 1, 1, 8)
        for far in (1e4, 1e30):
            got, lse = attune.merge(o, torch.full((1, 1, 1), far), 2 * o, torch.full((1, 1, 1), -far))
            torch.testing.assert_close((got, lse.item()), (o, torch.tensor(far).item()))

    def test_gradients(self):
        """Those of attention over all keys, and none that is NaN where a part has no keys."""
        random = torch.Generator().manual_seed(6)
        q, k, v = (torch.randn(1, 2, n, 16, generator=random, requires_grad=True) for n in (3, 8, 8))
        halves = lambda x: (x[:, :, :5], x[:, :, 5:])
        parts = []
        for some_k, some_v in zip(halves(k), halves(v)):
            scores = q @ some_k.transpose(2, 3) / 4
            parts += [torch.softmax(scores, -1) @ some_v, torch.logsumexp(scores, -1)]
        o, lse = attune.merge(*parts)
        scores = q @ k.transpose(2, 3) / 4
        want, want_lse = torch.softmax(scores, -1) @ v, torch.logsumexp(scores, -1)
        seed = torch.randn(want.shape, generator=random)
        got = torch.autograd.grad((o * seed).sum() + lse.sin().sum(), (q, k, v))
        torch.testing.assert_close(got, torch.autograd.grad((want * seed).sum() + want_lse.sin().sum(), (q, k, v)))
        o_a, lse_a = torch.ones(1, 1, 2, 8, requires_grad=True), torch.tensor([[[0.0, -torch.inf]]], requires_grad=True)
        lse_b = torch.full((1, 1, 2), -torch.inf, requires_grad=True)
        o, lse = attune.merge(o_a, lse_a, torch.zeros(1, 1, 2, 8), lse_b)
        for gradient in torch.autograd.grad(o.sum() + lse[..., 0].sum(), (o_a, lse_a, lse_b)):
            self.assertTrue(gradient.isfinite().all())

    def test_compile(self):
        a, b, _ = self.parts()
        compiled = torch.compile(attune.merge, backend="aot_eager", fullgraph=True)
        torch.testing.assert_close(compiled(*a, *b), attune.merge(*a, *b))

    @unittest.skipIf(package.cannot_fake_cuda(), package.cannot_fake_cuda())
    def test_fake_tensors(self):
        with FakeTensorMode():
            o, lse = torch.empty(2, 4, 6, 64, dtype=torch.half, device="cuda"), torch.empty(2, 4, 6, device="cuda")
            self.assertEqual(attune.merge(o, lse, o, lse)[0].dtype, torch.half)

    def test_arguments(self):
        (o, lse), _, _ = self.parts()
        square = o[0, :, :4], lse[0, :, :4], o[0, :, :4], lse[0, :, :4]  # as many heads as rows
        with self.assertRaisesRegex(ValueError, "o_a has 3 dimensions, not 4, or 3 of packed sequences, with packed=True"):
            attune.merge(*square)
        with self.assertRaisesRegex(ValueError, "o_a has 4 dimensions, not 3 with packed=True"):
            attune.merge(o, lse, o, lse, packed=True)
        for text, error, args in (
            ("lse_a is a list", TypeError, (o, [1], o, lse)),
            ("o_b is torch.float16, and o_a is torch.float32", TypeError, (o, lse, o.half(), lse)),
            (r"o_b is \[2, 4, 5, 64\], and o_a is", ValueError, (o, lse, o[:, :, 1:], lse)),
            (r"lse_b is \[2, 6, 4\], and o_b is .*: lse is \[2, 4, 6\]", ValueError, (o, lse, o, lse.transpose(1, 2))),
            ("o_a has 2 dimensions", ValueError, (o[0, 0], lse, o[0, 0], lse)),
            ("lse_b is torch.int32", TypeError, (o, lse, o, lse.int())),
            ("lse_a is on meta, and o_a is on cpu", ValueError, (o, lse.to("meta"), o, lse)),
        ):
            with self.assertRaisesRegex(error, text):
                attune.merge(*args)


if __name__ == "__main__":
    unittest.main()
