"""What the examples of other libraries share: the device, and the error beside the library's own attention."""

import argparse

import torch


def device(description, argv):
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    found = "cuda" if torch.cuda.is_available() else "cpu"
    parser.add_argument("--device", default=found, choices=("cuda", "cpu"), help=f"default: {found}")
    return parser.parse_args(argv).device


def report(got, want, calls):
    """The relative error of an output, and which call went where."""
    error = (got.float() - want.float()).pow(2).mean().sqrt() / want.float().pow(2).mean().sqrt()
    print(f"random weights; relative difference of the output: {100 * error.item():.2f} %")
    print(f"attune computed {calls.taken} calls and left {calls.fallback}")
    print(calls)
