"""The table of the integrations: counted in each call, explained when it is read."""

import unittest
import weakref
from unittest import mock

import package  # noqa: F401 (before attune)
import torch

import attune
from attune import _calls, _door
from attune._calls import Calls


def explanation(precision="fp8", kernel="dense"):
    return attune.Explanation("form", kernel, precision, 1, 0, 0.056, "a test")


def random(*shape):
    return torch.randn(shape, generator=torch.Generator().manual_seed(1)).bfloat16()


def record(calls, *problems, layer=""):
    for q, k, v, options in problems:
        _door.record(calls, layer, q, "attune", (q, k, v, options))


class Problems(unittest.TestCase):
    def asked(self, *problems, **mocked):
        """How often attune.explain is asked for calls of (q, k, v, options), and the rows of the table."""
        calls = Calls()
        record(calls, *problems)
        with mock.patch.object(_calls, "explain", **mocked or {"return_value": explanation()}) as explain:
            rows = [(row.precision, row.kernel, n) for row, n in calls.rows.items()]
            self.assertEqual(calls.rows.total(), len(problems))
        return explain.call_count, rows

    def test_once_for_each_problem(self):
        q, k = random(1, 4, 24, 64), random(1, 2, 24, 64)
        strided = random(1, 24, 4, 64).transpose(1, 2)
        options = {"causal": True, "scale": None, "sinks": torch.ones(4)}
        same = {**options, "sinks": torch.zeros(4)}  # elements change nothing
        given = [*[(q, k, k, options)] * 3, (q.clone(), k, k, same)]
        self.assertEqual(self.asked(*given), (1, [("fp8", "dense", 4)]))
        others = [
            (q, q, q, options),
            (q[:, :, :9], k, k, options),
            (strided, k, k, options),
            (q.half(), k.half(), k.half(), options),
            (q, k, k, {**options, "causal": False}),
            (q, k, k, {**options, "sinks": None}),
            (q, k, k, {**options, "precision": "16"}),
            (q, k, k, {**options, "out": q}),
            (q, k, k, {**options, "out": q.half()}),
            (q, k, k, {**options, "out": strided}),
        ]
        self.assertEqual(self.asked(*others, *others)[0], len(others))

    def test_not_before_it_is_read(self):
        q, calls = random(1, 4, 24, 64), Calls()
        with mock.patch.object(_calls, "explain", return_value=explanation()) as explain:
            for layer in ("Layer 0", "Layer 1"):
                record(calls, (q, q, q, {}), layer=layer)
            self.assertEqual((calls.taken, explain.call_count), (2, 0))
            self.assertEqual([row.layer for row in calls.rows], ["Layer 0", "Layer 1"])
            record(calls, (q, q, q, {}), layer="Layer 1")
            self.assertEqual(explain.call_count, 1)  # the layers have one problem
            self.assertEqual(list(calls.rows.values()), [1, 2])

    def test_no_tensor_is_kept(self):
        q, calls = random(1, 4, 24, 64), Calls()
        record(calls, (q, q, q, {"sinks": torch.ones(4), "out": random(1, 4, 24, 64)}))
        gone = weakref.ref(q)
        del q
        self.assertIsNone(gone())

    def test_the_arguments_of_explain(self):
        """Tensors without elements have the shapes, strides and dtypes of those that are gone."""
        q = random(9, 8, 64)[:, ::2]
        offsets = torch.tensor([0, 9], dtype=torch.int32)
        options = {"cu_seqlens_q": offsets, "cu_seqlens_k": offsets, "max_seqlen_q": 9, "max_seqlen_k": 9}
        with mock.patch.object(_calls, "explain", return_value=explanation("16", "native")) as explain:
            calls = Calls()
            record(calls, (q, q, q, options))
            self.assertEqual([(row.precision, row.kernel) for row in calls.rows], [("16", "native")])
        (given, *_), named = explain.call_args
        self.assertEqual((given.shape, given.stride(), given.dtype), (q.shape, q.stride(), q.dtype))
        self.assertEqual((named["cu_seqlens_q"].dtype, named["max_seqlen_k"]), (torch.int32, 9))

    def test_decoding_does_not_fill_memory(self):
        k, calls = random(1, 2, 40, 64), Calls()
        explaining = mock.patch.object(_calls, "explain", return_value=explanation())
        with mock.patch.object(_calls, "_MAX_OPEN", 8), explaining as explain:
            for n in range(1, 40):
                record(calls, (k[:, :, :1], k[:, :, :n], k[:, :, :n], {}))
                self.assertLessEqual(len(calls._problems), 8)
            self.assertEqual(explain.call_count, 39 - 8)
            self.assertEqual(list(calls.rows.values()), [39])

    def test_without_explain(self):
        """Without the library, and where nothing supports the call, the table says what was asked for."""
        q = random(1, 4, 24, 64)
        missing = {"side_effect": RuntimeError("the compiled part of attune is missing")}
        asked, rows = self.asked((q, q, q, {}), (q, q, q, {"precision": "fp8"}), **missing)
        self.assertEqual((asked, rows), (2, [("auto", "", 1), ("fp8", "", 1)]))
        _, rows = self.asked((q, q, q, {"causal": True}), return_value=explanation(None, "none"))
        self.assertEqual(rows, [("auto", "none", 1)])

    def test_compiled_code(self):
        q, calls = random(1, 4, 24, 64), Calls()
        with mock.patch.object(torch.compiler, "is_compiling", lambda: True):
            record(calls, (q, q, q, {}))
        self.assertEqual((calls.taken, len(calls.rows)), (0, 0))

    def test_symbolic_shapes(self):
        """A trace has shapes that are no numbers, and no problem to explain."""
        from torch.fx.experimental.proxy_tensor import make_fx

        calls = Calls()
        make_fx(lambda q: record(calls, (q, q, q, {})) or q, tracing_mode="symbolic")(random(1, 4, 24, 64))
        self.assertEqual([(row.precision, row.kernel) for row in calls.rows], [("auto", "")])


class Table(unittest.TestCase):
    def test_columns(self):
        calls, q = Calls(), torch.empty(1, 4, 24, 64, dtype=torch.bfloat16)
        record(calls, (q, q, q, {}), layer="Layer 0")
        _door.record(calls, "Layer 1", q, "sdpa", reason="softcap")
        self.assertEqual((calls.taken, calls.fallback), (1, 1))
        with mock.patch.object(_calls, "explain", return_value=explanation()):
            lines = str(calls).splitlines()
        self.assertRegex(lines[0], r"^calls +layer +shape +path +precision +kernel +reason$")
        self.assertRegex(lines[1], r"^1 +Layer 0 +1x4x24x64 +attune +fp8 +dense$")
        self.assertRegex(lines[2], r"^1 +Layer 1 +1x4x24x64 +sdpa +bfloat16 +softcap$")

    def test_empty_columns(self):
        """Without a call by attune there is no kernel, and diffusers names no layers."""
        calls = Calls()
        _door.record(calls, "", torch.empty(4, 64), "native", reason="a mask")
        self.assertEqual(str(calls), "calls  shape  path    precision  reason\n1      4x64   native  float32    a mask")

    def test_without_rows(self):
        """attune.patch counts, and records no rows."""
        with attune.patch() as calls:
            q = random(1, 4, 24, 64)
            torch.nn.functional.scaled_dot_product_attention(q, q, q)
        self.assertEqual(str(calls), "attune computed 0 calls and left 1")


if __name__ == "__main__":
    unittest.main()
