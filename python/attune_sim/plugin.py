"""The pytest plugin: `pytest --attune-sim` runs the kernels of tests on the simulator, without a GPU."""

import os
import shlex
from collections import Counter
from collections.abc import Generator
from typing import Any

import pytest

import attune_sim


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("attune", "attune's simulator")
    group.addoption(
        "--attune-sim",
        action="store_true",
        default=attune_sim.is_asked(),
        help="run CUDA and Triton kernels on attune's simulator with all checkers; tests with findings fail",
    )
    group.addoption("--attune-strict", action="store_true", help="fail on findings that hardware tolerates too")
    group.addoption("--attune-autotune", default="all", choices=["all", "first"], help="which configurations run")
    group.addoption(
        "--attune-benchmarks", default="first", choices=["all", "first"], help="which sizes perf_report runs"
    )
    group.addoption(
        "--attune-flags",
        default="",
        metavar="FLAGS",
        help='further flags of `attune exec`, such as "--sarif findings.sarif --suppress known.txt"',
    )


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> None:
    """Before a conftest.py asks whether there is a GPU."""
    _start(early_config, early_config.known_args_namespace)


def pytest_configure(config: pytest.Config) -> None:
    """In a worker of pytest-xdist that gets the plugin by -p."""
    _start(config, config.option)


def _start(config: pytest.Config, options: Any) -> None:
    worker = os.environ.get("PYTEST_XDIST_WORKER", "")
    if not getattr(options, "attune_sim", False) or config.pluginmanager.has_plugin(_NAME):
        return
    if getattr(options, "numprocesses", None) and not worker:
        return  # the workers have the simulators
    from attune_sim import _install

    try:
        _install.install(
            strict=options.attune_strict,
            torch_cuda=True,
            autotune=options.attune_autotune,
            benchmarks=options.attune_benchmarks,
            flags=tuple(shlex.split(options.attune_flags.replace("{worker}", worker or "main"))),
        )
    except RuntimeError as problem:
        raise pytest.UsageError(f"--attune-sim: {problem}") from problem
    config.pluginmanager.register(_Simulation(), _NAME)


_NAME = "attune-simulation"


class _Simulation:
    """Checks each test. Findings of kernels in this process are exceptions; those of its programs are not."""

    def __init__(self) -> None:
        from attune_sim import _triton

        self._driver = _triton.active()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None, Any, Any]:
        place = self._driver.simulator.reports(1 << 62)[1]
        try:
            result = yield
        except Exception:
            text = "\n".join(self._of_programs(place))
            if text:
                item.add_report_section("call", "attune", text)
            raise
        found = self._of_programs(place)
        if found:
            pytest.fail("\n".join(found), pytrace=False)
        return result

    def _of_programs(self, place: int) -> list[str]:
        reports = self._driver.simulator.reports(place)[0]
        return [r["text"].rstrip() for r in reports if r.get("process") != os.getpid() and self._driver.fails(r)]

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        reports = [r for r in self._driver.simulator.reports(0)[0] if self._driver.fails(r)]
        kinds = Counter(r["finding"]["kind"] for r in reports)
        text = ", ".join(f"{count} {kind}" for kind, count in kinds.most_common()) or "none"
        millions = self._driver.simulator.warp_instructions() / 1e6
        terminalreporter.write_sep("-", "attune")
        terminalreporter.write_line(f"findings: {text}; {millions:.1f} million warp instructions simulated")

    def pytest_unconfigure(self) -> None:
        from attune_sim import _install

        _install.uninstall()
