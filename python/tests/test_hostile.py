"""The list of hostile calls, on a CPU by PyTorch and with a double of the library, and on a GPU."""

import argparse
import ctypes
import pathlib
import subprocess
import sys
import tempfile
import unittest

import package  # noqa: F401 (before attune)
import hostile
import hostile_calls
import test_gpu

ALL = argparse.Namespace(only="", heavy=False, list="", way="")


class Hostile(unittest.TestCase):
    def check(self, device):
        made = 0
        for index, (call, way) in enumerate(hostile.jobs(ALL)):
            outcome = hostile.run_one(index, call, way, device)
            with self.subTest(outcome.name):
                self.assertIn(outcome.status, ("ok", "skipped"), outcome.text)
            made += outcome.status == "ok"
        return made

    def test_on_cpu(self):
        self.assertGreater(self.check("cpu"), 400)

    @unittest.skipIf(test_gpu.reason(), test_gpu.reason())
    def test_on_gpu(self):
        self.assertGreater(self.check("cuda"), 800)

    def test_names(self):
        """A name stands for one call."""
        names = [call.name for call in hostile_calls.CALLS]
        self.assertEqual(len(names), len(set(names)))


class Judgement(unittest.TestCase):
    """What is wrong is found."""

    def outcome(self, want, run):
        return hostile.run_one(0, hostile.Call("a call", want, run), "fallback", "cpu")

    def expect(self, status, text, want, run):
        outcome = self.outcome(want, run)
        self.assertEqual(outcome.status, status, outcome.text)
        self.assertIn(text, outcome.text)

    def test_judgement(self):
        wrong = hostile.Wrong(ValueError, "q is")

        def fails(problem):
            def run(scene):
                raise problem

            return run

        self.expect("ok", "q is 1", wrong, fails(ValueError("q is 1")))
        self.expect("FAILED", "not the error that is wanted", wrong, fails(TypeError("q is 1")))
        self.expect("FAILED", "not the error that is wanted", wrong, fails(ValueError("1")))
        self.expect("FAILED", "no line", wrong, fails(ValueError("q is 1\nq is 2")))
        self.expect("FAILED", "insides", wrong, fails(ValueError("q is 1: INTERNAL ASSERT")))
        self.expect("FAILED", "no error", wrong, lambda s: s.sdpa(*s.qkv))
        self.expect("FAILED", "unexpected", hostile.RIGHT, fails(ValueError("q is 1")))
        self.expect("ok", "error 0.0", hostile.RIGHT, lambda s: s.sdpa(*s.qkv))
        self.expect("FAILED", "the error is", hostile.RIGHT, lambda s: s.sdpa(*s.qkv) * 1.1)
        self.expect("FAILED", "NaN", hostile.RIGHT, lambda s: s.sdpa(*s.qkv) / 0 * 0)

    def test_guards(self):
        """A byte before and a byte behind a tensor."""
        for offset in (-1, 2 * 64):

            def run(scene, offset=offset):
                x = scene.tensor(64)
                ctypes.c_uint8.from_address(x.data_ptr() + offset).value = 0
                return "written"

            self.expect("FAILED", "before or behind a tensor", hostile.RIGHT, run)

    def test_program(self):
        """It goes on where a call kills its process, and ends with 1."""
        source = """
import os, time
from hostile import RIGHT, Call
CALLS = [Call("crash", RIGHT, lambda s: os.kill(os.getpid(), 11), ("fallback",)),
         Call("hang", RIGHT, lambda s: time.sleep(60), ("fallback",)),
         Call("none", RIGHT, lambda s: "right", ("fallback",))]
"""
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "calls.py")
            path.write_text(source)
            command = [sys.executable, "-B", hostile.__file__, "--limit", "2", "--list", str(path)]
            done = subprocess.run(command, capture_output=True, text=True)
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        self.assertRegex(done.stdout, "(?m)^CRASHED  crash .*signal 11")
        self.assertRegex(done.stdout, "(?m)^HUNG     hang ")
        self.assertRegex(done.stdout, "(?m)^ok       none ")
        self.assertIn("3 calls in 3 runs: 1 ok, 0 skipped, 0 FAILED, 1 CRASHED, 1 HUNG", done.stdout)

if __name__ == "__main__":
    unittest.main()
