"""A proposer that climbs: it proposes the neighbours of the best variant, one knob after the other.

    attune tune --proposer "python3 examples/proposer/climb.py"

A neighbour has the next smaller or the next larger value of one knob. The program ends when every
neighbour of the best variant was proposed. The same states give the same answers.
"""

import json
import sys

# What rules of constraints may call. The rules come from kernel.toml.
FUNCTIONS = {"__builtins__": {"min": min, "max": max, "abs": abs}}


def allowed(knobs, constraints):
    return all(eval(c["rule"], FUNCTIONS, dict(knobs)) for c in constraints)


def neighbours(knobs, knob):
    """The assignments with the next smaller and the next larger value of a knob."""
    values = sorted(knob["values"])
    at = values.index(knobs[knob["name"]])
    for i in (at - 1, at + 1):
        if 0 <= i < len(values):
            yield {**knobs, knob["name"]: values[i]}


def best(state):
    """The best variant of the kernel as it is; None before there is a result."""
    for score in state["elites"]:
        if "patch" not in score:
            return score["knobs"]
    return state["default"]["knobs"] if "default" in state else None


def main():
    hello, known = None, set()
    for line in sys.stdin:
        message = json.loads(line)
        if message["type"] == "hello":
            hello = message
            continue
        at = best(message)
        answer = {"type": "proposals", "round": message["round"], "variants": []}
        if at is not None:
            known.add(json.dumps(at, sort_keys=True))
            answer = climb(hello["space"], at, known, answer)
        print(json.dumps(answer), flush=True)


def climb(space, at, known, answer):
    """Fills the answer with the neighbours along the first knob that has new ones."""
    for knob in space["knobs"]:
        for knobs in neighbours(at, knob):
            key = json.dumps(knobs, sort_keys=True)
            if key in known or not allowed(knobs, space["constraints"]):
                continue
            known.add(key)
            about = f"{knob['name']}={knobs[knob['name']]}"
            answer["variants"].append({"knobs": knobs, "about": about})
        if answer["variants"]:
            return answer
    return {"type": "done"}


if __name__ == "__main__":
    main()
