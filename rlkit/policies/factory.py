"""The `policy.` keys on control environments, and the policies that they make."""

from dataclasses import dataclass

from rlkit.api import Env, Judging, TwinCritics
from rlkit.errors import UserError
from rlkit.policies.layers import Layers
from rlkit.policies.networks import Actor, ActorCritic, QNetwork
from rlkit.policies.twins import twin_critics


@dataclass(frozen=True)
class Network(Layers):
    """The `policy.` keys on control environments."""

    def refuse_memory(self) -> None:
        """Raises: UserError where steps are replayed, one by one, and a memory is asked for."""
        if self.memory != "none":
            raise UserError(
                f"policy.memory={self.memory} needs whole episodes in their order, and this algorithm replays single "
                "steps: use algo=ppo, a2c, reinforce or grpo, or stack observations"
            )

    def actor(self, env: Env) -> Actor:
        return Actor(env, self)

    def actor_critic(self, env: Env) -> ActorCritic:
        return ActorCritic(env, self)

    def q_network(self, env: Env, dueling: bool = False) -> QNetwork:
        self.refuse_memory()
        return QNetwork(env, self, dueling)

    def twin_critics(self, env: Env, deterministic: bool = False) -> TwinCritics:
        self.refuse_memory()
        return twin_critics(env, self, deterministic)

    def scorer(self, env: Env) -> Judging:
        raise UserError("a reward model reads texts and this environment has none; use env=preferences or env=gsm8k")
