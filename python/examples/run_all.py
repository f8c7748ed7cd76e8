"""Runs all examples, with and without outliers, and writes the section "Example models".

    python examples/run_all.py --docs ../docs/accuracy.md --json out.json

replaces that section of a document, or appends it. It refuses to do so without a GPU: the document
has measured numbers only.
"""

import argparse
import contextlib
import io
import json
import pathlib
import sys

import dit_block
import llama_decode
import torch
import vit

HEADING = "## Example models"


def documents(device):
    """The report of each example, without and with outliers; their text goes to stderr."""
    for module in (dit_block, vit, llama_decode):
        for flags in ([], ["--outliers"]):
            text = io.StringIO()
            with contextlib.redirect_stdout(text):
                document = module.main(["--device", device, *flags])
            print(text.getvalue(), file=sys.stderr, end="")
            yield document


def error_rows(document):
    """Lines of a table: the errors of PyTorch and of each recipe of attune."""
    for case in document["cases"]:
        for row in case["errors"]:
            a, o = row["attention"], row["output"]
            percents = (
                f"{100 * a['relative']:.2f} % | {a['cosine']:.5f} | {100 * o['relative']:.2f} % | {o['cosine']:.5f}"
            )
            yield f"| {case['shape']} | {'yes' if case['outliers'] else 'no'} | {row['name']} | {percents} |"


def time_rows(document):
    """Lines of a table: device times; outliers do not change them."""
    for case in document["cases"]:
        for label, t in case["times"].items() if not case["outliers"] else ():
            ours, theirs, s = t["attune"], t["pytorch"], t["speedup"]
            times = f"{ours['p50_us']:.1f} | {theirs['p50_us']:.1f} | {theirs['backend']}"
            speedup = f"{s['ratio']:.3f}x | {s['ratio_low']:.3f} to {s['ratio_high']:.3f}"
            yield f"| {case['shape']} | {label} | {times} | {speedup} |"


def section(reports):
    """The section of the document. No line has more than 100 columns."""
    first = reports[0]
    lines = [
        HEADING,
        "",
        f"{first['device']}, attune {first['attune']}, PyTorch {first['pytorch']}.",
        "",
        "Weights are random. Attention is compared with float64 on the same q, k and v, and the output of",
        "the model with that of the model with exact attention. Times are device times in us, BF16 in and",
        "out; those of attune have the quantisers, or the new rows of the cache, in them.",
        "`python/examples/run_all.py` writes this section.",
    ]
    for name in dict.fromkeys(report["example"] for report in reports):
        own = [report for report in reports if report["example"] == name]
        lines += [
            "",
            f"### {name}",
            "",
            "| shape | outliers in K | attention by | relative | cosine | output relative | cosine |",
            "|---|---|---|---:|---:|---:|---:|",
            *(line for report in own for line in error_rows(report)),
            "",
            "| shape | what | attune | PyTorch | its best backend | speedup | 95 % interval |",
            "|---|---|---:|---:|---|---:|---|",
            *(line for report in own for line in time_rows(report)),
        ]
    return "\n".join(lines) + "\n"


def replaced(document, text):
    """The document with this text in place of its section, or at its end."""
    start = document.find(HEADING + "\n")
    if start < 0:
        return document.rstrip("\n") + "\n\n" + text
    end = document.find("\n## ", start + 1)
    return document[:start] + text + ("" if end < 0 else document[end:])


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    parser.add_argument("--json", type=pathlib.Path, help="file for the reports")
    parser.add_argument("--docs", type=pathlib.Path, help="document whose section is replaced")
    options = parser.parse_args(argv)
    if options.docs and (options.device != "cuda" or not torch.cuda.is_available()):
        sys.exit("run_all.py: --docs needs a GPU: the document has measured numbers only")
    reports = list(documents(options.device))
    if options.json:
        options.json.write_text(json.dumps({"schema_version": 1, "reports": reports}, indent=1) + "\n")
    if options.docs:
        options.docs.write_text(replaced(options.docs.read_text(), section(reports)))


if __name__ == "__main__":
    main()
