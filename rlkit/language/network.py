"""The `policy.` keys on text: the model, and the precision and memory of its computations."""

from dataclasses import dataclass
from typing import Annotated, Literal

import torch
from annotated_types import Ge, Le

from rlkit import ranks
from rlkit.api import ActionValues, Env, TwinCritics
from rlkit.errors import UserError
from rlkit.fields import WEIGHED, Count, Natural, Needs, Place, Positive, Several
from rlkit.language import adapters
from rlkit.language.adapters import Lora
from rlkit.language.asked import Backend
from rlkit.language.chat import PLACE
from rlkit.language.folders import Stored
from rlkit.language.gguf import PACKAGED
from rlkit.language.model import Dtype, LanguageModel
from rlkit.language.reward_model import RewardModel
from rlkit.language.sharding import Shard, share_head
from rlkit.language.source import Source
from rlkit.language.vllm_engine import VLLM
from rlkit.language.vllm_inside import Inside
from rlkit.language.vllm_server import Server
from rlkit.paths import home
from rlkit.seeding import generator

Model = Annotated[str, Place("folder", words=("tiny", *PACKAGED))]
Template = Annotated[str, PLACE]
Adapter = Annotated[str | None, Place("folder")]
Exchange = Annotated[str | None, Place("output"), Needs("server")]


@dataclass(frozen=True)
class LanguageNetwork:
    """The `policy.` keys on text environments."""

    model: Model = "tiny"  # tiny, smollm2 (a package), a folder, a .gguf file, or a hub id such as Qwen/Qwen2.5-0.5B
    temperature: Annotated[float, Ge(1e-3), Le(1000)] = 1.0  # temperature of sampling and of all log-probabilities
    trainable: Literal["all", "attention"] = "all"  # trained weights; attention: the q, k, v and o projections
    lora: Natural = 0  # rank of LoRA adapters, trained instead of the weights, which stay frozen; 0: no adapters
    lora_alpha: Annotated[Positive | None, Needs("lora")] = None  # LoRA alpha (scale = alpha / rank); none: 2 · rank
    lora_targets: Annotated[str, Several(), Needs("lora")] = "all"  # layers that get adapters: all, attention, or names
    adapter: Adapter = None  # folder of adapters for `model`, in PEFT's format, to continue training them
    base_dtype: Stored = "auto"  # precision of frozen weights; auto: bfloat16 if the file has it
    dtype: Dtype = "auto"  # precision of computations; auto: bfloat16 on a GPU, float32 on a CPU
    rows: Count = 256  # maximum number of completions written at the same time
    micro_steps: Count = 4096  # tokens per micro-batch of learning; a prompt counts once per group
    shard: Shard = "auto"  # full: shard weights, gradients and moments over ranks; auto: if needed
    gradient_checkpointing: bool = False  # recompute activations: less memory, more time, the same gradient
    fresh: bool = False  # start from random weights, with the shape and tokenizer of `model`
    save_dtype: Literal["float32", "bfloat16"] = "float32"  # precision of the weights in the run folder's model/
    engine: Literal["native", "vllm"] = "native"  # engine that writes text: rlkit's own (native), or vLLM
    server: Annotated[str | None, Needs("engine", "vllm")] = None  # http://HOST:PORT of vLLM; none: in this process
    exchange: Exchange = None  # folder for weights that the server can read; none: a temporary folder on this machine
    staleness: Annotated[int, Ge(0), Le(1), Needs("server"), Needs(WEIGHED)] = (
        0  # 1: write the next rollout during learning, with weights one update old; 0: write with the newest weights
    )
    template: Template | None = None  # chat template: FILE.jinja, or the name of one in the model; none: its default

    def actor(self, env: Env) -> LanguageModel:
        return self.build(env.seed, env.device)

    def actor_critic(self, env: Env) -> LanguageModel:
        return self.build(env.seed, env.device, value_head=True)

    def q_network(self, env: Env, dueling: bool = False) -> ActionValues:
        raise UserError("a Q-network plays control environments and this one is text; use algo=grpo or algo=ppo")

    def twin_critics(self, env: Env, deterministic: bool = False) -> TwinCritics:
        raise UserError("critics of single actions play control environments and this one is text; use algo=grpo")

    def scorer(self, env: Env) -> RewardModel:
        """A reward model; if attempts are sampled, a frozen copy of its initial weights writes them."""
        return RewardModel.on(self.build(env.seed, env.device), writes=env.plays)

    def build(self, seed: int = 0, device: str | torch.device = "cpu", value_head: bool = False) -> LanguageModel:
        """The language model that these keys describe."""
        self.check()
        adapted = self.lora > 0 or self.adapter is not None
        stored = self.base_dtype if adapted else "float32"
        model = LanguageModel.load(
            self.model,
            self.temperature,
            value_head,
            self.trainable,
            self.dtype,
            self.rows,
            seed,
            device,
            self.template,
            stored,
            self.shard,
        )
        if model.sharded and model.value_head is not None and not adapted:  # either all trained parts are, or none
            share_head(model.value_head)
        if self.fresh:
            model.decoder.initialize(generator(seed, "initialise"))
            for parameter in [] if model.value_head is None else model.value_head.parameters():
                torch.nn.init.zeros_(parameter)  # the folder may hold a trained one
        else:
            model.source = Source.of(self.model, model)
        self.adapt(model, seed)
        if self.engine == "vllm":
            model.engine, model.staleness = self.vllm(model), self.staleness
        model.ready_before_parts()
        model.name, model.micro_steps = self.model, self.micro_steps
        model.decoder.recompute(self.gradient_checkpointing)
        model.save_dtype = torch.bfloat16 if self.save_dtype == "bfloat16" else torch.float32
        return model

    def adapt(self, model: LanguageModel, seed: int) -> None:
        """Give the model its adapters: those of a folder, or new ones."""
        if self.adapter is not None:
            decoder = model.native("policy.adapter")
            model.lora = adapters.read(home(self.adapter), decoder, (self.model, model.base), model.base_mark)
            if self.template is None:
                adapters.tell_template(home(self.adapter), model.tokenizer.template)
        elif self.lora:
            model.lora = Lora(self.lora, self.lora_alpha or 2.0 * self.lora, adapters.targets(self.lora_targets))
            adapters.attach(model.native("policy.lora"), model.lora, generator(seed, "adapters"))

    def vllm(self, model: LanguageModel) -> VLLM:
        """vLLM at the given address, or in this process."""
        tokenizer = model.tokenizer
        backend: Backend
        if self.server is not None:
            found: list[Server] = []
            url = self.server
            ranks.together(lambda: found.append(Server(url, tokenizer)))  # one that a rank cannot reach ends all
            backend = found[0]
        else:
            backend = Inside(model.decoder.context, model.dtype)
        return VLLM(backend, tokenizer, None if self.exchange is None else home(self.exchange))

    def check(self) -> None:
        """Refuse keys that contradict each other or do not fit the way the run was started."""
        if self.lora and self.adapter is not None:
            raise UserError(
                f"policy.lora={self.lora} with policy.adapter: the adapter has its own rank; leave lora out"
            )
        if self.fresh and (self.lora or self.adapter is not None):
            key = "lora" if self.lora else "adapter"
            raise UserError(
                f"policy.fresh=true with policy.{key}: random weights would stay frozen; leave one of them out"
            )
        if self.adapter is None:
            adapters.check_without(self.model)
