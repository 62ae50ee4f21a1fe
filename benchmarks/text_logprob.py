"""Log-probabilities of 2,048 tokens of a vocabulary of 152,000, forward and backward, beside plain autograd.

python benchmarks/text_logprob.py [rounds]

Plain is `log_softmax(hidden @ weight.T)`, which holds all logits. Both in turn, each in a process of its own with one
thread; peak memory is what the process takes beyond its inputs and their gradients.
"""

import json
import resource
import statistics
import subprocess
import sys
import time

ROWS, WORDS = 2_048, 152_000
WIDTHS, HEADS, SIDES = (64, 896), ("learns", "frozen"), ("rlkit", "plain")


def measure(side: str, width: int, head: str) -> dict[str, float]:
    """Seconds and megabytes of one forward and backward pass."""
    import torch

    from rlkit.language.logprob import token_log_probs

    torch.set_num_threads(1)
    torch.manual_seed(0)
    hidden = torch.randn(ROWS, width, requires_grad=True)
    weight = torch.randn(WORDS, width).div_(width**0.5).requires_grad_(head == "learns")
    targets = torch.randint(WORDS, (ROWS,))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    began = time.perf_counter()
    if side == "rlkit":
        log_prob, _ = token_log_probs(hidden, weight, targets, entropy=False)
    else:
        log_prob = (hidden @ weight.T).log_softmax(-1).gather(1, targets[:, None])[:, 0]
    log_prob.mean().backward()
    seconds = time.perf_counter() - began
    gradients = sum(x.grad.nbytes for x in (hidden, weight) if x.grad is not None) / 2**20
    peak = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024 - gradients
    return {"seconds": seconds, "megabytes": peak, "value": float(log_prob.sum())}


def compare(width: int, head: str, rounds: int) -> None:
    found: dict[str, list[dict[str, float]]] = {side: [] for side in SIDES}
    for _ in range(rounds):
        for side in SIDES:
            words = [sys.executable, __file__, "one", side, str(width), head]
            found[side].append(json.loads(subprocess.run(words, check=True, capture_output=True, text=True).stdout))
    ratios = [a["seconds"] / b["seconds"] for a, b in zip(found["rlkit"], found["plain"], strict=True)]
    seconds, megabytes = (
        [statistics.median(x[key] for x in found[side]) for side in SIDES] for key in ("seconds", "megabytes")
    )
    print(
        f"| {width} | {head} | {seconds[0]:.2f} | {seconds[1]:.2f} | {statistics.median(ratios):.2f} "
        f"({min(ratios):.2f} to {max(ratios):.2f}) | {megabytes[0]:,.0f} | {megabytes[1]:,.0f} | "
        f"{megabytes[0] / megabytes[1]:.3f} |",
        flush=True,
    )


def main(rounds: int) -> None:
    print("| width | head | seconds | plain | ratio | MB | plain | ratio |\n|---|---|---|---|---|---|---|---|")
    for width in WIDTHS:
        for head in HEADS:
            compare(width, head, rounds)


if __name__ == "__main__":
    if sys.argv[1:2] == ["one"]:
        print(json.dumps(measure(sys.argv[2], int(sys.argv[3]), sys.argv[4])))
    else:
        main(int(sys.argv[1]) if len(sys.argv) > 1 else 3)
