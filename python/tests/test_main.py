"""python -m attune without a GPU, and its self-test with a stand-in for the library."""

import contextlib
import io
import unittest
from unittest import mock

import package  # noqa: F401 (before attune)
import standin
import torch

import attune
from attune import __main__ as main
from attune import _cache, _reference


def printed(function, *arguments):
    text, problems = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(text), contextlib.redirect_stderr(problems):
        result = function(*arguments)
    return result, text.getvalue(), problems.getvalue()


class Main(unittest.TestCase):
    @unittest.skipIf(torch.cuda.is_available(), "with a GPU")
    def test_without_gpu(self):
        code, text, _ = printed(main.main, [])
        self.assertEqual(code, 0)
        self.assertIn(f"PyTorch   {torch.__version__}\n", text)
        self.assertIn("missing:  a GPU that PyTorch can use\n", text)
        self.assertEqual("not installed: a source folder" in text, attune.__version__ == "0")
        code, text, problems = printed(main.main, ["--self-test"])
        self.assertEqual(code, 1)
        self.assertIn("self-test: not run", problems)

    def test_what_is_missing(self):
        with (
            mock.patch.object(main._library, "_call", None),
            mock.patch.object(main, "_driver", lambda: 12080),
            mock.patch.object(torch.cuda, "is_available", lambda: False),
        ):
            reasons = main.missing()
        self.assertTrue(reasons[0].startswith("the compiled library"), reasons)
        self.assertTrue(reasons[-1].startswith("a GPU"), reasons)

    def test_cards(self):
        """What each GPU lacks, with a driver of CUDA 12.2."""
        cards = {"T4": (7, 5), "A100": (8, 0), "A10": (8, 6), "L4": (8, 9), "H200": (9, 0), "RTX 5090": (12, 0)}
        lacks = {"T4": "a GPU since Ampere", "H200": "NVIDIA's driver 580"}
        for name, capability in cards.items():
            with (
                mock.patch.object(main._library, "_call", object()),
                mock.patch.object(main, "_driver", lambda: 12020),
                mock.patch.object(torch.cuda, "is_available", lambda: True),
                mock.patch.object(torch.cuda, "get_device_capability", lambda capability=capability: capability),
            ):
                reasons = main.missing()
            self.assertEqual(len(reasons), name in lacks, (name, reasons))
            self.assertTrue(all(reason.startswith(lacks[name]) for reason in reasons), reasons)

    def self_test(self):
        def append(k, v, k_cache, v_cache, lengths, table, *descale):
            _reference.append(k, v, k_cache, v_cache, lengths, table, *descale[:2])
            return True

        with standin.library(), mock.patch.object(_cache, "_append", append):
            return printed(main.self_test, "cpu")

    def test_self_test(self):
        passed, text, _ = self.self_test()
        self.assertTrue(passed, text)
        self.assertEqual((len(text.splitlines()), text.count("ok ")), (16, 16), text)

    def test_failure(self):
        """A library that forgets the causal mask."""
        with mock.patch.object(main, "sdpa", lambda q, k, v, **options: _reference.PYTORCH(
            q, k, v, enable_gqa=True)):  # fmt: skip
            passed, text, _ = self.self_test()
        self.assertFalse(passed)
        self.assertEqual(text.count("FAILED"), 6, text)


if __name__ == "__main__":
    unittest.main()
