"""The keys of a plan: a model, GPUs, the texts of a step, and the keys of a run that change time or memory."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, Literal

from annotated_types import Ge, Le

from rlkit.errors import UserError
from rlkit.fields import Count, Natural
from rlkit.planning.hardware import GPUS, Gpu, Name
from rlkit.planning.seconds import Texts
from rlkit.settings import schema
from rlkit.settings.plugins import nearest

USAGE = "python -m rlkit.plan model=7b gpus=8 (--help lists the keys)"
Gpus = Annotated[int, Ge(1), Le(65536)]
PROMPTS = 64
# Keys of a run, and those of a plan for the same.
OF_RUNS = {
    "algo.kl_coef": "kl=true",
    "algo.beta": "kl=true",
    "policy.model": "model=NAME",
    "env.max_tokens": "longest=N",
    "checkpoint_every": "save_every=N",
}
LONGER = 4  # assumed ratio of the longest answer to the mean


@dataclass(frozen=True)
class Setting:
    """The keys of the command line."""

    model: str = "7b"  # a size (0.5b to 72b), a name such as llama3.1-8b, or a folder with a config.json
    gpus: Gpus = 1  # number of GPUs, over all machines
    gpu: Name = "h100"  # kind of the GPUs
    machine: Count = 8  # GPUs in each machine
    prompts: Count | None = None  # prompts per step, over all GPUs; none: 64, or the next multiple of the learning GPUs
    group: Count = 8  # answers per prompt
    prompt_tokens: Count = 256  # mean number of tokens of a prompt
    answer_tokens: Count = 512  # mean number of tokens of an answer
    longest: Count | None = None  # tokens of the longest answer, often env.max_tokens; none: four times the mean
    lora: Natural = 0  # policy.lora: rank of LoRA adapters, trained instead of all weights
    kl: bool = False  # whether a reference model also reads the answers, as with algo.kl_coef
    shard: Literal["auto", "none", "full"] = "auto"  # full: shard weights and moments over GPUs; auto: if needed
    gradient_checkpointing: bool = False  # policy.gradient_checkpointing: recompute activations to save memory
    micro_steps: Count = 4096  # policy.micro_steps: tokens per micro-batch of learning, on each GPU
    engine: Literal["native", "vllm"] = "native"  # engine that writes text: rlkit's own (native), or vLLM
    rows: Count = 256  # policy.rows: maximum number of answers that the native engine writes at a time, on each GPU
    tensor: Count = 1  # GPUs over which each vLLM engine is spread (tensor parallelism)
    engine_gpus: Natural = 0  # GPUs that only write, one step ahead of the others; 0: all GPUs write and learn in turn
    save_every: Count = 10  # steps between checkpoints

    def __post_init__(self) -> None:
        if self.engine == "native" and (self.tensor > 1 or self.engine_gpus):
            key = "tensor" if self.tensor > 1 else "engine_gpus"
            raise UserError(f"{key}={getattr(self, key)} is for engine=vllm: the native engine is on each GPU")
        if self.engine_gpus >= self.gpus:
            raise UserError(f"engine_gpus={self.engine_gpus} of gpus={self.gpus}: none is left to learn; give fewer")
        if self.shard == "full" and self.learners == 1:
            raise UserError("shard=full does nothing with one GPU that learns: leave it out, or give more with gpus=N")
        if self.tensor > self.machine:
            raise UserError(
                f"tensor={self.tensor} spans several machines of machine={self.machine} GPUs: only an engine within "
                f"one machine can be predicted; give at most {self.machine}"
            )
        if self.writers % self.tensor:
            raise UserError(f"tensor={self.tensor} does not divide the {self.writers} GPUs that write: give a divisor")
        if self.prompts is not None and self.prompts % self.learners:
            raise UserError(
                f"prompts={self.prompts} cannot be spread over {self.learners} GPUs, as a prompt stays with its group: "
                f"give a multiple of {self.learners}"
            )
        if self.longest is not None and self.longest < self.answer_tokens:
            raise UserError(f"longest={self.longest} is below the mean, answer_tokens={self.answer_tokens}: give more")

    @property
    def hardware(self) -> Gpu:
        return GPUS[self.gpu]

    @property
    def learners(self) -> int:
        return self.gpus - self.engine_gpus

    @property
    def writers(self) -> int:
        return self.engine_gpus or self.gpus

    @property
    def texts(self) -> Texts:
        """The texts of a step, over all GPUs."""
        prompts = self.prompts or -(-PROMPTS // self.learners) * self.learners
        longest = self.longest or LONGER * self.answer_tokens
        return Texts(prompts, self.group, self.prompt_tokens, self.answer_tokens, longest)


def plain(word: str) -> str:
    """lora=16 of policy.lora=16: a key may be written as a run writes it."""
    return word.removeprefix("policy.").removeprefix("algo.")


def parse(words: Iterable[str]) -> Setting:
    """Parse a command line. Raises: UserError for unknown keys and invalid values."""
    words = list(words)
    schema.once(map(plain, words))
    known, keys = schema.settable(Setting), {}
    for word in words:
        key, equals, value = word.partition("=")
        if not equals or word.startswith("-"):
            raise UserError(f"'{word}' is not understood: write {USAGE}")
        name = plain(key)
        if name not in known:
            ours = f"here it is {OF_RUNS[key]}; there are: {', '.join(known)}" if key in OF_RUNS else ""
            raise UserError(f"no key '{key}': {ours or nearest(name, known)}")
        keys[name] = value
    setting: Setting = schema.build(Setting, keys, "run")
    if setting.engine == "vllm" and "rows" in keys:
        raise UserError(
            f"rows={setting.rows} is for engine=native: of vLLM, as many rows as fit are assumed; leave it out"
        )
    return setting
