"""What the tables of the integrations say of a call that attune computed: its precision and its kernel."""

import unittest
from unittest import mock

import package  # noqa: F401 (before attune)
import torch

import attune
from attune import _door
from attune._patch import Calls


def explanation(precision="fp8", kernel="dense"):
    return attune.Explanation("form", kernel, precision, 1, 0, 0.056, "a test")


def random(*shape):
    return torch.randn(shape, generator=torch.Generator().manual_seed(1)).bfloat16()


class Computed(unittest.TestCase):
    def setUp(self):
        clear = mock.patch.dict(_door._known, clear=True)
        clear.start()
        self.addCleanup(clear.stop)

    def asked(self, *calls, **mocked):
        """How often attune.explain is asked for calls of (q, k, v, options)."""
        mocked = mocked or {"return_value": explanation()}
        with mock.patch.object(_door, "explain", **mocked) as explain:
            self.found = [_door.computed(*call) for call in calls]
        return explain.call_count

    def test_once_for_each_problem(self):
        q, k = random(1, 4, 24, 64), random(1, 2, 24, 64)
        strided = random(1, 24, 4, 64).transpose(1, 2)
        options = {"causal": True, "scale": None, "sinks": torch.ones(4)}
        self.assertEqual(self.asked(*[(q, k, k, options)] * 3), 1)
        self.assertEqual(self.found, [("fp8", "dense")] * 3)
        same = {**options, "sinks": torch.zeros(4)}  # elements change nothing
        self.assertEqual(self.asked((q.clone(), k, k, same)), 0)
        others = [
            (q, q, q, options),
            (q[:, :, :9], k, k, options),
            (strided, k, k, options),
            (q.half(), k.half(), k.half(), options),
            (q, k, k, {**options, "causal": False}),
            (q, k, k, {**options, "sinks": None}),
            (q, k, k, {**options, "precision": "16"}),
        ]
        self.assertEqual(self.asked(*others, *others), len(others))

    def test_the_arguments_of_explain(self):
        q, offsets = random(9, 4, 64), torch.tensor([0, 9], dtype=torch.int32)
        options = {"cu_seqlens_q": offsets, "cu_seqlens_k": offsets, "max_seqlen_q": 9, "max_seqlen_k": 9}
        with mock.patch.object(_door, "explain", return_value=explanation("16", "native")) as explain:
            self.assertEqual(_door.computed(q, q, q, options), ("16", "native"))
        explain.assert_called_once_with(q, q, q, **options)

    def test_decoding_does_not_fill_memory(self):
        k = random(1, 2, 40, 64)
        with mock.patch.object(_door, "_MAX_KNOWN", 8):
            for n in range(1, 40):
                self.asked((k[:, :, :1], k[:, :, :n], k[:, :, :n], {}))
                self.assertLessEqual(len(_door._known), 8)

    def test_without_explain(self):
        """Without the library, and where nothing supports the call, the table says what was asked for."""
        q = random(1, 4, 24, 64)
        missing = {"side_effect": RuntimeError("the compiled part of attune is missing")}
        self.assertEqual(self.asked((q, q, q, {}), (q, q, q, {"precision": "fp8"}), **missing), 2)
        self.assertEqual(self.found, [("auto", ""), ("fp8", "")])
        self.asked((q, q, q, {"causal": True}), return_value=explanation(None, "none"))
        self.assertEqual(self.found, [("auto", "none")])

    def test_compiled_code(self):
        q = random(1, 4, 24, 64)
        with mock.patch.object(torch.compiler, "is_compiling", lambda: True):
            self.assertEqual(self.asked((q, q, q, {})), 0)
        self.assertEqual(self.found, [("auto", "")])

    def test_symbolic_shapes(self):
        """A trace has shapes that are no numbers, and no problem to explain."""
        from torch.fx.experimental.proxy_tensor import make_fx

        seen = []
        make_fx(lambda q: seen.append(_door.computed(q, q, q, {})) or q, tracing_mode="symbolic")(random(1, 4, 24, 64))
        self.assertEqual(seen, [("auto", "")])


class Table(unittest.TestCase):
    def test_columns(self):
        calls, q = Calls(), torch.empty(1, 4, 24, 64, dtype=torch.bfloat16)
        _door.record(calls, "Layer 0", q, "attune", ("fp8", "dense"))
        _door.record(calls, "Layer 1", q, "sdpa", reason="softcap")
        self.assertEqual((calls.taken, calls.fallback), (1, 1))
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
