"""python -m attune_sim SCRIPT ARGS...: runs a script for a GPU, or a module with -m, on the simulator."""

import argparse
import os
import runpy
import sys

from attune_sim._install import install


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m attune_sim", description=__doc__)
    parser.add_argument("--checks", default="all", choices=["all", "off"], help="checkers, or none for speed")
    parser.add_argument("--strict", action="store_true", help="raise findings that hardware tolerates too")
    parser.add_argument("--sample", type=int, help="check the first launches of each kernel only, so many")
    parser.add_argument("--arch", default="sm_90a", help="the simulated device (default %(default)s)")
    parser.add_argument("--autotune", default="all", choices=["all", "first"], help="which configurations run")
    parser.add_argument("--benchmarks", default="first", choices=["all", "first"], help="which sizes perf_report runs")
    parser.add_argument("-m", action="store_true", dest="is_module", help="the script is a module")
    parser.add_argument("script")
    parser.add_argument("arguments", nargs=argparse.REMAINDER)
    o = parser.parse_args()
    sys.argv = [o.script, *o.arguments]
    install(o.checks, o.strict, o.sample, o.arch, torch_cuda=True, autotune=o.autotune, benchmarks=o.benchmarks)
    if o.is_module:
        runpy.run_module(o.script, run_name="__main__", alter_sys=True)
    else:
        sys.path[0] = os.path.dirname(os.path.abspath(o.script))
        runpy.run_path(o.script, run_name="__main__")


if __name__ == "__main__":
    main()
