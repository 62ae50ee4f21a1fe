"""The predicted step: seconds of its phases, and memory of each GPU."""

from dataclasses import dataclass

from rlkit.language import footprint
from rlkit.language.sharding import is_large
from rlkit.planning import seconds
from rlkit.planning.memory import BESIDE, FLOAT32, ROOM, Memory, Model, most_rows, of_learner
from rlkit.planning.seconds import FORWARD, Writing
from rlkit.planning.setting import Setting


@dataclass(frozen=True)
class Step:
    """Seconds of the phases, and bytes of memory."""

    writing: Writing
    transfer: float
    forward: float  # log-probabilities of the completions
    learning: float
    between: float  # communication of gradients and shards that learning does not hide
    saving: float  # a checkpoint's seconds divided by the steps between checkpoints
    together: float  # seconds in which some GPUs write while others learn
    sharded: bool
    memory: Memory
    engine: float  # bytes on a GPU that only writes, with one text
    limit: float  # bytes that are available

    @property
    def total(self) -> float:
        busy = self.writing.total + self.forward + self.learning + self.between
        return busy - self.together + self.transfer + self.saving

    @property
    def fits(self) -> bool:
        return max(self.memory.peak, self.engine) <= self.limit


def predict(setting: Setting, model: Model) -> Step:
    limit = ROOM * setting.hardware.memory
    sharded = shards(setting, model)
    memory = of_learner(setting, model, sharded)
    writing = written(setting, model)
    forward, learning, between = learned(setting, model, sharded)
    saved = (FLOAT32 + footprint.MOMENTS) * model.trained  # frozen weights stay where they came from
    return Step(
        writing=writing,
        transfer=handed(setting, model, sharded),
        forward=forward,
        learning=learning,
        between=between,
        saving=seconds.saving(saved) / setting.save_every,
        together=min(writing.total, forward + learning + between) if setting.engine_gpus else 0.0,
        sharded=sharded,
        memory=memory,
        engine=engine(setting, model) if setting.engine_gpus else 0.0,
        limit=limit,
    )


def shards(setting: Setting, model: Model) -> bool:
    """Whether weights are sharded; auto: by the rule of a run, in which activations do not count."""
    large = is_large(model.sizes.total, model.rank == 0, setting.hardware.memory)
    return setting.learners > 1 and (setting.shard == "full" or (setting.shard == "auto" and large))


def written(setting: Setting, model: Model) -> Writing:
    texts, gpu = setting.texts, setting.hardware
    most: float = setting.rows
    if setting.engine == "vllm":
        most = most_rows(gpu, setting.tensor, model.sizes, texts, ROOM if setting.engine_gpus else BESIDE)
    engines = setting.writers / setting.tensor
    return seconds.writing(gpu, engines, setting.tensor, model.sizes, texts, most)


def engine(setting: Setting, model: Model) -> float:
    """Bytes on a GPU that only writes: weights, and the longest text."""
    texts = setting.texts
    return (2 * model.sizes.total + model.sizes.stored * (texts.prompt + texts.longest)) / setting.tensor


def handed(setting: Setting, model: Model, sharded: bool) -> float:
    """Seconds to give the engine new weights; for the native engine they are gathered, then cast in place."""
    if setting.engine == "vllm":
        return seconds.transfer(model.sizes)
    gathered = seconds.between(setting.hardware, setting.gpus, setting.machine, 0, model.sizes.total, int(sharded))
    return gathered + seconds.casting(setting.hardware, model.stored, model.sizes)


def learned(setting: Setting, model: Model, sharded: bool) -> tuple[float, float, float]:
    """Seconds of log-probabilities, of learning, and of communication that learning does not hide.

    Shards are gathered for each micro-batch while the previous one is computed. Without shards, gradients are reduced
    after the last micro-batch.
    """
    gpu, texts, count = setting.hardware, setting.texts, setting.learners
    reads, passes = FORWARD + setting.kl, seconds.passes(setting.lora > 0, setting.gradient_checkpointing)
    forward, learning = (
        seconds.computing(gpu, count, model.sizes, texts.read, texts.length, times) for times in (reads, passes)
    )
    parts = max(1, -(-round(texts.read / count) // setting.micro_steps))
    gathers = parts * (2 + reads) if sharded else 0
    travel = seconds.between(gpu, count, setting.machine, model.trained, model.sizes.total, gathers)
    return forward, learning, max(0.0, travel - forward - learning) if sharded else travel
