"""The examples on a CPU, in small sizes, and what the benchmark computes without a GPU."""

import contextlib
import importlib
import importlib.util
import io
import json
import pathlib
import sys
import tempfile
import unittest

import package
import torch

sys.path[:0] = [str(package.PYTHON / "examples"), str(package.PYTHON / "bench")]

import dit_block  # noqa: E402
import llama_decode  # noqa: E402
import measure  # noqa: E402
import run_all  # noqa: E402
import vit  # noqa: E402


def run(module, *flags):
    """What an example prints on a CPU."""
    text = io.StringIO()
    with contextlib.redirect_stdout(text):
        module.main(["--device", "cpu", *flags])
    return text.getvalue()


class Examples(unittest.TestCase):
    def check(self, module, *names):
        text = run(module)
        self.assertIn("random weights", text)
        self.assertIn("time: no GPU", text)
        document = json.loads(run(module, "--json", "--outliers"))
        self.assertEqual((document["weights"], document["device"]), ("random", "CPU"))
        for case in document["cases"]:
            self.assertTrue(case["outliers"])
            errors = {row["name"]: row for row in case["errors"]}
            self.assertEqual(tuple(errors), names)
            self.assertLess(errors["pytorch"]["attention"]["relative"], 0.005)
            for name in names[1:]:
                self.assertTrue(0.02 < errors[name]["attention"]["relative"] < 0.12, (name, errors[name]))
                self.assertGreater(errors[name]["output"]["cosine"], 0.99)
        return document["cases"][0]["errors"]

    def test_dit_block(self):
        rows = {row["name"]: row["attention"]["relative"] for row in self.check(dit_block, *RECIPES)}
        self.assertLess(rows["attune smooth_k"], 0.8 * rows["attune plain"])  # that is what it is for

    def test_vit(self):
        self.check(vit, *RECIPES)

    def test_llama_decode(self):
        self.check(llama_decode, "pytorch", "attune")


class OtherLibraries(unittest.TestCase):
    """Without a GPU attune computes no call: outputs are those of the other library, and the table names the layers."""

    def check(self, name, needs, calls, *words):
        if importlib.util.find_spec(needs) is None:
            self.skipTest(f"no {needs}")
        text = run(importlib.import_module(name))
        self.assertIn("relative difference of the output: 0.00 %", text)
        self.assertIn(f"attune computed 0 calls and left {calls}\n", text)
        for word in words:
            self.assertIn(word, text)

    def test_transformers(self):
        self.check("transformers_llama", "transformers", 10, "LlamaAttention 1", "2x8x64x64", "sdpa")

    def test_diffusers(self):
        self.check("diffusers_flux", "diffusers", 3, "1x4x288x128", "native")

    def test_register(self):
        if not hasattr(torch.nn.attention, "register_flash_attention_impl"):
            self.skipTest("PyTorch is older than 2.11")
        self.check("flash_attention", "torch", 0)


RECIPES = ("pytorch", "attune plain", "attune smooth_k", "attune hadamard", "attune both")


class Section(unittest.TestCase):
    def test_no_numbers_without_a_gpu(self):
        with self.assertRaisesRegex(SystemExit, "--docs needs a GPU"):
            run_all.main(["--device", "cpu", "--docs", "x.md"])

    def test_reports(self):
        with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stderr(io.StringIO()):
            path = pathlib.Path(folder, "out.json")
            run_all.main(["--device", "cpu", "--json", str(path)])
            reports = json.loads(path.read_text())["reports"]
        self.assertEqual([r["example"] for r in reports], ["dit_block"] * 2 + ["vit"] * 2 + ["llama_decode"] * 2)
        time = {
            "attune": {"p50_us": 10.0},
            "pytorch": {"p50_us": 20.0, "backend": "cudnn"},
            "speedup": {"ratio": 2.0, "ratio_low": 1.9, "ratio_high": 2.1},
        }
        reports[0].update(attune="0.1")
        reports[0]["cases"][0]["times"] = {"block": time}
        text = run_all.section(reports)
        self.assertIn("| 1x2x96x64 | block | 10.0 | 20.0 | cudnn | 2.000x | 1.900 to 2.100 |", text)
        self.assertEqual(text.count("| 2x4x1x128 kv 1 keys 76 | yes | attune |"), 1)
        self.assertEqual(text.count("\n### "), 3)
        self.assertLessEqual(max(map(len, text.splitlines())), 100)

    def test_place(self):
        new = run_all.HEADING + "\n\nnew\n"
        self.assertEqual(run_all.replaced("# A\n\ntext\n", new), "# A\n\ntext\n\n" + new)
        old = "# A\n\n" + run_all.HEADING + "\n\nold\n\n## Next\n\nend\n"
        self.assertEqual(run_all.replaced(old, new), "# A\n\n" + new + "\n## Next\n\nend\n")


class Measure(unittest.TestCase):
    def test_reference(self):
        random = torch.Generator().manual_seed(1)
        q, k, v = (torch.randn(1, heads, rows, 16, generator=random) for heads, rows in ((4, 5), (2, 9), (2, 9)))
        want = torch.nn.functional.scaled_dot_product_attention(q, k, v, enable_gqa=True)
        torch.testing.assert_close(measure.reference(q, k, v).float(), want)
        last = measure.reference(q, k, v, causal=True)[:, :, -1:]
        torch.testing.assert_close(last.float(), want[:, :, -1:])

    def test_errors(self):
        got = measure.errors(torch.tensor([3.0, 4.0]), torch.tensor([3.0, 0.0]))
        self.assertAlmostEqual(got["cosine"], 0.6)
        self.assertAlmostEqual(got["relative"], 4 / 3)
        self.assertEqual(got["max_err"], 4)

    def test_intervals(self):
        fast, slow = [10.0 + i % 3 for i in range(30)], [20.0 + i % 3 for i in range(30)]
        got = measure.summary(fast)
        self.assertEqual(got["p50_us"], 11)
        self.assertLessEqual(got["low_us"], got["p50_us"])
        got = measure.ratio(slow, fast)
        self.assertAlmostEqual(got["ratio"], 21 / 11)
        self.assertTrue(got["ratio_low"] <= got["ratio"] <= got["ratio_high"])


if __name__ == "__main__":
    unittest.main()
