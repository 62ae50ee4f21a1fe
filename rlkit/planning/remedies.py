"""Changes that make a setting fit, the fewest changed keys first."""

from collections.abc import Iterator
from dataclasses import asdict
from itertools import combinations

from rlkit.errors import UserError
from rlkit.planning.memory import Model
from rlkit.planning.predict import predict
from rlkit.planning.setting import Setting

Change = dict[str, object]
MOST = 512  # most GPUs that are proposed
SHOWN = 3


def remedies(setting: Setting, model: Model) -> list[Change]:
    """Changes with which the setting fits and that change the fewest keys; none where nothing helps.

    If only adapters fit, the number of GPUs for training all weights is listed as well.
    """
    models = {model.rank: model}
    here = fewest(setting, {}, list(single(setting)), models)[:SHOWN]
    if any("lora" not in keys for keys in here):
        return here
    whole = [change for change in single(setting) if "lora" not in change]
    gpus = 2 * setting.gpus
    while gpus <= MOST:
        if found := fewest(setting, {"gpus": gpus, **spread(setting, gpus)}, whole, models):
            return [*here, found[0]]
        gpus *= 2
    return here


def spread(setting: Setting, gpus: int) -> Change:
    """The next number of prompts that so many GPUs can share, where another one was given."""
    learners = gpus - setting.engine_gpus
    if setting.prompts is None or setting.prompts % learners == 0:
        return {}
    return {"prompts": -(-setting.prompts // learners) * learners}


def fewest(setting: Setting, given: Change, changes: list[Change], models: dict[int, Model]) -> list[Change]:
    """All combinations that fit together with `given` and change the fewest keys."""
    for count in range(4):
        if found := [given | keys for keys in combined(changes, count) if fits(setting, given | keys, models)]:
            return found
    return []


def combined(changes: list[Change], count: int) -> Iterator[Change]:
    """Combinations of `count` changes, each of different keys."""
    for chosen in combinations(changes, count):
        keys = [key for change in chosen for key in change]
        if len(keys) == len(set(keys)):
            yield {key: value for change in chosen for key, value in change.items()}


def single(setting: Setting) -> Iterator[Change]:
    """Single changes, in the order of their cost."""
    if setting.micro_steps > 1024:
        yield {"micro_steps": 1024}
    if not setting.gradient_checkpointing:
        yield {"gradient_checkpointing": True}
    if setting.shard != "full":
        yield {"shard": "full"}
    if setting.engine == "native" and setting.rows > 64:
        yield {"rows": 64}
    for tensor in (2, 4, 8):
        if setting.tensor < tensor <= setting.machine:
            yield {"engine": "vllm", "tensor": tensor}
    if not setting.lora:
        yield {"lora": 16}


def fits(setting: Setting, keys: Change, models: dict[int, Model]) -> bool:
    """Whether the setting with these keys is valid and fits."""
    try:
        other = Setting(**(asdict(setting) | keys))
    except UserError:
        return False
    if other.lora not in models:
        known = next(iter(models.values()))
        models[other.lora] = Model(known.name, known.shape, other.lora)
    return predict(other, models[other.lora]).fits
