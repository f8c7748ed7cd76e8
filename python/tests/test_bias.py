"""ALiBi slopes and tree masks without a GPU: what the library is given, what is refused, and what PyTorch computes."""

import unittest

import package  # noqa: F401 (before attune)
import params
import test_call
import test_precision
import test_serving
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

import attune
from attune import _operators

FP8 = torch.float8_e4m3fn
UNSUPPORTED = 2


def exact(q, k, v, slopes=None, words=None, causal=False, softcap=None, sinks=None):
    """(o, lse) of one sequence, [heads, rows, head_dim], in float64, from the definition."""
    q, k, v = (x.double() for x in (q, k, v))
    k, v = (x.repeat_interleave(q.shape[0] // k.shape[0], dim=0) for x in (k, v))
    scores = q @ k.transpose(-2, -1) * q.shape[2] ** -0.5
    if softcap:
        scores = softcap * torch.tanh(scores / softcap)
    queries, keys = scores.shape[-2:]
    for i in range(queries):
        for j in range(keys):
            if slopes is not None:
                scores[:, i, j] -= slopes.double() * abs(i + keys - queries - j)
            token = j - (keys - queries)
            if words is not None and token >= 0 and not words[i] >> token & 1:
                scores[:, i, j] = -torch.inf
            if causal and token > i:
                scores[:, i, j] = -torch.inf
    lse = scores.logsumexp(-1)
    if sinks is not None:
        lse = torch.where(lse == -torch.inf, lse, torch.logaddexp(lse, sinks.double()[:, None]))
    weights = torch.exp(scores - lse[..., None].nan_to_num(neginf=0.0))
    return weights @ v, lse


def words_of(*shape, seed=3):
    """Random words of trees, as Python integers without a sign, and as a tensor."""
    words = torch.randint(-(2**63), 2**63 - 1, shape, generator=torch.Generator().manual_seed(seed))
    return words.view(torch.uint64).tolist(), words


def close(test, got, want, tolerance):
    error = (got.double() - want).pow(2).mean().sqrt() / want.pow(2).mean().sqrt()
    test.assertLess(error.item(), tolerance)


def tree_calls(**options):
    """Calls of 3 sequences with 2 heads: decode with 2 queries each, and prefill with 2, 1 and 2."""
    _, k, _, lengths = test_precision.cache()
    q = test_call.random(3, 2, 2, 64, dtype=k.dtype)
    rows, cu = test_call.random(5, 2, 64, dtype=k.dtype), torch.tensor([0, 2, 3, 5], dtype=torch.int32)
    tree = options.pop("tree_mask", words_of(3, 2)[1])
    packed = tree if not isinstance(tree, torch.Tensor) or tree.dim() != 2 else tree.flatten()[:5]
    return (
        lambda: attune.decode(q, k, k, lengths, tree_mask=tree, **options),
        lambda: attune.prefill(rows, k, k, lengths, cu, 2, tree_mask=packed, **options),
    )


class Library(test_call.WithDouble):
    def received_by_any(self):
        """The parameters of the last forward or explain."""
        return params.Forward.in_dll(test_call.DOUBLE, "double_forward")

    def test_slopes(self):
        """A stride is only that of slopes of several sequences."""
        q = test_call.random(3, 2, 8, 64)
        for shape, stride in (((2,), 0), ((3, 2), 2)):
            slopes = torch.rand(shape)
            attune.sdpa(q, q, q, alibi_slopes=slopes, causal=True)
            self.expect(self.received(), alibi_slopes=slopes.data_ptr(), alibi_stride=stride, causal=1, tree_mask=None)
        one = torch.rand(1, 2)
        attune.sdpa(q[:1], q[:1], q[:1], alibi_slopes=one)
        self.expect(self.received(), alibi_slopes=one.data_ptr(), alibi_stride=0)
        attune.sdpa_varlen(*test_precision.packed(), alibi_slopes=torch.rand(test_precision.packed()[0].shape[1]))
        self.assertIsNotNone(self.received().alibi_slopes)
        attune.sdpa(q, q, q)
        self.expect(self.received(), alibi_slopes=None, alibi_stride=0)

    def test_trees(self):
        """In place of the causal mask, which is the default without one."""
        _, words = words_of(3, 2)
        for tree in (words, words.view(torch.uint64)):
            for call in tree_calls(tree_mask=tree, alibi_slopes=torch.rand(3, 2)):
                call()
                self.expect(self.received(), causal=0, has_window=0, alibi_stride=2)
                self.assertIsNotNone(self.received().tree_mask)
        q, k, v, lengths = test_precision.cache()
        attune.decode(q, k, v, lengths)
        self.expect(self.received(), causal=1, tree_mask=None)
        attune.explain(test_call.random(3, 2, 2, 64, dtype=k.dtype), k, v, lengths=lengths, tree_mask=words)
        self.expect(self.received_by_any(), causal=0)
        self.assertIsNotNone(self.received_by_any().tree_mask)

    def test_answers_of_the_library_are_by_option(self):
        q = test_call.random(1, 2, next(test_call.FRESH), 64)
        for size, slopes in ((100, None), (200, torch.rand(2)), (200, torch.rand(2))):
            self.answer(0, workspace=size)
            attune.sdpa(q, q, q, alibi_slopes=slopes)
        self.assertEqual([size for _, _, size in self.asked], [100, 200, 200])

    def test_refusal_of_the_library(self):
        q8, f = test_call.random(1, 2, 8, 64).to(FP8), torch.ones(1, 2)
        self.answer(UNSUPPORTED, "alibi_slopes is 0x1; with it all are FP16")
        found = attune.explain(q8, q8, q8, descale=(f, f, f), alibi_slopes=torch.rand(2))
        self.assertEqual(found.kernel, "pytorch")
        self.assertRegex(found.reason, "alibi_slopes is given; with it all are FP16; fallback=True")


class Arguments(unittest.TestCase):
    def refused(self, kind, message, *calls):
        for call in calls:
            with self.assertRaisesRegex(kind, message):
                call()

    def test_slopes(self):
        q = test_call.random(3, 2, 8, 64)
        _, *cached = test_precision.cache()
        row = test_call.random(3, 2, 1, 64, dtype=cached[0].dtype)
        for value, kind, message in (
            (torch.rand(3), ValueError, r"alibi_slopes is torch.float32 \[3\], not float32 \[2\]"),
            (torch.rand(2, 2), ValueError, r"alibi_slopes is torch.float32 \[2, 2\], not float32 \[3, 2\]"),
            (torch.rand(3, 2, 1), ValueError, r"alibi_slopes is torch.float32 \[3, 2, 1\], not float32 \[2\]"),
            (torch.rand(2).double(), ValueError, r"alibi_slopes is torch.float64 \[2\], not float32 \[2\]"),
            ([0.5, 0.25], TypeError, r"alibi_slopes is a list, not a tensor float32 \[2\]"),
            (torch.tensor([0.5, torch.nan]), ValueError, r"alibi_slopes is \[0.5, nan\]: its numbers must be finite"),
            (torch.tensor([torch.inf, 0.5]), ValueError, r"alibi_slopes is \[inf, 0.5\]: its numbers must be finite"),
        ):
            self.refused(
                kind, message,
                lambda: attune.sdpa(q, q, q, alibi_slopes=value, fallback=True),
                lambda: attune.decode(row, *cached, alibi_slopes=value, fallback=True),
            )  # fmt: skip
        self.refused(
            ValueError, "alibi_slopes is on meta, and q is on cpu",
            lambda: attune.sdpa(q, q, q, alibi_slopes=torch.empty(2, device="meta"), fallback=True),
        )  # fmt: skip

    def test_trees(self):
        _, words = words_of(3, 2)
        for value, kind, message in (
            (words.int(), ValueError, r"tree_mask is torch.int32 .*, not int64 or uint64"),
            (words[:2], ValueError, r"tree_mask is torch.int64 \[(2, 2|4)\], not int64 or uint64 \[(3, 2|5)\]"),
            (words.view(3, 2, 1), ValueError, r"tree_mask is torch.int64 \[3, 2, 1\], not"),
            ([[1, 3]] * 3, TypeError, "tree_mask is a list, not a tensor int64 or uint64"),
            (words.to("meta"), ValueError, "tree_mask is on meta, and q is on cpu"),
        ):
            self.refused(kind, message, *tree_calls(tree_mask=value, fallback=True))
        self.refused(ValueError, "causal is True: the mask of a tree replaces", *tree_calls(causal=True, fallback=True))
        self.refused(ValueError, r"window_size is \(3, -1\): a tree", *tree_calls(window_size=(3, None), fallback=True))
        _, k, _, lengths = test_precision.cache()
        q = test_call.random(3, 2, 65, 64, dtype=k.dtype)
        tree, packed = words_of(3, 65)[1], words_of(195)[1]
        cu = torch.tensor([0, 65, 130, 195], dtype=torch.int32)
        rows = q.transpose(1, 2).reshape(195, 2, 64)
        self.refused(
            ValueError, "there are 65 queries: it has a bit for each, at most 64",
            lambda: attune.decode(q, k, k, lengths, tree_mask=tree, fallback=True),
            lambda: attune.prefill(rows, k, k, lengths, cu, 65, tree_mask=packed, fallback=True),
        )  # fmt: skip
        self.refused(
            ValueError, "tree_mask is given, and lengths is None: the tree of the queries is the end of a cache",
            lambda: attune.explain(q, q, q, tree_mask=tree),
        )  # fmt: skip

    def test_gradients_of_slopes(self):
        q, slopes = test_call.random(1, 2, 8, 64), torch.rand(2, requires_grad=True)
        self.refused(NotImplementedError, "alibi_slopes, sinks or descale requires a gradient",
                     lambda: attune.sdpa(q, q, q, alibi_slopes=slopes))  # fmt: skip
        attune.sdpa(q, q, q, alibi_slopes=slopes, fallback=True).float().pow(2).sum().backward()
        self.assertTrue(slopes.grad.abs().min() > 0)


class Fallback(unittest.TestCase):
    def test_dense(self):
        q, k, v = (test_call.random(2, heads, n, 64) for heads, n in ((4, 9), (2, 13), (2, 13)))
        sinks = torch.tensor([0.5, -1, 2, 0])
        for shape in ((4,), (2, 4)):
            slopes = torch.rand(shape)
            for options in ({}, {"causal": True}, {"softcap": 0.7}, {"sinks": sinks}):
                with self.subTest(shape=shape, **options):
                    o, lse = attune.sdpa(q, k, v, alibi_slopes=slopes, return_lse=True, fallback=True, **options)
                    for b in range(2):
                        of_b = slopes if slopes.dim() == 1 else slopes[b]
                        want, want_lse = exact(q[b], k[b], v[b], of_b, **options)
                        close(self, o[b], want, 0.004)
                        close(self, lse[b], want_lse, 1e-5)
                    again = attune.sdpa(q, k, v, alibi_slopes=slopes, fallback=True, **options)
                    torch.testing.assert_close(again, o)

    def test_sequences(self):
        q, k, v = (test_call.random(16, heads, 64) for heads in (4, 2, 2))
        cu, slopes = torch.tensor([0, 5, 16], dtype=torch.int32), torch.rand(2, 4)
        o = attune.sdpa_varlen(q, k, v, cu, cu, 11, 11, causal=True, alibi_slopes=slopes, fallback=True)
        for b, rows in enumerate((slice(0, 5), slice(5, 16))):
            want, _ = exact(*(x[rows].transpose(0, 1) for x in (q, k, v)), slopes[b], causal=True)
            close(self, o[rows].transpose(0, 1), want, 0.004)

    def test_caches(self):
        """Trees over caches, with slopes of each sequence; rows of a tree may see no key."""
        for paged in (False, True):
            arguments, given = test_serving.problem(paged, torch.bfloat16)
            q, k, v, lengths, cu, most = arguments
            slopes, sinks = torch.rand(len(lengths), q.shape[1]), torch.tensor([0.5, -1, 2, 0])
            plain, words = words_of(q.shape[0])
            o, lse = attune.prefill(*arguments, **given, alibi_slopes=slopes, tree_mask=words, sinks=sinks,
                                    return_lse=True, fallback=True)  # fmt: skip
            alone = attune.prefill(*arguments, **given, tree_mask=words.view(torch.uint64), fallback=True)
            for b, caches in enumerate(self.keys_of(arguments, given)):
                rows = slice(int(cu[b]), int(cu[b + 1]))
                if rows.start == rows.stop:
                    continue
                of_b = q[rows].transpose(0, 1)
                want, want_lse = exact(of_b, *caches, slopes[b], plain[rows], sinks=sinks)
                torch.testing.assert_close(o[rows].transpose(0, 1).double(), want, atol=0.02, rtol=0.02)
                torch.testing.assert_close(lse[:, rows].double(), want_lse, atol=1e-3, rtol=1e-3)
                want, _ = exact(of_b, *caches, None, plain[rows])
                torch.testing.assert_close(alone[rows].transpose(0, 1).double(), want, atol=0.02, rtol=0.02)

    def keys_of(self, arguments, given):
        """K and V of each sequence."""
        _, k, v, lengths, _, _ = arguments
        table = given.get("page_table")
        for b, n in enumerate(lengths.tolist()):
            rows = [x[b] if table is None else torch.cat(list(x[table[b].long()]), dim=1) for x in (k, v)]
            yield [x[:, : max(n, 0)] for x in rows]

    def test_decode(self):
        """A tree of a chain is a causal mask."""
        arguments, given = test_serving.problem(True, torch.bfloat16)
        q, k, v, lengths, _, _ = arguments
        rows = test_call.random(len(lengths), q.shape[1], 5, q.shape[2])
        chain = torch.tensor([1, 3, 7, 15, 31]).expand(len(lengths), 5)
        got = attune.decode(rows, k, v, lengths, **given, tree_mask=chain, fallback=True)
        want = attune.decode(rows, k, v, lengths, **given, fallback=True)
        torch.testing.assert_close(got, want)


class Operators(unittest.TestCase):
    def test_opcheck(self):
        q, slopes = test_call.random(1, 2, 8, 64), torch.rand(2)
        arguments = (q, q, q, None, None, None, True, -1.0, -1, -1, None, True)
        options = {"fallback": True, "alibi_slopes": slopes}
        torch.library.opcheck(_operators._sdpa_op, arguments, options)
        torch.library.opcheck(_operators._sdpa_out_op, (*arguments, torch.empty_like(q)), options)

    def test_compile(self):
        q, slopes = test_call.random(1, 2, 8, 64), torch.rand(2)
        function = lambda x: attune.sdpa(x, x, x, alibi_slopes=slopes, precision="16", fallback=True)
        compiled = torch.compile(function, backend="aot_eager", fullgraph=True)
        torch.testing.assert_close(compiled(q), function(q))
        k, lengths = test_call.random(1, 2, 32, 64), torch.tensor([20], dtype=torch.int32)
        tree = words_of(1, 8)[1]
        function = lambda x: attune.decode(x, k, k, lengths, tree_mask=tree, fallback=True)
        compiled = torch.compile(function, backend="aot_eager", fullgraph=True)
        torch.testing.assert_close(compiled(q), function(q))
        with FakeTensorMode():
            x = torch.empty(2, 8, 16, 64, dtype=torch.bfloat16, device="cuda")
            slopes = torch.empty(8, device="cuda")
            self.assertEqual(attune.sdpa(x, x, x, alibi_slopes=slopes).shape, x.shape)

    def test_vmap(self):
        q, slopes = test_call.random(3, 1, 2, 8, 64), torch.rand(2)
        function = lambda x: attune.sdpa(x, x, x, alibi_slopes=slopes, causal=True, fallback=True)
        want = torch.stack([function(x) for x in q])
        torch.testing.assert_close(torch.func.vmap(function)(q), want, atol=0.01, rtol=0.02)


if __name__ == "__main__":
    unittest.main()
