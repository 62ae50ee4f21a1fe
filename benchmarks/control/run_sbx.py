"""Train with SBX, Stable-Baselines3 on JAX: see stopwatch.py. DQN only.

Its compilation belongs to the start: the clock of the training starts after the warm-up and two updates.
"""

from typing import Any

from run_sb3 import dqn
from stopwatch import IDS, Stopwatch, Work, asked, score


def main(work: Work) -> None:
    watch = Stopwatch()
    import flax.linen
    import sbx
    from stable_baselines3.common.env_util import make_vec_env

    model = sbx.DQN(
        "MlpPolicy",
        make_vec_env(IDS[work["env"]], work["env.rows"], seed=work["seed"]),
        learning_rate=work["algo.lr"],
        gamma=work["algo.gamma"],
        seed=work["seed"],
        policy_kwargs={"net_arch": work["policy.hidden"], "activation_fn": flax.linen.relu},
        **dqn(work),
    )
    model.learn(work["algo.warmup_steps"] + 2)
    watch.step()
    model.learn(work["env_steps"] - model.num_timesteps, reset_num_timesteps=False)
    watch.end()

    def act(observation: Any) -> Any:
        return model.predict(observation, deterministic=True)[0]

    watch.report(work, model.num_timesteps, score(act, work["env"]), f"SBX {sbx.__version__}")


if __name__ == "__main__":
    main(asked())
