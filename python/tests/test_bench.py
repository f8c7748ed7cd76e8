"""The benchmark and the times of the examples without a GPU: graphs are replaced by single calls."""

import contextlib
import functools
import io
import json
import sys
import types
import unittest
from unittest import mock

import package
import torch

sys.path[:0] = [str(package.PYTHON / "examples"), str(package.PYTHON / "bench")]

import bf16  # noqa: E402
import example  # noqa: E402
import llama_decode  # noqa: E402
import measure  # noqa: E402

import attune  # noqa: E402


class Call:
    """In place of measure.Graph: the result of one call, and times that are made up."""

    def __init__(self, call, calls=measure.CALLS):
        self.calls, self.result = calls, call()
        self.graph = types.SimpleNamespace(replay=lambda: None)

    def sample(self):
        return types.SimpleNamespace(elapsed_time=lambda end: end), 2.0


def quantised(q, k, v, causal=False):
    q8, k8, v8, descale = attune.quantize(q, k, v)
    return sdpa(q8, k8, v8, causal=causal, descale=descale, out=torch.empty_like(q), fallback=True)


sdpa, decode = attune.sdpa, attune.decode


class OnCPU(unittest.TestCase):
    def setUp(self):
        stack = contextlib.ExitStack()
        self.addCleanup(stack.close)
        for target, name, value in (
            (measure, "Graph", Call),
            (torch.cuda, "synchronize", lambda: None),
            (torch.cuda, "is_available", lambda: True),
            (torch.cuda, "get_device_name", lambda: "none"),
            (bf16, "DEVICE", "cpu"),
            (bf16, "DENSE", [(1, 2, 2, 40, 64, False), (1, 4, 2, 33, 64, True)]),
            (bf16, "DECODE", [(2, 4, 2, 128, 64)]),
            (attune, "sdpa", quantised),
            (attune, "decode", functools.partial(decode, fallback=True)),
            (attune, "version", lambda: "test"),
        ):
            stack.enter_context(mock.patch.object(target, name, value))

    def printed(self, *flags):
        text = io.StringIO()
        with contextlib.redirect_stdout(text):
            bf16.main(list(flags))
        return text.getvalue()

    def test_benchmark(self):
        document = json.loads(self.printed("--json"))
        shapes = ["1x2x40x64", "1x4x33x64 kv 2 causal", "2x4x1x64 kv 2 keys 128", "2x4x1x64 kv 2 keys 128 paged"]
        self.assertEqual([row["shape"] for row in document["rows"]], shapes)
        for row in document["rows"]:
            self.assertTrue(0.01 < row["attune"]["relative"] < 0.08, row)
            self.assertLess(row["pytorch"]["relative"], 0.01)
            self.assertEqual((row["attune"]["p50_us"], row["speedup"]["ratio"]), (100, 1))
        self.assertEqual(document["rows"][2]["attune"]["gb_s"], 2 * 2 * 2 * 128 * 64 / 100 / 1e3)

    def test_text(self):
        self.assertIn("1x2x40x64", self.printed("--only", "dense"))
        self.assertEqual(len(self.printed("--only", "decode").splitlines()), 4)

    def test_wrong_answers(self):
        with mock.patch.object(attune, "sdpa", lambda q, k, v, causal: torch.zeros_like(q)):
            with self.assertRaisesRegex(SystemExit, "relative error of attune is over 0.08: 1x2x40x64"):
                self.printed("--only", "dense")

    def test_no_gpu(self):
        with mock.patch.object(torch.cuda, "is_available", lambda: False):
            with self.assertRaisesRegex(SystemExit, "no GPU"):
                bf16.main([])

    def test_backends(self):
        def refused():
            raise RuntimeError("not this")

        self.assertEqual(measure.fastest({"a": refused, "b": lambda: 1})[0], "b")
        with self.assertRaisesRegex(RuntimeError, "no backend"):
            measure.fastest({"a": refused})
        self.assertEqual(list(measure.of_backends(print, 9 << 30)), ["flash", "cudnn", "efficient"])

    @torch.no_grad()
    def test_times_of_models(self):
        q = torch.randn(1, 2, 8, 64).bfloat16()
        with mock.patch.object(attune, "sdpa", sdpa):
            got = example.model_times(lambda attend: attend(q, q, q), "model")
            self.assertEqual(got["model"]["speedup"]["ratio"], 1)
            sizes = llama_decode.SIZES["cpu"]
            model = llama_decode.Llama(sizes, False).bfloat16()
            tokens = torch.zeros(sizes["batch"], sizes["prompt"] + sizes["tokens"], dtype=torch.long)
            got = llama_decode.step_times(model, tokens, sizes, "cpu")
        self.assertEqual(list(got), ["attention", "step"])
        with contextlib.redirect_stdout(io.StringIO()) as text:
            example.show_times("step", got["step"])
        self.assertIn("step: attune 100.0 us, PyTorch (", text.getvalue())


if __name__ == "__main__":
    unittest.main()
