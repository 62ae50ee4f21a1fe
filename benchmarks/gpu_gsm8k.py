"""GSM8K from end to end with rlkit and with TRL: `python benchmarks/gpu_text.py gsm8k FILE` runs this."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from unittest.mock import patch

from gpu_measuring import Found, Peak, Size, Stopwatch
from rlkit.algorithms._groups import Groups
from rlkit.algorithms.grpo import GRPO

from rlkit import loop, session
from rlkit.language.model import LanguageModel
from rlkit.settings import config
from rlkit.settings.assemble import Parts, assemble
from rlkit.statistics.episodes import summarize
from rlkit.text import TextEnv
from rlkit.text.grader import correct

RUN = ["policy.model=smollm2", "env.rows=32", "algo.group=8", "env.max_tokens=256", "iterations=200", "algo.lr=2e-6"]
RUN += ["evaluations=0"]
TINY_RUN = ["env.test=2", "env.validation=2", "env.rows=2", "algo.group=2", "env.max_tokens=4", "iterations=2"]
TINY_RUN += ["evaluations=0", "threads=1"]


def gsm8k(size: Size, source: str, keys: Sequence[str], folder: Path) -> Found:
    """Accuracy before and after with intervals, tokens a second, peak memory; then TRL on the same work."""
    words = ["algo=grpo", "env=gsm8k", f"env.source={source}", f"device={size.device}", f"out={folder / 'run'}"]
    words += [*(TINY_RUN if size.device == "cpu" else RUN), *keys]
    given, watch, used = config.read(words), Stopwatch(size), Peak(size)
    playing = patch.object(GRPO, "rollout", watch.timed("generation", GRPO.rollout))
    with playing, patch.object(loop, "learn", watch.timed("training", loop.learn)):
        session.carry_out(given)
    tokens = json.loads((folder / "run" / "metrics.jsonl").read_text().splitlines()[-1])["env_steps"]
    summary = json.loads((folder / "run" / "summary.json").read_text())
    found: Found = {"command": " ".join(["python -m rlkit.run", *words])}
    found |= {when: measured(summary["evaluation"][when]) for when in ("before", "after")}
    found |= {f"{name}_tokens_per_second": tokens / spent for name, spent in watch.spent.items()}
    found |= {"tokens_per_second": tokens / sum(watch.spent.values()), "tokens": tokens, "gb": used.gb()}
    return {"rlkit": found, "trl": trl(size, assemble(config.read(words)), folder)}


def measured(one: Found) -> Found:
    return {"accuracy": one["mean"], "interval": [one["low"], one["high"]], "problems": one["episodes"]}


def trl(size: Size, parts: Parts, folder: Path) -> Found | None:
    """The same model, prompts, rewards, groups and steps with TRL; measured as ours is. None where it is missing."""
    used = Peak(size)
    try:
        made = trainer(parts, folder, settings(size, parts, folder))
    except ImportError:
        return None
    env, algo = parts.env, parts.algo.config
    assert isinstance(algo, Groups)
    taken = Stopwatch(size)
    taken.timed("training", made.train)()
    key = "completions/mean_length"
    tokens = sum(line[key] for line in made.state.log_history if key in line) * env.rows * algo.group
    found: Found = {"tokens_per_second": tokens / taken.spent["training"], "tokens": tokens, "gb": used.gb()}
    made.save_model(str(folder / "base"))
    after = LanguageModel.load(folder / "base", device=size.device)
    scores = env.evaluate(after, parts.run.evaluation_episodes, "test")
    return found | {"after": measured(summarize(env.metric, scores, True))}


def trainer(parts: Parts, folder: Path, asked: Found, **more: Any) -> Any:
    """TRL's trainer on the prompts, rewards and weights of a run. Any: TRL is not there for the types.

    Raises: ImportError where TRL is missing.
    """
    from datasets import Dataset
    from trl import GRPOConfig, GRPOTrainer

    policy, env = parts.algo.policy, parts.env
    assert isinstance(policy, LanguageModel) and isinstance(env, TextEnv)
    policy.save(folder / "base")
    problems = [env.problems["train"][i % env.splits["train"]] for i in range(env.rows * (parts.run.iterations or 1))]
    prompts = env.asking.prompts(problems, policy)
    rows = [{"prompt": str(prompt), "answer": one.answer} for prompt, one in zip(prompts, problems, strict=True)]
    data, args = Dataset.from_list(rows), GRPOConfig(**asked)
    return GRPOTrainer(str(folder / "base"), reward_funcs=correct, train_dataset=data, args=args, **more)


def settings(size: Size, parts: Parts, folder: Path) -> Found:
    """TRL's words for what the run says."""
    env, algo = parts.env, parts.algo.config
    assert isinstance(env, TextEnv) and isinstance(algo, Groups)
    together = min(32, env.rows * algo.group)  # rows of a forward pass
    return {
        "output_dir": str(folder / "trl"),
        "per_device_train_batch_size": together,
        "gradient_accumulation_steps": env.rows * algo.group // together,
        "num_generations": algo.group,
        "max_completion_length": env.max_tokens,
        "max_steps": parts.run.iterations or 1,
        "learning_rate": algo.lr,
        "max_grad_norm": algo.max_grad_norm,
        "lr_scheduler_type": "constant",
        "beta": algo.kl_coef,
        "loss_type": "grpo",
        "model_init_kwargs": {"dtype": "float32"},  # weights, as ours
        "bf16": size.device == "cuda",
        "use_cpu": size.device == "cpu",
        "gradient_checkpointing": False,
        "logging_steps": 1,
        "save_strategy": "no",
        "report_to": "none",
        "disable_tqdm": True,
    }
