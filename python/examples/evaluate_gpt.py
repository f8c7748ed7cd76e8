"""What FP8 attention costs a trained model: loss, attention by layer, and recall.

    python evaluate_gpt.py gpt.pt --json trained.json

The model of train_gpt.py in BF16, with attention by PyTorch and by attune in each precision and with
each recipe of the quantiser. Text is held out, one sequence a call. The tables are Markdown; the keys
of the record are in docs/trained.md.
"""

import argparse
import copy
import datetime
import json
import math
import pathlib
import statistics

import example
import gpt_text
import measure
import torch
import torch.nn.functional as functional
from train_gpt import GPT, Sizes, parameters

import attune

NEEDLES = 8  # of a context, each one a trial
LIMITS = {"attune auto": 0.002, "attune fp8": 0.01}  # of the loss over PyTorch's


# ---- attention -----------------------------------------------------------------------------------


def flash(q, k, v, causal):
    attend = measure.sdpa_by("flash") if q.is_cuda else functional.scaled_dot_product_attention
    return attend(q, k, v, is_causal=causal, enable_gqa=True)


def by_attune(**options):
    return lambda q, k, v, causal: attune.sdpa(q, k, v, causal=causal, fallback=not q.is_cuda, **options)


def fp8(**recipe):
    """In E4M3, whatever the number of keys. Without a GPU the same quantisation, and PyTorch for the rest."""

    def attend(q, k, v, causal):
        if q.is_cuda:
            return attune.sdpa(q, k, v, causal=causal, precision="fp8", **recipe)
        q8, k8, v8, descale = attune.quantize(q, k, v, **recipe)
        return attune.sdpa(q8, k8, v8, causal=causal, descale=descale, out=torch.empty_like(q), fallback=True)

    return attend


def all_means():
    """The ways to compute attention, by name; the first is what the others are compared with."""
    found = {"pytorch": flash, "attune auto": by_attune(), "attune 16": by_attune(precision="16")}
    for name, recipe in example.RECIPES.items():
        found["attune fp8" if name == "plain" else f"attune fp8 {name}"] = fp8(**recipe)
    return found


# ---- loss ----------------------------------------------------------------------------------------


def window_loss(model, window, attend):
    """(loss, most likely tokens) of one sequence [length + 1]"""
    logits = model.logits(model(window[None, :-1], attend))[0]
    return functional.cross_entropy(logits, window[1:]).item(), logits.argmax(-1)


def blocks_of(text, length, count):
    """Blocks of length + 1 tokens from all over the text, in random order."""
    order = torch.randperm((len(text) - 1) // length, generator=torch.Generator().manual_seed(1))
    return [text[i * length : (i + 1) * length + 1] for i in order[:count].tolist()]


def loss_by_length(model, exact, blocks, length, exact_tokens):
    """The loss of each means on windows of a length. The same text for all lengths."""
    windows = [block[i : i + length + 1] for block in blocks for i in range(0, len(block) - 1, length)]
    losses, same = {name: [] for name in all_means()}, {name: [] for name in all_means()}
    for window in windows:
        first = None
        for name, attend in all_means().items():
            loss, top = window_loss(model, window, attend)
            first = top if first is None else first
            losses[name].append(loss)
            same[name].append((top == first).float().mean().item())
    few = windows[: max(1, exact_tokens // length)]
    truth = statistics.fmean(window_loss(exact, window, example.exact)[0] for window in few)
    rows = {}
    for name, values in losses.items():
        rows[name] = {"loss": statistics.fmean(values), **difference(values, losses["pytorch"]),
                      "same_next_token": statistics.fmean(same[name]),
                      "from_float32": statistics.fmean(values[: len(few)]) - truth}  # fmt: skip
    return {"length": length, "windows": len(windows), "float32": {"windows": len(few), "loss": truth}, "means": rows}


def difference(values, others):
    """The mean of paired differences and its 95 % interval."""
    each = [value - other for value, other in zip(values, others)]
    half = 1.96 * statistics.stdev(each) / len(each) ** 0.5 if len(each) > 1 else math.inf
    mean = statistics.fmean(each)
    return {"difference": mean, "low": mean - half, "high": mean + half}


# ---- attention by layer --------------------------------------------------------------------------


def layers_by_length(model, text, length):
    """Errors of each means in each layer, against float64 on the same q, k and v."""
    layers, same = [], []

    def attend(q, k, v, causal):
        outputs = {name: means(q, k, v, causal) for name, means in all_means().items()}
        want = measure.reference(q, k, v, causal)
        layers.append({name: measure.errors(o, want) for name, o in outputs.items()})
        same.append([name for name, o in outputs.items() if torch.equal(o, outputs["attune auto"])])
        return outputs["pytorch"]

    model(text[None, :length], attend)
    return {"length": length, "same_bits_as_auto": same[0], "layers": layers}


# ---- recall --------------------------------------------------------------------------------------


def recall_by_length(model, needles, text, length, contexts):
    """How many values each means recalls. Greedy decoding gives a value if each token of it is the most likely one."""
    source = torch.Generator(text.device).manual_seed(length)
    right = {name: [] for name in all_means()}
    for _ in range(contexts):
        start = torch.randint(len(text) - length, (1,), generator=source, device=text.device)
        tokens = text[start + torch.arange(length, device=text.device)][None].clone()
        places = needles.hide(tokens, needles.by_depth(1, length, NEEDLES, source), source)
        asked = needles.values(places)[0]  # [needle, value]
        for name, attend in all_means().items():
            hidden = model(tokens, attend)[0]
            got = model.logits(hidden[asked - 1]).argmax(-1)
            right[name] += (got == tokens[0, asked]).all(-1).tolist()
    trials = contexts * NEEDLES
    rows = {name: recalled(values, right["pytorch"]) for name, values in right.items()}
    return {"length": length, "trials": trials, "means": rows}


def recalled(values, others):
    """Right trials with Wilson's 95 % interval; trials that only the other, or only this means has right."""
    lost, gained = (sum(a and not b for a, b in zip(x, y)) for x, y in ((others, values), (values, others)))
    low, high = wilson(sum(values), len(values))
    depths = [sum(values[depth::NEEDLES]) for depth in range(NEEDLES)]
    return {"right": sum(values), "low": low, "high": high, "lost": lost, "gained": gained,
            "p": sign_test(lost, gained), "right_by_depth": depths}  # fmt: skip


def wilson(right, trials, z=1.96):
    """The 95 % interval of a share."""
    share, scale = right / trials, 1 + z * z / trials
    half = z * math.sqrt(share * (1 - share) / trials + z * z / (4 * trials * trials))
    middle = share + z * z / (2 * trials)
    return max(0.0, (middle - half) / scale), min(1.0, (middle + half) / scale)


def sign_test(lost, gained):
    """The probability of so unequal counts, or more so, if both are as likely."""
    trials = lost + gained
    tail = sum(math.comb(trials, i) for i in range(min(lost, gained) + 1)) / 2**trials
    return min(1.0, 2 * tail)


# ---- report --------------------------------------------------------------------------------------


def checks(record):
    """What is required of the precisions, and whether it holds. A model that recalls nothing says nothing."""
    rows, recalls = [], all(2 * row["means"]["pytorch"]["right"] > row["trials"] for row in record["recall"])
    for name in all_means():
        if name != "pytorch":
            limit = LIMITS["attune fp8" if "fp8" in name else "attune auto"]
            worst = max((row["means"][name]["difference"] for row in record["loss"]), key=abs)
            rows.append({"means": name, "what": "loss", "worst": worst, "limit": limit, "holds": abs(worst) <= limit})
            p = min(row["means"][name]["p"] for row in record["recall"])
            rows.append({"means": name, "what": "recall", "worst": p, "limit": 0.05, "holds": p >= 0.05 and recalls})
    return rows


def table(head, rows):
    print("| " + " | ".join(head) + " |\n|---|" + "--:|" * (len(head) - 1))
    for row in rows:
        print("| " + " | ".join(row) + " |")
    print(flush=True)


def show_loss(rows):
    names, lengths = all_means(), [f"{row['length']} tokens" for row in rows]
    print("Loss in nats per token; below it the difference from PyTorch's, with half the 95 % interval.\n")
    losses = [["float32, fewer windows", *(f"{row['float32']['loss']:.4f}" for row in rows)],
              ["pytorch", *(f"{row['means']['pytorch']['loss']:.4f}" for row in rows)]]  # fmt: skip
    for name in list(names)[1:]:
        cells = [row["means"][name] for row in rows]
        losses.append([name, *(f"{c['difference']:+.5f} ± {c['high'] - c['difference']:.5f}" for c in cells)])
    table(["attention", *lengths], losses)
    print("The same next token as with PyTorch's attention, share of tokens.\n")
    table(["attention", *lengths],
          [[name, *(f"{row['means'][name]['same_next_token']:.4f}" for row in rows)] for name in names])  # fmt: skip


def show_layers(rows):
    names = list(all_means())
    short = [name.removeprefix("attune ") for name in names]
    print("Cosine of the attention outputs with float64, lowest of all layers.\n")
    table(["length", *short, "auto is"],
          [[str(row["length"]), *(f"{min(layer[name]['cosine'] for layer in row['layers']):.5f}" for name in names),
            ", ".join(name for name in row["same_bits_as_auto"] if name != "attune auto") or "no other"]
           for row in rows])  # fmt: skip
    last = rows[-1]
    print(f"By layer, {last['length']} tokens.\n")
    table(["layer", *short],
          [[str(i), *(f"{layer[name]['cosine']:.5f}" for name in names)]
           for i, layer in enumerate(last["layers"])])  # fmt: skip


def show_recall(rows):
    print(f"Recalled values of {rows[0]['trials']}, 95 % interval; lost and gained beside PyTorch's.\n")
    cell = lambda c: f"{c['right']} ({c['low']:.3f} to {c['high']:.3f}) -{c['lost']} +{c['gained']}"
    table(["attention", *(f"{row['length']} tokens" for row in rows)],
          [[name, *(cell(row["means"][name]) for row in rows)] for name in all_means()])  # fmt: skip


def show_checks(rows):
    table(["attention", "required", "worst", "holds"],
          [[row["means"], f"loss within {row['limit']}" if row["what"] == "loss" else "recall: p at least 0.05",
            f"{row['worst']:+.5f}" if row["what"] == "loss" else f"{row['worst']:.3f}", "yes" if row["holds"] else "no"]
           for row in rows])  # fmt: skip


SHOW = {"loss": show_loss, "layers": show_layers, "recall": show_recall, "checks": show_checks}


# ---- program -------------------------------------------------------------------------------------


def arguments(argv):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    found = "cuda" if torch.cuda.is_available() else "cpu"
    parser.add_argument("checkpoint", type=pathlib.Path)
    parser.add_argument("--json", type=pathlib.Path, help="file for the record")
    parser.add_argument("--device", default=found, choices=("cuda", "cpu"), help=f"default: {found}")
    parser.add_argument("--tokens", type=int, default=1 << 18, help="held-out tokens for the loss of each length")
    parser.add_argument("--exact-tokens", type=int, default=1 << 16, help="tokens for the loss in float32")
    parser.add_argument("--contexts", type=int, default=64, help="contexts of each length for the recall")
    return parser.parse_args(argv)


def head(saved, model, options):
    """The record before anything is measured."""
    now = datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")
    sizes = {**saved["sizes"], "parameters": parameters(model)}
    versions = {"pytorch": str(torch.__version__), "attune": attune.version() if options.device == "cuda" else None}
    return {"schema_version": 1, "kind": "trained-model", "time": now, "device": example.device_name(options.device),
            **versions, "model": sizes, "corpus": saved["corpus"], "training": saved["training"]}  # fmt: skip


@torch.no_grad()
def main(argv=None):
    options = arguments(argv)
    saved = torch.load(options.checkpoint, weights_only=True)
    model = GPT(Sizes(**saved["sizes"])).to(options.device, torch.bfloat16)
    model.load_state_dict(saved["weights"])
    exact = copy.deepcopy(model).float()
    merges = {tuple(pair): 256 + i for i, pair in enumerate(saved["merges"])}
    needles = gpt_text.Needles(merges, options.device)
    text = saved["held_out"].long().to(options.device)
    middle, long = saved["contexts"][-2:]
    lengths = [middle // 2]
    while lengths[-1] < long:
        lengths.append(2 * lengths[-1])
    if len(text) <= long:
        raise SystemExit(f"evaluate_gpt.py: {len(text)} tokens are held out: the corpus needs more than {long} of them")

    blocks = blocks_of(text, long, max(1, options.tokens // long))
    record = head(saved, model, options)
    parts = {
        "loss": lambda: [loss_by_length(model, exact, blocks, length, options.exact_tokens) for length in lengths],
        "layers": lambda: [layers_by_length(model, blocks[0], length) for length in lengths],
        "recall": lambda: [recall_by_length(model, needles, text, length, options.contexts) for length in lengths[::2]],
        "checks": lambda: checks(record),
    }
    for name, compute in parts.items():
        record[name] = compute()
        SHOW[name](record[name])
        if options.json:  # after each part: a later one may fail
            options.json.write_text(json.dumps(record, indent=1) + "\n")
    return record


if __name__ == "__main__":
    main()
