"""attune.decode and attune.append without a GPU: arguments, and the fallback."""

import unittest

import package  # noqa: F401 (before attune)
import torch

import attune
from attune import _reference

FP8 = torch.float8_e4m3fn


def problem(batch=3, heads=4, kv_heads=2, queries=1, head_dim=64, capacity=200):
    random = torch.Generator().manual_seed(5)
    q = torch.randn(batch, heads, queries, head_dim, generator=random).bfloat16()
    k, v = (torch.randn(batch, kv_heads, capacity, head_dim, generator=random).to(FP8) for _ in "kv")
    lengths = torch.tensor([1, 77, capacity][:batch], dtype=torch.int32)
    descale = [torch.linspace(0.5, 1.5, batch * kv_heads).view(batch, kv_heads) for _ in "kv"]
    return q, k, v, lengths, descale


def pages(cache, page_size, seed=6):
    """The cache in pages of a random order, and the page table."""
    batch, kv_heads, capacity, head_dim = cache.shape
    each = -(-capacity // page_size)
    padded = torch.full((batch, kv_heads, each * page_size, head_dim), torch.nan).to(cache.dtype)
    padded.view(torch.uint8)[:, :, :capacity] = cache.view(torch.uint8)
    order = torch.randperm(batch * each, generator=torch.Generator().manual_seed(seed))
    paged = torch.empty(batch * each, kv_heads, page_size, head_dim, dtype=cache.dtype)
    rows = padded.view(torch.uint8).view(batch, kv_heads, each, page_size, -1).transpose(1, 2).flatten(0, 1)
    paged.view(torch.uint8)[order] = rows
    return paged, order.view(batch, each).int()


class Decode(unittest.TestCase):
    def test_each_sequence(self):
        q, k, v, lengths, descale = problem(queries=2)
        o, lse = attune.decode(q, k, v, lengths, descale=descale, return_lse=True, fallback=True)
        self.assertEqual((o.dtype, lse.dtype), (torch.bfloat16, torch.float32))
        for b, n in enumerate(lengths.tolist()):
            some_k, some_v = (x[b : b + 1, :, :n].float() * d[b, :, None, None] for x, d in zip((k, v), descale))
            want, want_lse = _reference.explicit(q[b : b + 1], some_k, some_v, True, None, -1, -1, None)
            torch.testing.assert_close(o[b].float(), want[0], atol=1e-2, rtol=1e-2)
            torch.testing.assert_close(lse[b], want_lse[0])
        self.assertEqual(lse[0, 0, 0], -torch.inf)  # the first of two queries of a sequence with one key
        self.assertEqual(o[0, :, 0].abs().max(), 0)

    def test_pages(self):
        q, k, v, lengths, descale = problem()
        want = attune.decode(q, k, v, lengths, descale=descale, window_size=(20, 0), sinks=torch.ones(4), fallback=True)
        for size in (16, 32, 48, 64, 128, 256):
            (k_pages, table), (v_pages, _) = pages(k, size), pages(v, size)
            options = {
                "page_table": table,
                "descale": descale,
                "window_size": (20, 0),
                "sinks": torch.ones(4),
                "fallback": True,
            }
            torch.testing.assert_close(attune.decode(q, k_pages, v_pages, lengths, **options), want)

    def test_absent_pages(self):
        """A page that is not in the cache has keys and values of 0, in each type, for decode and prefill."""
        q, k, v, _, descale = problem(capacity=64)
        lengths, table = torch.tensor([16, 64, 33], dtype=torch.int32), torch.arange(12, dtype=torch.int32).view(3, 4)
        (k_pages, order), (v_pages, _) = pages(k, 16), pages(v, 16)
        for dtype, factors in ((FP8, descale), (torch.bfloat16, None)):
            caches = [x.to(dtype) for x in (k_pages, v_pages)]
            with_zeros = [torch.cat([x.view(torch.uint8), torch.zeros_like(x[:1].view(torch.uint8))]).view(dtype) for x in caches]
            for page in (-1, -(2**31), 12, 2**31 - 1):
                for hidden in (table % 4 == 0, table >= 0, table % 3 == 1):
                    given, zeros = order.masked_fill(hidden, page), order.masked_fill(hidden, 12)
                    options = {"descale": factors, "return_lse": True, "fallback": True}
                    got = attune.decode(q, *caches, lengths, page_table=given, **options)
                    want = attune.decode(q, *with_zeros, lengths, page_table=zeros, **options)
                    torch.testing.assert_close(got, want, atol=0, rtol=0)
                    rows, cu = q[:, :, 0], torch.arange(4, dtype=torch.int32)
                    got = attune.prefill(rows, *caches, lengths, cu, 1, page_table=given, **options)
                    want = attune.prefill(rows, *with_zeros, lengths, cu, 1, page_table=zeros, **options)
                    torch.testing.assert_close(got, want, atol=0, rtol=0)
            self.assertEqual(attune.decode(q, *caches, lengths, page_table=torch.full_like(order, -1), **options)[0].abs().max(), 0)

    def test_cache_in_16_bits(self):
        """Each sequence is what PyTorch computes of it, contiguous or in pages, compiled or not."""
        for dtype in (torch.float16, torch.bfloat16):
            q, k, v, lengths, _ = problem(queries=2, capacity=208)  # whole pages
            q, k, v = (x.to(dtype) for x in (q, k, v))
            o, lse = attune.decode(q, k, v, lengths, return_lse=True, fallback=True)
            self.assertEqual((o.dtype, lse.shape), (dtype, (3, 4, 2)))
            for b, n in list(enumerate(lengths.tolist()))[1:]:  # the first query of sequence 0 sees no key
                seen = torch.ones(2, n, dtype=torch.bool).tril(n - 2)
                want = torch.nn.functional.scaled_dot_product_attention(
                    q[b].float(), *(x[b, :, :n].float().repeat_interleave(2, dim=0) for x in (k, v)), attn_mask=seen
                )
                torch.testing.assert_close(o[b].float(), want, atol=1e-2, rtol=1e-2)
            plain = attune.decode(q, k, v, lengths, fallback=True)  # by PyTorch's function
            torch.testing.assert_close(plain.float(), o.float(), atol=1e-2, rtol=1e-2)
            (k_pages, table), (v_pages, _) = pages(k, 16), pages(v, 16)
            torch.testing.assert_close(
                attune.decode(q, k_pages, v_pages, lengths, page_table=table, fallback=True), plain, atol=0, rtol=0
            )

            def compiled(q, k, v, lengths, table):
                return attune.decode(q.transpose(1, 2).contiguous().transpose(1, 2), k, v, lengths, page_table=table,
                                     fallback=True)  # fmt: skip

            got = torch.compile(compiled, fullgraph=True, backend="aot_eager")(q, k_pages, v_pages, lengths, table)
            torch.testing.assert_close(got, plain, atol=0, rtol=0)

    def test_e4m3_query(self):
        q, k, v, lengths, descale = problem()
        q8, dq = attune.quantize(q)
        got = attune.decode(q8, k, v, lengths, descale=(dq, *descale), fallback=True)
        self.assertEqual(got.dtype, torch.float16)
        want = attune.decode(q, k, v, lengths, descale=descale, fallback=True)
        torch.testing.assert_close(got.float(), want.float(), atol=0.1, rtol=0.1)

    def test_arguments(self):
        q, k, v, lengths, descale = problem()
        paged, table = pages(k, 64)

        def refused(text, *args, error=ValueError, **options):
            with self.assertRaisesRegex(error, text):
                attune.decode(*args, **{"descale": descale, **options})

        refused("q has 3 dimensions", q[0], k, v, lengths)
        refused("q is torch.float32", q.float(), k, v, lengths, error=TypeError)
        refused("v_cache is torch.float8_e4m3fn, and k_cache", q, k.bfloat16(), v, lengths, error=TypeError)
        refused("k_cache is torch.float16, not float8_e4m3fn or bfloat16", q, k.half(), v.half(), lengths,
                error=TypeError)  # fmt: skip
        refused("descale is given, and k_cache is torch.bfloat16", q, k.bfloat16(), v.bfloat16(), lengths)
        refused(r"v_cache has 3 dimensions, not 4: \[batch, kv_heads, capacity", q, k, v[0], lengths)
        refused("k_cache is .*: head_dim differs", q, k[..., :32], v, lengths)
        refused("k_cache is .*: batch differs", q, k[:1], v[:1], lengths)
        refused("k_cache is .*, and v_cache is", q, k, v[:, :, 1:], lengths)
        refused("k_cache is on meta, and q is on cpu", q, k.to("meta"), v, lengths)
        refused(
            "q has 4 heads, which the 3 of k do not divide",
            q,
            *(torch.zeros(3, 3, 9, 64).to(FP8) for _ in "kv"),
            lengths,
        )
        refused("lengths is torch.int64", q, k, v, lengths.long())
        refused(r"lengths is torch.int32 \[2\], not int32 \[3\]", q, k, v, lengths[:2])
        refused("lengths is a list", q, k, v, [1, 2, 3], error=TypeError)
        refused("page_table is torch.int64", q, paged, paged, lengths, page_table=table.long())
        refused(
            r"page_table is torch.int32 \[2, 4\], not int32 \[3, any\]", q, paged, paged, lengths, page_table=table[:2]
        )
        refused("page_table is a list", q, paged, paged, lengths, page_table=[1], error=TypeError)
        refused(
            "k_cache has pages of 40 keys, not a multiple of 16", q, *(paged[:, :, :40],) * 2, lengths, page_table=table
        )
        refused(r"descale has 3 tensors, not 2: \(of k, of v\)", q, k, v, lengths, descale=(*descale, descale[0]))
        refused("descale is missing", q, k, v, lengths, descale=None)
        refused(r"descale of v is torch.float32 \[3, 1\]", q, k, v, lengths, descale=(descale[0], descale[1][:, :1]))
        refused("window_size is", q, k, v, lengths, window_size=(-3, 0))
        refused("scale is inf", q, k, v, lengths, scale=float("inf"))
        refused("sinks is torch.float32", q, k, v, lengths, sinks=torch.zeros(2))
        refused("out is", q, k, v, lengths, out=q[:1])
        refused("q is on cpu", q, k, v, lengths, error=NotImplementedError)


class Append(unittest.TestCase):
    def test_contiguous(self):
        _, k, v, _, descale = problem(capacity=20)
        rows = torch.randn(3, 2, 4, 64, generator=torch.Generator().manual_seed(8)).half() * 300
        lengths = torch.tensor([0, 7, 18], dtype=torch.int32)
        before = k.clone()
        attune.append(rows, -rows, k, v, lengths, descale=descale, fallback=True)
        for b, n in enumerate(lengths.tolist()):
            kept = min(4, 20 - n)  # rows behind the capacity are dropped
            want = (rows[b, :, :kept].float() * (1 / descale[0][b])[:, None, None]).clamp(-448, 448).to(FP8)
            self.assertTrue(torch.equal(k[b, :, n : n + kept].float(), want.float()))
            self.assertTrue(torch.equal(v[b, :, n : n + kept].float(), -want.float()))  # both have the same factors
            self.assertTrue(torch.equal(k[b, :, :n].view(torch.uint8), before[b, :, :n].view(torch.uint8)))

    def test_pages(self):
        _, k, v, _, descale = problem(capacity=128)
        rows = torch.randn(3, 2, 4, 64, generator=torch.Generator().manual_seed(8)).half()
        lengths = torch.tensor([0, 62, 126], dtype=torch.int32)
        want_k, want_v = k.clone(), v.clone()
        attune.append(rows, rows, want_k, want_v, lengths, descale=descale, fallback=True)
        for size in (16, 64):
            (k_pages, table), (v_pages, _) = pages(k, size), pages(v, size)
            attune.append(rows, rows, k_pages, v_pages, lengths, page_table=table, descale=descale, fallback=True)
            self.assertTrue(torch.equal(k_pages.view(torch.uint8), pages(want_k, size)[0].view(torch.uint8)))
            self.assertTrue(torch.equal(v_pages.view(torch.uint8), pages(want_v, size)[0].view(torch.uint8)))
        before = k_pages.clone()
        outside = table + k_pages.shape[0]
        for some_lengths, some_table in (
            (lengths, -table - 1),
            (lengths, outside),
            (lengths + 2**31 - 127, table),  # the sum with a row overflows int32
            (lengths - 127, table),  # row 1 of a sequence of -1 keys is not at position 0
        ):
            attune.append(rows, rows, k_pages, v_pages, some_lengths, page_table=some_table, descale=descale,
                          fallback=True)  # fmt: skip
            self.assertTrue(torch.equal(k_pages.view(torch.uint8), before.view(torch.uint8)))

    def test_no_pages(self):
        """Nothing is written, and no query sees a key."""
        q, k, v, lengths, descale = problem(capacity=32)
        rows, table, before = torch.ones(3, 2, 4, 64).half(), torch.zeros(3, 0, dtype=torch.int32), k.clone()
        attune.append(rows, rows, k, v, lengths, page_table=table, descale=descale, fallback=True)
        self.assertTrue(torch.equal(k.view(torch.uint8), before.view(torch.uint8)))
        o, lse = attune.decode(q, k, v, lengths, page_table=table, descale=descale, return_lse=True, fallback=True)
        self.assertEqual((o.abs().max(), lse.max()), (0, -torch.inf))

    def test_unused_slots(self):
        _, k, v, _, descale = problem(capacity=20)
        rows = torch.ones(3, 2, 4, 64).half()
        before = k.clone().view(torch.uint8)
        attune.append(rows, rows, k, v, torch.tensor([-1, -30, 20], dtype=torch.int32), descale=descale, fallback=True)
        self.assertTrue(torch.equal(k.view(torch.uint8), before))

    def test_arguments(self):
        _, k, v, lengths, descale = problem()
        rows = torch.zeros(3, 2, 1, 64).half()

        def refused(text, *args, error=ValueError, **options):
            with self.assertRaisesRegex(error, text):
                attune.append(*args, **{"descale": descale, **options})

        refused("k has 3 dimensions", rows[0], rows, k, v, lengths)
        refused("k is torch.float32, not float16", rows.float(), rows, k, v, lengths, error=TypeError)
        refused("v is torch.bfloat16, and k is torch.float16", rows, rows.bfloat16(), k, v, lengths, error=TypeError)
        refused("k is .*, and v is", rows, rows[:1], k, v, lengths)
        refused("v is on meta", rows, rows.to("meta"), k, v, lengths)
        refused("v_cache is torch.float16", rows, rows, k, v.half(), lengths, error=TypeError)
        refused("k has 2 heads, and k_cache has 1", rows, rows, k[:, :1], v[:, :1], lengths)
        refused("k_cache is .*, and k is .*: batch differs", rows, rows, k[:1], v[:1], lengths)
        refused("lengths is torch.float32", rows, rows, k, v, lengths.float())
        refused("descale of k is", rows, rows, k, v, lengths, descale=(descale[0][:1], descale[1]))
        refused("descale is missing", rows, rows, k, v, lengths, descale=None)
        refused(
            "k_cache has strides .*contiguous", rows, rows, k.transpose(1, 2).contiguous().transpose(1, 2), v, lengths
        )
        refused("k is on cpu", rows, rows, k, v, lengths, error=NotImplementedError)


if __name__ == "__main__":
    unittest.main()
