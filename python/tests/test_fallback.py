"""The fallback by PyTorch's varlen_attn, beside float64: on a GPU, and on a CPU with a double of that function."""

import unittest
from unittest import mock

import package  # noqa: F401 (before attune)
import torch

import attune
from attune import _attention, _cache, _operators, _varlen

LIMITS = {torch.float16: 0.001, torch.bfloat16: 0.006}  # RMS of the error of O over that of O


def exact(q, k, v, causal=False, window_size=(-1, -1), scale=None, sinks=None):
    """(o, lse) in float64 of [heads, queries, head_dim], and keys and values with as many heads or fewer."""
    group = q.shape[0] // k.shape[0]
    q, k, v = q.double(), k.double().repeat_interleave(group, 0), v.double().repeat_interleave(group, 0)
    queries, keys = q.shape[1], k.shape[1]
    scores = q @ k.transpose(1, 2) * (q.shape[2] ** -0.5 if scale is None else scale)
    own = torch.arange(queries, device=q.device)[:, None] + keys - queries
    key = torch.arange(keys, device=q.device)
    left, right = window_size
    seen = torch.ones(queries, keys, dtype=torch.bool, device=q.device)
    if causal:
        seen &= key <= own
    if left >= 0:
        seen &= key >= own - left
    if right >= 0:
        seen &= key <= own + right
    scores = scores.masked_fill(~seen, -torch.inf)
    some = seen.any(1)
    if sinks is not None:
        scores = torch.cat([scores, sinks.double()[:, None, None].expand(-1, queries, 1)], 2)
    o = torch.softmax(scores, 2)[..., :keys].nan_to_num() @ v
    lse = torch.logsumexp(scores, 2)
    return o.masked_fill(~some[:, None], 0), lse.masked_fill(~some, -torch.inf)


def double(q, k, v, cu_q, cu_k, max_q, max_k, *, scale=None, window_size=(-1, -1)):
    """varlen_attn as the kernels of flash attention 2 compute it: with their limits of a window, their packing of the
    heads of a group, and what they leave in rows without keys."""
    left, right = (-1 if side >= max_k else side for side in window_size)
    if (left, right) != (-1, -1):
        left, right = max_k if left < 0 else left, max_k if right < 0 else right
    elif max_q == 1 and q.shape[1] != k.shape[1]:
        assert q.shape[0] == cu_q.shape[0] - 1
        cu_q = torch.arange(cu_q.shape[0])
    o, lse = torch.full_like(q, torch.nan), torch.full((q.shape[1], q.shape[0]), torch.nan)
    for b in range(len(cu_q) - 1):
        rows, keys = slice(cu_q[b], cu_q[b + 1]), slice(cu_k[b], cu_k[b + 1])
        each = (x[y].transpose(0, 1) for x, y in ((q, rows), (k, keys), (v, keys)))
        one, one_lse = exact(*each, window_size=(left, right), scale=scale)
        o[rows] = one.transpose(0, 1).to(q.dtype)
        lse[:, rows] = one_lse.masked_fill(one_lse == -torch.inf, torch.inf).float()
    return o, lse


class Problems:
    """Calls beside float64; of a class with a device."""

    def setUp(self):
        torch.manual_seed(1)
        refused = mock.Mock(side_effect=NotImplementedError)  # by the library
        self.computed = mock.Mock(side_effect=_varlen.attention)
        for module, name, value in ((_attention, "_attend", refused), (_cache, "_attend", refused),
                                    (_operators, "_launch", refused), (_varlen, "attention", self.computed)):  # fmt: skip
            self.enter(mock.patch.object(module, name, value))

    def enter(self, context):
        context.__enter__()
        self.addCleanup(context.__exit__, None, None, None)

    def randn(self, *shape, dtype=torch.bfloat16):
        return torch.randn(shape, device=self.device).to(dtype)

    def ints(self, values):
        return torch.tensor(values, dtype=torch.int32, device=self.device)

    def near(self, got, got_lse, want, want_lse):
        """Of a call of varlen_attn."""
        self.assertEqual(self.computed.call_count, 1)
        self.computed.reset_mock()
        self.assertFalse(got.isnan().any().item())
        scale = want.pow(2).mean().sqrt().item()
        self.assertLess((got.double() - want).pow(2).mean().sqrt().item(), LIMITS[got.dtype] * scale)
        self.assertTrue(torch.equal(got_lse == -torch.inf, want_lse == -torch.inf))
        finite = want_lse > -torch.inf
        self.assertLess((got_lse.double() - want_lse)[finite].abs().max().item(), 2e-3)
        self.assertTrue((got[~finite[..., None].expand(want.shape)] == 0).all().item())

    def dense(self, shape, dtype=torch.bfloat16, rows_first=False, **options):
        batch, heads, kv_heads, queries, keys, dim = shape
        shapes = ((heads, queries), (kv_heads, keys), (kv_heads, keys))
        if rows_first:
            q, k, v = (self.randn(batch, n, h, dim, dtype=dtype).transpose(1, 2) for h, n in shapes)
        else:
            q, k, v = (self.randn(batch, h, n, dim, dtype=dtype) for h, n in shapes)
        o, lse = attune.sdpa(q, k, v, return_lse=True, fallback=True, **options)
        self.assertEqual((o.shape, o.dtype, lse.shape, lse.dtype), (q.shape, dtype, q.shape[:3], torch.float32))
        self.assertTrue(lse.is_contiguous())
        each = [exact(*x, **options) for x in zip(q, k, v)]
        self.near(o, lse, *(torch.stack(x) for x in zip(*each)))

    def test_dense(self):
        for shape in ((2, 8, 2, 100, 300, 64), (1, 4, 4, 300, 100, 128), (1, 3, 1, 65, 65, 256), (2, 4, 2, 50, 50, 72)):
            for options in ({}, {"causal": True}, {"window_size": (5, 3)}, {"window_size": (7, -1)}, {"scale": 0.3},
                            {"window_size": (-1, 4)}, {"window_size": (120, -1)}, {"window_size": (-1, 130)},
                            {"causal": True, "window_size": (40, 9)},
                            {"causal": True, "sinks": torch.linspace(-2, 3, shape[1], device=self.device)}):  # fmt: skip
                with self.subTest(shape=shape, options=options):
                    self.dense(shape, **options)
        self.dense((2, 4, 2, 70, 70, 64), torch.float16, causal=True)
        self.dense((2, 4, 2, 70, 70, 64), rows_first=True, causal=True)

    def test_out(self):
        q = self.randn(1, 2, 30, 64)
        out = torch.empty(1, 30, 2, 64, dtype=torch.float16, device=self.device).transpose(1, 2)
        self.assertIs(attune.sdpa(q, q, q, causal=True, window_size=(3, 0), out=out, fallback=True), out)
        want = [exact(x, x, x, causal=True, window_size=(3, 0)) for x in q]
        self.assertLess((out.double() - want[0][0]).abs().max().item(), 0.03)

    def test_packed(self):
        queries, keys = [70, 0, 1, 130, 9, 5], [70, 20, 33, 40, 0, 300]
        cu_q, cu_k = (self.ints([0, *torch.tensor(x).cumsum(0)]) for x in (queries, keys))
        q, k, v = (self.randn(n, h, 64) for n, h in ((sum(queries), 8), (sum(keys), 2), (sum(keys), 2)))
        sinks = torch.linspace(-2, 3, 8, device=self.device)
        for options in ({}, {"causal": True}, {"window_size": (30, 5)}, {"window_size": (80, -1)}, {"sinks": sinks}):
            with self.subTest(options=options):
                o, lse = attune.sdpa_varlen(q, k, v, cu_q, cu_k, 130, 300, return_lse=True, fallback=True, **options)
                parts = zip(q.split(queries), k.split(keys), v.split(keys))
                each = [exact(*(x.transpose(0, 1) for x in part), **options) for part in parts]
                want, want_lse = (torch.cat(x, 1) for x in zip(*each))
                self.near(o.transpose(0, 1), lse, want, want_lse)

    def test_rows_of_no_sequence(self):
        q = self.randn(12, 2, 64)
        o, lse = attune.sdpa_varlen(q, q, q, self.ints([2, 8, 10]), self.ints([0, 6, 12]), 4, 6, return_lse=True, fallback=True)
        absent = [0, 1, 6, 7, 10, 11]  # before and behind all sequences, and behind max_seqlen_q
        self.assertTrue((lse[:, absent] == -torch.inf).all() and (o[absent] == 0).all())
        first = exact(*(x.transpose(0, 1) for x in (q[2:8], q[:6], q[:6])))[0][:, :4]
        self.assertLess((o[2:6].transpose(0, 1).double() - first).abs().max().item(), 0.03)

    def caches(self, lengths, capacity, page_size, kv_heads, dim):
        """(k, v) of each sequence, as caches, with NaN behind the last key, and a table or None."""
        batch = len(lengths)
        k, v = (self.randn(batch, kv_heads, capacity, dim) for _ in "kv")
        for x, n in zip((*k, *v), (*lengths, *lengths)):
            x[:, n:] = torch.nan
        if page_size is None:
            return k, v, None
        pages = capacity // page_size
        table = torch.randperm(batch * pages, device=self.device).view(batch, pages)
        pools = []
        for x in (k, v):
            pool = torch.empty(batch * pages, kv_heads, page_size, dim, dtype=x.dtype, device=self.device)
            pool[table.flatten()] = x.view(batch, kv_heads, pages, page_size, dim).transpose(1, 2).flatten(0, 1)
            pools.append(pool)
        return *pools, table.to(torch.int32)

    def of_pages(self, pool, table):
        """[batch, kv_heads, capacity, head_dim]: absent pages are 0."""
        if table is None:
            return pool
        x = torch.cat([pool, torch.zeros_like(pool[:1])])
        table = torch.where((table < 0) | (table >= len(pool)), len(pool), table).long()
        return x[table].transpose(1, 2).flatten(2, 3)

    def test_decode(self):
        lengths = [1, 128, 77, 0]
        for page_size, rows_first in ((None, False), (None, True), (32, False), (32, True)):
            k, v, table = self.caches(lengths, 128, page_size, 2, 128)
            if rows_first:
                k, v = (x.transpose(1, 2).contiguous().transpose(1, 2) for x in (k, v))
            if table is not None:
                table[2, 1] = 1000  # a page that the cache does not have
                table[0, 1] = -1  # an entry behind the last key
            for queries, options in ((1, {}), (3, {}), (3, {"causal": False}), (2, {"window_size": (20, 0)}),
                                     (1, {"sinks": torch.linspace(-2, 3, 8, device=self.device)})):  # fmt: skip
                with self.subTest(page_size=page_size, rows_first=rows_first, queries=queries, options=options):
                    q = self.randn(4, 8, queries, 128)
                    o, lse = attune.decode(q, k, v, self.ints(lengths), page_table=table, return_lse=True, fallback=True, **options)
                    full = (self.of_pages(x, table) for x in (k, v))
                    options = {"causal": True, **options}
                    each = [exact(a, b[:, :n], c[:, :n], **options) for a, b, c, n in zip(q, *full, lengths)]
                    self.near(o, lse, *(torch.stack(x) for x in zip(*each)))

    def test_prefill(self):
        queries, lengths = [40, 0, 1, 9], [100, 30, 64, 9]
        k, v, table = self.caches(lengths, 128, 32, 2, 64)
        full = [self.of_pages(x, table) for x in (k, v)]
        for counts in (queries, [1, 0, 1, 1], [1, 1, 1, 1]):
            cu = self.ints([0, *torch.tensor(counts).cumsum(0)])
            q = self.randn(sum(counts), 8, 64)
            for options in ({}, {"window_size": (20, 0)}):
                with self.subTest(counts=counts, options=options):
                    o, lse = attune.prefill(q, k, v, self.ints(lengths), cu, max(counts), page_table=table,
                                            return_lse=True, fallback=True, **options)  # fmt: skip
                    parts = zip(q.split(counts), *full, lengths)
                    each = [exact(a.transpose(0, 1), b[:, :n], c[:, :n], causal=True, **options) for a, b, c, n in parts]
                    self.near(o.transpose(0, 1), lse, *(torch.cat(x, 1) for x in zip(*each)))

    def test_left_to_other_functions(self):
        """What varlen_attn does not compute takes masks or scores, by blocks of rows."""
        q = self.randn(1, 2, 20, 64)
        odd = self.randn(1, 2, 20, 36)
        slopes = torch.ones(2, device=self.device)
        for x, options in ((q, {}), (q, {"causal": True}), (q, {"softcap": 20.0}), (q, {"alibi_slopes": slopes}),
                           (q, {"scale": 0.0, "return_lse": True}), (odd, {"return_lse": True})):  # fmt: skip
            attune.sdpa(x, x, x, fallback=True, **options)
        with torch.enable_grad():
            attune.sdpa(q.requires_grad_(), q, q, return_lse=True, fallback=True)[0].sum().backward()
        self.assertEqual(self.computed.call_count, 0)
        self.assertGreater(q.grad.abs().sum().item(), 0)
        with torch.no_grad():
            attune.sdpa(q, q, q, return_lse=True, fallback=True)
        self.assertEqual(self.computed.call_count, 1)


class OnCPU(Problems, unittest.TestCase):
    """The arguments that varlen_attn gets, with a double of it."""

    device = "cpu"

    def setUp(self):
        super().setUp()
        self.enter(mock.patch.object(_varlen, "_function", lambda: double))
        self.enter(mock.patch.object(_varlen, "_has_kernel", lambda device: True))


def reason():
    if not torch.cuda.is_available():
        return "no GPU"
    if torch.cuda.get_device_capability() < (8, 0):
        return f"{torch.cuda.get_device_name()} has no flash attention"
    return None if _varlen._function() else f"PyTorch {torch.__version__} has no varlen_attn with windows"


@unittest.skipIf(reason(), reason())
class OnGPU(Problems, unittest.TestCase):
    device = "cuda"

    def test_captured(self):
        """The lengths and offsets of a captured call may change: they are read on the device."""
        k, v, table = self.caches([128, 128], 128, 32, 2, 64)
        q, lengths, cu = self.randn(5, 8, 64), self.ints([100, 60]), self.ints([0, 4, 5])
        call = lambda: attune.prefill(q, k, v, lengths, cu, 5, page_table=table, return_lse=True, fallback=True)
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            call()
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            captured = call()
        for new_lengths, new_cu in (([128, 1], [0, 4, 5]), ([7, 90], [0, 2, 5])):
            lengths.copy_(self.ints(new_lengths))
            cu.copy_(self.ints(new_cu))
            graph.replay()
            for got, want in zip(captured, call()):
                torch.testing.assert_close(got, want, atol=0, rtol=0)

    def test_memory(self):
        """No scores are in memory: they would take 4 GB."""
        q = self.randn(1, 4, 16384, 64)
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        attune.sdpa(q, q, q, causal=True, sinks=torch.zeros(4, device="cuda"), return_lse=True, fallback=True)
        self.assertLess(torch.cuda.max_memory_allocated() - before, 16 * q.nbytes)

    def test_compiled(self):
        q = self.randn(2, 4, 40, 64)
        function = lambda x: attune.sdpa(x, x, x, window_size=(3, 0), return_lse=True, fallback=True)
        for got, want in zip(torch.compile(function, backend="aot_eager", fullgraph=True)(q), function(q)):
            torch.testing.assert_close(got, want, atol=0, rtol=0)


if __name__ == "__main__":
    unittest.main()
