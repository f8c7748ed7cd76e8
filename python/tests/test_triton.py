"""Triton kernels on the simulator. Needs Triton and the program attune; the tests are skipped without."""

import contextlib
import io
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

import package  # (before attune)

try:
    import triton
except ImportError:
    triton = None
import torch

TESTS = pathlib.Path(__file__).resolve().parent
EXAMPLES = TESTS.parents[1] / "examples" / "triton"
MISSING = None
if triton is None:
    MISSING = "no Triton"
elif shutil.which(os.environ.get("ATTUNE_PROGRAM", "attune")) is None:
    MISSING = "no attune in PATH or ATTUNE_PROGRAM"
else:
    import triton_kernels as kernels
    from triton.tools.tensor_descriptor import TensorDescriptor

    import attune.triton
    from attune_sim import _simulator


@unittest.skipIf(MISSING, MISSING)
class OnSimulator(unittest.TestCase):
    options = {}

    @classmethod
    def setUpClass(cls):
        attune.triton.install(**cls.options)
        cls.addClassCleanup(attune.triton.uninstall)
        torch.manual_seed(1)

    @contextlib.contextmanager
    def assertFinding(self, kind):
        with self.assertRaises(attune.triton.Finding) as caught:
            yield caught
        self.assertEqual(caught.exception.kind, kind)


class Launches(OnSimulator):
    def test_add(self):
        x, y, out = torch.randn(3, 1000).unbind()
        kernels.add[(4,)](x, y, out, 1000, BLOCK=256)
        torch.testing.assert_close(out, x + y)

    def test_numpy(self):
        import numpy

        x, out = numpy.arange(100, dtype=numpy.float32), numpy.zeros(100, numpy.float32)
        x.flags.writeable = False
        kernels.add[(1,)](x, x, out, 100, BLOCK=128)
        self.assertEqual(out.tolist(), (2 * x).tolist())

    def test_scalars(self):
        x = torch.randn(100)
        for factor in (3, 1, 2.5, -(1 << 40), 1 << 63):
            out = torch.empty(100)
            kernels.scale[(1,)](x, out, factor, 100, BLOCK=128)
            torch.testing.assert_close(out, x * factor)

    def test_types(self):
        for dtype in (torch.float16, torch.bfloat16, torch.float64, torch.int8, torch.uint8, torch.int64, torch.bool):
            x = torch.randint(0, 2, (100,)).to(dtype)
            out = torch.empty_like(x)
            kernels.add[(1,)](x, torch.zeros_like(x), out, 100, BLOCK=128)
            self.assertTrue(torch.equal(out, x), dtype)

    def test_views_and_alignment(self):
        both = torch.zeros(101)
        both[1:] = torch.randn(100)
        kernels.add[(1,)](both[1:], both[1:], both[1:51], 50, BLOCK=128)
        x = torch.frombuffer(bytearray(4 * 101), dtype=torch.float32)[1:]
        kernels.scale[(1,)](both[1:], x, 1.0, 100, BLOCK=128)
        self.assertTrue(torch.equal(x, both[1:]))

    def test_empty_and_none(self):
        kernels.add[(0,)](torch.empty(0), torch.empty(0), torch.empty(0), 0, BLOCK=64)
        kernels.add[(1,)](torch.empty(0), torch.empty(0), torch.empty(0), 0, BLOCK=64)

    def test_autotune_and_heuristics(self):
        x, out = torch.randn(300), torch.empty(300)
        kernels.tuned[lambda meta: (triton.cdiv(300, meta["BLOCK"]),)](x, out, 2.0, 300)
        torch.testing.assert_close(out, 2 * x)
        self.assertIn(kernels.tuned.best_config.kwargs["BLOCK"], (64, 256))
        kernels.whole[(1,)](x, out, 3.0, 300)
        torch.testing.assert_close(out, 3 * x)

    def test_hooks_and_benchmark(self):
        calls = []
        x, out = torch.randn(2, 100).unbind()
        launch = lambda: kernels.scale[(1,)](x, out, 2.0, 100, BLOCK=128)  # noqa: E731
        with triton.knobs.runtime.scope():
            triton.knobs.runtime.launch_enter_hook = lambda metadata: calls.append(metadata.get()["name"])
            launch()
        self.assertEqual(calls, ["scale"])
        self.assertGreater(triton.testing.do_bench(launch, warmup=1, rep=1), 0)

    def test_measurements(self):
        """Each function that measures a time calls once, and so do those that a script has imported by name."""
        calls = []
        do_bench, graph = triton.testing.do_bench, triton.testing.do_bench_cudagraph
        self.assertGreater(do_bench(lambda: calls.append(1), 5, rep=20), 0)
        self.assertEqual(len(graph(lambda: calls.append(1), quantiles=[0.5, 0.2])), 2)
        self.assertEqual(len(do_bench(lambda: calls.append(1), return_mode="all")), 1)
        self.assertEqual(len(calls), 3)

    def test_compiled_from_ir(self):
        """A kernel of Triton's IR has numbers in the place of names."""
        x, out = torch.randn(2, 128).unbind()
        compiled = kernels.scale.warmup(x, out, 2.0, 128, BLOCK=128, grid=(1,))
        with tempfile.NamedTemporaryFile("w", suffix=".ttgir") as file:
            file.write(compiled.asm["ttgir"])
            file.flush()
            triton.compile(file.name)[(1, 1, 1)](x, out, 2.0, 128)
        torch.testing.assert_close(out, 2 * x)

    def test_kernels_by_device(self):
        x = torch.ones(100)
        kernels.scale[(1,)](x, x, 2.0, 100, BLOCK=128)
        self.assertGreater(len(kernels.scale.device_caches[0][0]), 0)

    def test_in_place_with_small_blocks(self):
        """All threads load what one of them stores back: a race, whose late values are not used."""
        x = torch.arange(4.0)
        kernels.increment[(1,)](x, BLOCK=4)
        self.assertEqual(x.tolist(), [1, 2, 3, 4])

    def test_descriptor_of_one_dimension(self):
        """Triton leaves out the rank of a tensor map of one dimension of bytes."""
        triton.set_allocator(lambda size, alignment, stream: torch.empty(size, dtype=torch.int8))
        x = torch.randint(0, 100, (256,), dtype=torch.int8)
        out = torch.zeros_like(x)
        kernels.copy_bytes[(1,)](x, out, 256)
        self.assertTrue(torch.equal(out, x))

    def test_table_of_addresses(self):
        sources = [torch.full((4,), float(i)) for i in range(3)]
        table = torch.tensor([s.data_ptr() for s in sources])
        before, out = table.clone(), torch.empty(3)
        kernels.gather[(1,)](table, out, 3)
        self.assertEqual(out.tolist(), [0, 1, 2])
        self.assertTrue(torch.equal(table, before))

    def test_descriptors_of_host(self):
        x, out = torch.randn(32, 64), torch.empty(64, 32)
        descriptors = TensorDescriptor.from_tensor(x, [32, 64]), TensorDescriptor.from_tensor(out, [64, 32])
        kernels.transpose[(1,)](*descriptors, 32, 64)
        self.assertTrue(torch.equal(out, x.T))

    def test_descriptors_of_kernel(self):
        triton.set_allocator(lambda size, alignment, stream: torch.empty(size, dtype=torch.int8))
        x, out = torch.randn(32, 64), torch.empty(32, 64)
        kernels.copy[(1,)](x, out, 32, 64)
        self.assertTrue(torch.equal(out, x))

    def test_product(self):
        a, b, c = torch.randn(3, 64, 64).half().unbind()
        kernels.multiply[(1,)](a, b, c, 64)
        torch.testing.assert_close(c.float(), a.float() @ b.float(), atol=1e-2, rtol=1e-2)

    def test_print(self):
        code = "import attune.triton, torch, triton_kernels; attune.triton.install(); "
        code += "triton_kernels.show[(1,)](torch.tensor([7]), num_warps=1)"
        self.assertIn("value: 7", child(["-c", code]).stdout)

    def test_fork(self):
        def launch():
            x = torch.ones(100)
            kernels.add[(1,)](x, x, x, 100, BLOCK=128)
            return int(x.sum())

        self.assertEqual(launch(), 200)
        process = os.fork()
        if process == 0:
            os._exit(launch())
        self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]), 200)
        self.assertEqual(launch(), 200)


class Findings(OnSimulator):
    def test_out_of_bounds(self):
        x, y, out = (torch.randn(1000) for _ in range(3))
        with self.assertFinding("out-of-bounds") as caught:
            kernels.add[(4,)](x, y, out, 1000, BLOCK=256, EXTRA=1)
        torch.testing.assert_close(out, x + y)
        finding = caught.exception
        self.assertTrue(finding.file.endswith("triton_kernels.py"), finding.file)
        self.assertEqual((finding.line, finding.kernel, finding.severity), (12, "add", "error"))
        self.assertEqual(finding.block, (3, 0, 0))
        self.assertIsNotNone(finding.thread)
        self.assertIn("check the index", finding.help)
        self.assertEqual(len(finding.launch_findings), 3)
        for text in ("argument x, element 1000 of 1000", "argument out", "triton_kernels.py:12"):
            self.assertIn(text, str(finding))
        self.assertIsInstance(finding, RuntimeError)

    def test_again(self):
        """Each launch raises, also for a defect that an earlier one had."""
        x = torch.randn(100)
        for _ in range(2):
            with self.assertFinding("out-of-bounds"):
                kernels.scale[(1,)](x, x, 2.0, 101, BLOCK=128)
        kernels.scale[(1,)](x, x, 2.0, 100, BLOCK=128)

    def test_assert(self):
        with self.assertFinding("assert"):
            kernels.check[(1,)](torch.zeros(1), debug=True)
        kernels.check[(1,)](torch.ones(1), debug=True)

    def test_race(self):
        sys.path.insert(0, str(EXAMPLES))
        self.addCleanup(sys.path.remove, str(EXAMPLES))
        from histogram import histogram

        values = torch.randint(0, 256, (3000,), dtype=torch.uint8)
        self.assertTrue(torch.equal(histogram(values), torch.bincount(values.int(), minlength=256).int()))
        with self.assertFinding("race") as caught:
            histogram(values, atomic=False)
        self.assertIn("tl.store(place, tl.load(place) + found)", str(caught.exception))

    def test_wrong_arguments(self):
        with self.assertRaisesRegex(TypeError, "a tensor on meta"):
            kernels.scale[(1,)](torch.empty(4, device="meta"), torch.empty(4), 1.0, 4, BLOCK=16)


class Options(unittest.TestCase):
    def setUp(self):
        if MISSING:
            self.skipTest(MISSING)
        self.addCleanup(attune.triton.uninstall)

    def launch(self, count=1):
        x = torch.randn(100)
        for _ in range(count):
            kernels.scale[(1,)](x, x, 2.0, 101, BLOCK=128)

    def test_checks_off(self):
        attune.triton.install(checks="off")
        self.launch()
        with self.assertRaisesRegex(ValueError, 'want "all" or "off"'):
            attune.triton.install(checks="some")

    def test_sample(self):
        attune.triton.install(sample=1)
        with self.assertRaises(attune.triton.Finding):
            self.launch()
        self.launch(2)

    def test_autotune_first(self):
        attune.triton.install(autotune="first")
        x, out = torch.randn(301), torch.empty(301)
        kernels.tuned[lambda meta: (triton.cdiv(301, meta["BLOCK"]),)](x, out, 2.0, 301)
        self.assertEqual(kernels.tuned.best_config.kwargs["BLOCK"], 64)
        torch.testing.assert_close(out, 2 * x)

    def test_benchmarks(self):
        sizes = []

        def measured(n, provider):
            sizes.append(n)
            return 1.0

        lines = {"line_arg": "provider", "line_vals": ["one"], "line_names": ["one"]}
        bench = triton.testing.Benchmark(x_names=["n"], x_vals=[3, 4, 5], plot_name="", args={}, **lines)
        mark = triton.testing.perf_report(bench)(measured)
        if not package.has("matplotlib") or not package.has("pandas"):
            self.skipTest("Triton's benchmarks need matplotlib and pandas")
        for benchmarks, want in (("first", [3]), ("all", [3, 4, 5])):
            sizes.clear()
            attune.triton.install(benchmarks=benchmarks)
            with contextlib.redirect_stderr(io.StringIO()) as said:
                mark.run()
            self.assertEqual(sizes, want)
            self.assertEqual("benchmark measured runs the first of 3 sizes" in said.getvalue(), benchmarks == "first")
        with self.assertRaisesRegex(ValueError, "benchmarks='none'"):
            attune.triton.install(benchmarks="none")

    def test_arch(self):
        attune.triton.install(arch="sm_80")
        self.assertEqual(triton.runtime.driver.active.get_current_target().arch, 80)
        with self.assertRaisesRegex(RuntimeError, "the simulator has sm_80 and later"):
            attune.triton.install(arch="sm_70")

    def test_no_program(self):
        saved = os.environ.get("ATTUNE_PROGRAM")
        os.environ["ATTUNE_PROGRAM"] = "/no/such/attune"
        restore = os.environ.pop if saved is None else os.environ.__setitem__
        self.addCleanup(restore, "ATTUNE_PROGRAM", saved)
        with self.assertRaisesRegex(RuntimeError, "ATTUNE_PROGRAM names /no/such/attune"):
            attune.triton.install()

    def test_uninstall(self):
        names = ("ATTUNE_EXEC_SOCKET", "LD_LIBRARY_PATH")
        before = {name: os.environ.get(name) for name in names}
        run, available = triton.runtime.jit.JITFunction.run, torch.cuda.is_available
        attune.triton.install(torch_cuda=True)
        self.assertNotEqual(before, {name: os.environ.get(name) for name in names})
        attune.triton.uninstall()
        self.assertEqual(before, {name: os.environ.get(name) for name in names})
        self.assertIs(run, triton.runtime.jit.JITFunction.run)
        self.assertIs(available, torch.cuda.is_available)
        attune.triton.uninstall()


class CudaOnHost(OnSimulator):
    options = {"torch_cuda": True}

    def test_device(self):
        self.assertTrue(torch.cuda.is_available())
        self.assertEqual(torch.cuda.get_device_capability(), (9, 0))
        x = torch.randn(4, device="cuda")
        self.assertEqual((x.device, x.is_cuda, x.get_device()), (torch.device("cuda:0"), True, 0))
        for y in (x + 1, x.view(2, 2), torch.empty_like(x), torch.zeros(2, device=x.device), x.new_empty(3), x.half()):
            self.assertEqual(y.device, x.device)
        host = torch.randn(4)
        for y in (host, host + 1, torch.from_numpy(host.numpy()), host.clone(), torch.tensor([1]), x.cpu()):
            self.assertEqual((y.device.type, y.is_cuda), ("cpu", False))

    def test_norms(self):
        for dtype in (torch.float16, torch.float32):
            x = torch.ones(1, 2, 4, device="cuda", dtype=dtype)
            for norm in (
                lambda t: torch.nn.functional.group_norm(t, 2),
                lambda t: torch.nn.functional.layer_norm(t, (4,)),
            ):
                self.assertEqual((norm(x).device.type, norm(x.cpu()).device.type), ("cuda", "cpu"))

    def test_copies(self):
        x = torch.randn(4, device="cuda")
        self.assertIs(x.cuda(), x)
        self.assertIs(x.to("cuda"), x)
        host = x.to("cpu")
        x.zero_()
        self.assertNotEqual(host.abs().sum(), 0)
        back = host.cuda(non_blocking=True)
        host.zero_()
        self.assertNotEqual(back.abs().sum(), 0)
        self.assertTrue(back.is_cuda)
        self.assertEqual(back.to(dtype=torch.float64, device="cpu").device.type, "cpu")
        self.assertTrue(host.to(back).is_cuda)

    def test_modules_and_contexts(self):
        with torch.device("cuda"):
            self.assertTrue(torch.ones(2).is_cuda)
        with torch.cuda.device(0), torch.cuda.stream(torch.cuda.Stream()):
            layer = torch.nn.Linear(4, 4).cuda()
        self.assertTrue(layer.weight.is_cuda)
        generator = torch.Generator(device="cuda").manual_seed(1)
        self.assertTrue(torch.rand(2, device="cuda", generator=generator).is_cuda)
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        end.record()
        torch.cuda.synchronize()
        self.assertGreaterEqual(begin.elapsed_time(end), 0)

    def test_empty_output(self):
        """An output that nothing has written is uninitialised, until a function writes it."""
        x, n = torch.randn(100, device="cuda"), 100
        for out in (torch.empty(n, device="cuda"), torch.empty_like(x), x.new_empty(n)):
            self.assertEqual((out.shape, out.stride(), out.device.type), ((n,), (1,), "cuda"))
            with self.assertFinding("uninitialized") as caught:
                kernels.add[(1,)](out, x, out, n, BLOCK=128)
            self.assertEqual(caught.exception.line, 12)
            kernels.add[(1,)](out, x, out, n, BLOCK=128)
        writes = (torch.Tensor.zero_, lambda t: t.data.zero_(), lambda t: t.view(10, 10).T.fill_(0))
        for write in (*writes, lambda t: t[:].fill_(0), lambda t: t.copy_(x), lambda t: torch.neg(x, out=t)):
            out = torch.empty(n, device="cuda")
            write(out)
            kernels.add[(1,)](out, x, out, n, BLOCK=128)
        out = torch.empty(n, device="cuda")
        kernels.scale[(1,)](x, out, 2.0, n, BLOCK=128)
        torch.testing.assert_close(out, 2 * x)

    def test_backward(self):
        x = torch.randn(100, device="cuda", requires_grad=True)
        kernels.Double.apply(x).square().sum().backward()
        torch.testing.assert_close(x.grad, 8 * x.detach())
        self.assertTrue(x.grad.is_cuda)
        loss = kernels.Double.apply(x).sum()
        torch.autograd.backward([loss])
        self.assertTrue(torch.empty(1, device="cuda").is_cuda)
        gradient = torch.autograd.grad(kernels.Double.apply(x).sum(), x)[0]
        self.assertEqual(gradient.tolist(), [2.0] * 100)


def child(arguments, **variables):
    environment = {**os.environ, **variables}
    folders = [str(TESTS), str(pathlib.Path(_simulator.__file__).parents[1]), environment.get("PYTHONPATH", "")]
    environment["PYTHONPATH"] = os.pathsep.join(folders)
    for name in ("ATTUNE_EXEC_SOCKET", "LD_LIBRARY_PATH"):
        environment.pop(name, None)
    return subprocess.run([sys.executable, "-B", *arguments], capture_output=True, text=True, env=environment)


@unittest.skipIf(MISSING, MISSING)
class Doors(unittest.TestCase):
    SCRIPT = "import torch, triton, triton_kernels as k; x = torch.ones(100, device='cuda'); "
    SCRIPT += "k.scale[(1,)](x, x, 2.0, {n}, BLOCK=128); print(x.sum().item())"

    def test_script(self):
        with tempfile.TemporaryDirectory() as folder:
            script = pathlib.Path(folder, "script.py")
            script.write_text(self.SCRIPT.format(n=100))
            self.assertEqual(child(["-m", "attune_sim", str(script)]).stdout, "200.0\n")
            script.write_text(self.SCRIPT.format(n=101))
            done = child(["-m", "attune_sim", str(script)])
            self.assertEqual(done.returncode, 1)
            self.assertIn("attune.triton.Finding: error: out-of-bounds on argument x, out", done.stderr)

    def test_compile(self):
        """torch._dynamo can be imported, and torch.compile leaves functions as they are written."""
        with tempfile.TemporaryDirectory() as folder:
            script = pathlib.Path(folder, "script.py")
            body = "import torch, torch._dynamo; f = torch.compile(lambda x: 2 * x); "
            script.write_text(body + "print(f(torch.ones(3, device='cuda')).tolist(), torch.cuda.memory_allocated())")
            done = child(["-m", "attune_sim", str(script)])
            self.assertEqual(done.stdout, "[2.0, 2.0, 2.0] 0\n", done.stderr)

    def test_variable(self):
        """ATTUNE_SIM=1 is enough where the package is installed: Triton finds the driver by its entry point."""
        with tempfile.TemporaryDirectory() as folder:
            metadata = pathlib.Path(folder, "attune-0.dist-info")
            metadata.mkdir()
            (metadata / "METADATA").write_text("Name: attune\nVersion: 0\n")
            (metadata / "entry_points.txt").write_text("[triton.backends]\nattune = attune_sim\n")
            for value, want in (("1", "200.0\n"), ("checks=off", "200.0\n"), ("", None)):
                n = 101 if value == "checks=off" else 100
                done = child(["-c", self.SCRIPT.format(n=n)], ATTUNE_SIM=value, PYTHONPATH=folder)
                if want is not None:
                    self.assertEqual(done.stdout, want, done.stderr)
                elif not torch.cuda.is_available():
                    self.assertNotEqual(done.returncode, 0)

    # The plugin of this folder, whether attune is installed or not.
    ALONE = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}

    @unittest.skipUnless(package.has("pytest"), "no pytest")
    def test_pytest(self):
        command = ["-m", "pytest", "-p", "attune_sim.plugin", "-p", "no:cacheprovider", "-q", "--tb=short"]
        command += ["-W", "ignore", str(EXAMPLES)]
        done = child([*command, "--attune-sim"], **self.ALONE)
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        for text in ("1 failed, 3 passed", "Finding: error: race on argument counts", "findings: 1 race"):
            self.assertIn(text, done.stdout)
        self.assertIn("4 skipped", child(command, CUDA_VISIBLE_DEVICES="", **self.ALONE).stdout)

    @unittest.skipUnless(package.has("pytest"), "no pytest")
    def test_pytest_programs(self):
        """Findings of a program that a test starts fail the test."""
        code = "import attune.triton, contextlib, torch, triton_kernels as k\nattune.triton.install()\n"
        code += "x = torch.ones(100)\n"
        code += "with contextlib.suppress(attune.triton.Finding):\n    k.scale[(1,)](x, x, 2.0, {n}, BLOCK=128)\n"
        test = "import subprocess, sys\n\ndef test_{n}():\n"
        test += "    subprocess.run([sys.executable, '-c', {code!r}], check=True)\n"
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "test_programs.py")
            path.write_text("\n".join(test.format(n=n, code=code.format(n=n)) for n in (100, 101)))
            done = child(["-m", "pytest", "-p", "attune_sim.plugin", "-q", "--attune-sim", str(path)], **self.ALONE)
        self.assertIn("1 failed, 1 passed", done.stdout, done.stderr)
        self.assertIn("out-of-bounds on argument x", done.stdout)


if __name__ == "__main__":
    unittest.main()
