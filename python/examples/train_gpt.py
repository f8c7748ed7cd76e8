"""Trains a GPT of 74 M parameters in minutes, for evaluate_gpt.py to compute with FP8 attention.

    python train_gpt.py --minutes 4 --corpus corpus.txt.xz --out gpt.pt

A model in the style of Llama (RMSNorm, RoPE, grouped heads, SwiGLU, tied embeddings) on source code,
in BF16 with PyTorch's attention. In half of the K heads a key comes from the previous token, so that
the model soon learns to copy. Contexts have 512 tokens, then 2k, then 16k. Some rows are random tokens
that repeat, and some have needles (gpt_text.py): lines of random words, written over the text twice,
so that the model learns to recall over the whole context. gpt_text.py makes the corpus; without
--corpus the text comes from the machine.
"""

import argparse
import dataclasses
import itertools
import math
import pathlib
import time

import example
import gpt_text
import torch
import torch.nn.functional as functional
from llama_decode import rotate, rotations
from torch.nn.attention import SDPBackend, sdpa_kernel

FUSED = [SDPBackend.FLASH_ATTENTION, SDPBackend.CUDNN_ATTENTION, SDPBackend.EFFICIENT_ATTENTION]
IGNORED = -100  # a target that cross_entropy leaves out


# ---- model ---------------------------------------------------------------------------------------


@dataclasses.dataclass
class Sizes:
    vocabulary: int = 4096
    width: int = 768
    layers: int = 12
    heads: int = 8
    kv_heads: int = 4
    head_dim: int = 64
    hidden: int = 2048


class Block(torch.nn.Module):
    def __init__(self, sizes):
        super().__init__()
        self.heads, self.kv_heads, self.head_dim = sizes.heads, sizes.kv_heads, sizes.head_dim
        linear = lambda inputs, outputs: torch.nn.Linear(inputs, outputs, bias=False)
        self.first, self.second = torch.nn.RMSNorm(sizes.width, eps=1e-5), torch.nn.RMSNorm(sizes.width, eps=1e-5)
        self.qkv = linear(sizes.width, (sizes.heads + 2 * sizes.kv_heads) * sizes.head_dim)
        self.out = linear(sizes.heads * sizes.head_dim, sizes.width)
        self.gate, self.up = linear(sizes.width, sizes.hidden), linear(sizes.width, sizes.hidden)
        self.down = linear(sizes.hidden, sizes.width)

    def forward(self, x, rotation, attend):
        batch, tokens, _ = x.shape
        qkv = self.qkv(self.first(x)).view(batch, tokens, -1, self.head_dim).transpose(1, 2)
        q, k, v = qkv.split((self.heads, self.kv_heads, self.kv_heads), dim=1)
        own, shifted = k.chunk(2, dim=1)  # K heads of the same token, and of the token before it
        k = torch.cat([own, functional.pad(shifted, (0, 0, 1, -1))], dim=1)
        o = attend(rotate(q, rotation), rotate(k, rotation), v, True)
        x = x + self.out(o.transpose(1, 2).reshape(batch, tokens, -1))
        y = self.second(x)
        return x + self.down(functional.silu(self.gate(y)) * self.up(y))


class GPT(torch.nn.Module):
    def __init__(self, sizes):
        super().__init__()
        self.sizes = sizes
        self.embedding = torch.nn.Embedding(sizes.vocabulary, sizes.width)
        self.blocks = torch.nn.ModuleList(Block(sizes) for _ in range(sizes.layers))
        self.norm = torch.nn.RMSNorm(sizes.width, eps=1e-5)
        for name, weight in self.named_parameters():
            if weight.dim() == 2:  # outputs of a block are smaller, so that the residual does not grow with depth
                residual = name.endswith(("out.weight", "down.weight"))
                torch.nn.init.normal_(weight, std=0.02 / (2 * sizes.layers) ** 0.5 if residual else 0.02)

    def forward(self, tokens, attend):
        """The last hidden state; attend(q, k, v, causal) computes attention."""
        rotation = rotations(torch.arange(tokens.shape[1], device=tokens.device), self.sizes.head_dim)
        x = self.embedding(tokens)
        for block in self.blocks:
            x = block(x, rotation, attend)
        return self.norm(x)

    def logits(self, hidden):
        return (hidden @ self.embedding.weight.T).float()


def parameters(model):
    return sum(weight.numel() for weight in model.parameters())


# ---- training ------------------------------------------------------------------------------------


@dataclasses.dataclass
class Phase:
    """A part of the training with one length of context."""

    context: int
    share: float  # of the time
    step_tokens: int = 65536
    random_rows: float = 0.25  # share of the rows that are random tokens, repeated


@dataclasses.dataclass
class Plan:
    """What a step takes, and how the time is divided."""

    phases: tuple = (Phase(512, 0.15, 16384, 0.5), Phase(2048, 0.45), Phase(16384, 0.4))
    needle_rows: float = 0.5  # share of the rows that have needles
    needle_every: int = 64  # tokens for each needle of such a row
    period: int = 16  # random tokens are repeated after at least so many
    rate: float = 1e-3
    warmup: float = 0.02  # of the time
    decay: float = 0.4  # of the time, at the end, down to a twentieth

    def phase(self, progress):
        ends = itertools.accumulate(phase.share for phase in self.phases)
        return next((phase for phase, end in zip(self.phases, ends) if progress < end), self.phases[-1])

    def learning_rate(self, progress):
        up, down = progress / self.warmup, (1 - progress) / self.decay
        return self.rate * max(0.05, min(1.0, up, down))


# Two layers, for a CPU.
TINY = Sizes(512, 64, 2, 4, 2, 64, 128)
TINY_PLAN = Plan((Phase(256, 0.2, 1024), Phase(512, 0.4, 1024), Phase(1024, 0.4, 1024)), rate=5e-3)


def training_attention(q, k, v, causal):
    """PyTorch's. K and V are repeated: not every backend has gradients of grouped heads."""
    k, v = (x.repeat_interleave(q.shape[1] // k.shape[1], dim=1) for x in (k, v))
    return functional.scaled_dot_product_attention(q, k, v, is_causal=causal)


class Batches:
    """Random windows of the text, some with needles, and rows of random tokens that are repeated."""

    def __init__(self, text, needles, vocabulary, plan, seed):
        self.text, self.needles, self.vocabulary, self.plan = text, needles, vocabulary, plan
        self.source = torch.Generator(text.device).manual_seed(seed)

    def next(self, phase):
        """(tokens, targets, which targets are copies of a needle) of one step, [rows, context]"""
        plan, context, device = self.plan, phase.context, self.text.device
        rows = max(1, phase.step_tokens // context)
        start = torch.randint(len(self.text) - context, (rows, 1), generator=self.source, device=device)
        tokens = self.text[start + torch.arange(context + 1, device=device)].long()
        ignored, copied = (torch.zeros_like(tokens, dtype=torch.bool) for _ in range(2))
        chosen = max(1, round(plan.needle_rows * rows))  # rows are in random order anyway
        slots = self.needles.anywhere(chosen, context, context // plan.needle_every, self.source)
        places = self.needles.hide(tokens[:chosen], slots, self.source)
        ignored[:chosen].scatter_(1, self.needles.unpredictable(places), True)
        copied[:chosen].scatter_(1, self.needles.values(places).flatten(1), True)
        others = slice(chosen, chosen + round(phase.random_rows * rows))
        tokens[others], ignored[others] = self.repeated(*tokens[others].shape)
        return tokens[:, :-1], tokens.masked_fill(ignored, IGNORED)[:, 1:], copied[:, 1:]

    def repeated(self, rows, length):
        """Random tokens that repeat after a period, and which of them are the first. Only copying predicts the others.

        Periods go from short to half a row, as many between 16 and 32 as between 128 and 256: short
        ones are learnt soon, and longer ones then have the attention heads that they need.
        """
        random = torch.rand(rows, 1, generator=self.source, device=self.text.device)
        period = (self.plan.period * (length / 2 / self.plan.period) ** random).long()
        place = torch.arange(length, device=self.text.device).expand(rows, length)
        tokens = torch.randint(self.vocabulary, (rows, length), generator=self.source, device=self.text.device)
        return tokens.gather(1, place % period), place < period


class Clock:
    """How much of the training is over, by time or by steps."""

    def __init__(self, deadline, steps):
        self.start, self.deadline, self.steps = time.monotonic(), deadline, steps
        if not steps and self.start >= deadline:
            raise SystemExit("train_gpt.py: the text took all of --minutes: give it more time")

    def seconds(self):
        return time.monotonic() - self.start

    def progress(self, step):
        done = step / self.steps if self.steps else self.seconds() / (self.deadline - self.start)
        return min(1.0, done)


def losses_of(model, batch):
    """(mean loss, share of the copies that are the most likely token) of a batch"""
    tokens, targets, copied = batch
    with torch.autocast(tokens.device.type, torch.bfloat16, enabled=tokens.is_cuda):
        logits = model.logits(model(tokens, training_attention))
    right = (logits.detach().argmax(-1) == targets) & copied
    loss = functional.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=IGNORED)
    return loss, right.sum() / copied.sum()


def compile_blocks(model, batches, plan):
    """Compiles the blocks for each context, before the clock of the schedule starts."""
    import torch._dynamo

    torch._dynamo.config.suppress_errors = True  # what does not compile runs as it is
    for block in model.blocks:
        block.compile(dynamic=False)  # one compilation serves all blocks
    for phase in plan.phases:
        losses_of(model, batches.next(phase))[0].backward()
    model.zero_grad()
    torch.cuda.synchronize()


def train(model, batches, plan, clock, report_every):
    """Trains until the clock ends; returns what a record needs."""
    matrices = [weight for weight in model.parameters() if weight.dim() == 2]
    others = [weight for weight in model.parameters() if weight.dim() != 2]
    groups = [{"params": matrices, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=plan.rate, betas=(0.9, 0.95), fused=True)
    tokens, losses = {phase.context: 0 for phase in plan.phases}, []
    for step in itertools.count():
        if (progress := clock.progress(step)) >= 1:
            break
        phase = plan.phase(progress)
        for group in optimizer.param_groups:
            group["lr"] = plan.learning_rate(progress)
        batch = batches.next(phase)
        loss, copied = losses_of(model, batch)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        tokens[phase.context] += batch[0].numel()
        if step % report_every == 0:
            losses.append(report(step, clock, phase.context, loss, copied))
    losses.append(report(step, clock, phase.context, loss, copied))
    return {"steps": step, "seconds": clock.seconds(), "losses": losses,
            "tokens": {str(context): count for context, count in tokens.items()}}  # fmt: skip


def report(step, clock, context, loss, copied):
    """Prints a line and returns it as a part of the record. Waits for the GPU, so the clock is right."""
    row = {"step": step, "context": context, "loss": loss.item(), "copied": copied.item()}
    row["seconds"] = round(clock.seconds(), 2)
    line = "step {step:5d}  {seconds:6.1f} s  context {context:5d}  loss {loss:.4f}  copied {copied:.3f}"
    print(line.format(**row), flush=True)
    if not math.isfinite(row["loss"]):
        raise SystemExit(f"train_gpt.py: the loss of step {step} is {row['loss']}")
    return row


def prepare(sources, vocabulary):
    """(merges, tokens to train on, tokens held out, facts of the corpus)"""
    start = time.monotonic()
    documents = gpt_text.read(sources or gpt_text.folders())
    learnt_from, held_out = gpt_text.split(documents)
    if not learnt_from or not held_out:
        raise SystemExit(
            f"train_gpt.py: {len(documents)} files, {len(held_out)} held out: the corpus needs more folders"
        )
    sample = gpt_text.BORDER.join(learnt_from[:: max(1, sum(map(len, learnt_from)) >> 23)])  # about 8 MB
    merges = gpt_text.learn(sample, vocabulary)
    text, others = gpt_text.encode(merges, learnt_from), gpt_text.encode(merges, held_out)
    facts = {**gpt_text.summary(documents), "tokens": len(text)}
    facts["held_out"] = {**gpt_text.summary(held_out), "tokens": len(others)}
    facts["seconds"] = round(time.monotonic() - start, 1)
    print("corpus: {files} files, {bytes} bytes, {tokens} tokens to train on, {seconds} s".format(**facts), flush=True)
    return merges, text, others, facts


def continued(model, path, merges):
    """Loads the weights of a checkpoint and returns the record of their training."""
    saved = torch.load(path, weights_only=True)
    if saved["merges"] != list(merges):
        raise SystemExit(f"train_gpt.py: {path} has another vocabulary: it is of another corpus")
    model.load_state_dict(saved["weights"])
    return saved["training"]


def arguments(argv):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    found = "cuda" if torch.cuda.is_available() else "cpu"
    parser.add_argument("--minutes", type=float, default=8, help="of the whole program, the tokeniser counted")
    parser.add_argument("--steps", type=int, help="train so many steps, whatever the time")
    parser.add_argument("--corpus", nargs="*", help="an archive of gpt_text.py, or folders")
    parser.add_argument("--init", type=pathlib.Path, help="a checkpoint of the same corpus to begin with")
    parser.add_argument("--out", type=pathlib.Path, default="gpt.pt", help="the checkpoint (gpt.pt)")
    parser.add_argument("--device", default=found, choices=("cuda", "cpu"), help=f"default: {found}")
    parser.add_argument("--tiny", action="store_true", help="two layers and short contexts, for a CPU")
    parser.add_argument("--no-compile", action="store_true", help="without torch.compile")
    parser.add_argument("--seed", type=int, default=1)
    return parser.parse_args(argv)


def main(argv=None):
    deadline = time.monotonic()
    options = arguments(argv)
    deadline += 60 * options.minutes
    sizes, plan = (TINY, TINY_PLAN) if options.tiny else (Sizes(), Plan())
    merges, text, held_out, corpus = prepare(options.corpus, sizes.vocabulary)

    torch.manual_seed(options.seed)
    torch.set_float32_matmul_precision("high")
    model = GPT(sizes).to(options.device)
    before = continued(model, options.init, merges) if options.init else None
    print(f"model: {parameters(model) / 1e6:.1f} M parameters, {sizes}", flush=True)
    compiled = options.device == "cuda" and not options.no_compile
    needles = gpt_text.Needles(merges, options.device)
    batches = Batches(text.to(options.device), needles, sizes.vocabulary, plan, options.seed)
    with sdpa_kernel(FUSED if options.device == "cuda" else [*FUSED, SDPBackend.MATH]):
        if compiled:
            compile_blocks(model, batches, plan)
            print(f"compiled, {60 * options.minutes - (deadline - time.monotonic()):.0f} s after the start", flush=True)
        run = train(model, batches, plan, Clock(deadline, options.steps), 5 if options.tiny else 50)
    total = sum(run["tokens"].values())
    print(f"trained: {run['steps']} steps, {total / 1e6:.1f} M tokens, {total / run['seconds'] / 1e3:.0f} k tokens/s")

    record = {**run, "plan": dataclasses.asdict(plan), "seed": options.seed, "compiled": compiled, "before": before,
              "device": example.device_name(options.device), "pytorch": str(torch.__version__)}  # fmt: skip
    weights = {name: value.to("cpu", torch.bfloat16) for name, value in model.state_dict().items()}
    torch.save({"sizes": dataclasses.asdict(sizes), "weights": weights, "merges": list(merges), "held_out": held_out,
                "contexts": [phase.context for phase in plan.phases],
                "corpus": corpus, "training": record}, options.out)  # fmt: skip
    return record


if __name__ == "__main__":
    main()
