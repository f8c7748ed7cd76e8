"""A proposer that rewrites sources: it applies a list of textual rules and proposes the diffs.

    attune tune --kernel examples/reduce --proposer "python3 examples/proposer/rewrite.py"

Each rule whose text occurs in a source is proposed once, as a patch of the default. A patched
kernel that is among the elites is proposed again with the knobs of the best variant.
"""

import difflib
import json
import sys

# Text, its replacement, and why it may help. The first two are for examples/reduce.
RULES = [
    (
        "const float4 q = quads[threadIdx.x + i * THREADS];",
        "const float4 q = __ldcs(&quads[threadIdx.x + i * THREADS]);",
        "x is read once: evict-first loads leave L2 to the partial sums",
    ),
    (
        "#pragma unroll 1\n",
        "#pragma unroll 4\n",
        "four loads in flight in place of one",
    ),
    (
        "#pragma unroll\n",
        "#pragma unroll 2\n",
        "shorter code and fewer registers",
    ),
]


def diff(path, before, after):
    """A unified diff with the paths that git writes."""
    texts = before.splitlines(keepends=True), after.splitlines(keepends=True)
    lines = difflib.unified_diff(*texts, f"a/{path}", f"b/{path}")
    end = "\n\\ No newline at end of file\n"
    return "".join(line if line.endswith("\n") else line + end for line in lines)


def patches(sources):
    for text, replacement, about in RULES:
        for source in sources:
            if text in source["text"]:
                changed = source["text"].replace(text, replacement)
                yield {"diff": diff(source["path"], source["text"], changed), "about": about}


def variants(state, known):
    """The patches among the elites, with the knobs of the best variant."""
    for score in state["elites"]:
        if "patch" in score:
            proposal = {"patch": score["patch"], "knobs": state["best"]["knobs"]}
            key = json.dumps(proposal, sort_keys=True)
            if key not in known and score["knobs"] != proposal["knobs"]:
                known.add(key)
                yield proposal


def main():
    waiting, limit, known = [], 0, set()
    for line in sys.stdin:
        message = json.loads(line)
        if message["type"] == "hello":
            waiting, limit = list(patches(message["sources"])), message["limits"]["patches"]
            continue
        answer = {
            "type": "proposals",
            "round": message["round"],
            "variants": list(variants(message, known)),
            "patches": waiting[:limit],
        }
        waiting = waiting[limit:]
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
