"""Train with Stable-Baselines3, as its documentation shows it: see stopwatch.py."""

from typing import Any

from stopwatch import IDS, Stopwatch, Work, asked, one_thread, score

VALUE = 0.25  # its value loss is (V − R)², that of rlkit and of CleanRL half of it, with a coefficient of 0.5
ACTIVATIONS = {"tanh": "Tanh", "relu": "ReLU"}


def common(work: Work) -> dict[str, Any]:
    """Arguments of every algorithm."""
    import torch

    network = {
        "net_arch": work.get("policy.hidden", [64, 64]),
        "activation_fn": getattr(torch.nn, ACTIVATIONS[work.get("policy.activation", "tanh")]),
    }
    return {
        "learning_rate": work["algo.lr"],
        "gamma": work["algo.gamma"],
        "seed": work["seed"],
        "device": "cpu",  # what its documentation advises for networks of this size
        "policy_kwargs": network,
    }


def ppo(work: Work) -> dict[str, Any]:
    rollout = work["env.rows"] * work["algo.horizon"]
    return {
        "n_steps": work["algo.horizon"],
        "batch_size": rollout // work["algo.minibatches"],
        "n_epochs": work["algo.epochs"],
        "gae_lambda": work["algo.gae_lambda"],
        "clip_range": work.get("algo.clip", 0.2),
        "ent_coef": work.get("algo.entropy_coef", 0.0),
        "vf_coef": VALUE,
    }


def a2c(work: Work) -> dict[str, Any]:
    return {"n_steps": work["algo.horizon"], "gae_lambda": 1.0, "vf_coef": VALUE}


def replay(work: Work) -> dict[str, Any]:
    return {
        "buffer_size": work["algo.capacity"],
        "learning_starts": work["algo.warmup_steps"],
        "batch_size": work["algo.batch_size"],
        "train_freq": work["algo.steps"],
        "gradient_steps": work["algo.updates"],
    }


def sac(work: Work) -> dict[str, Any]:
    return {**replay(work), "tau": work["algo.tau"]}


def td3(work: Work) -> dict[str, Any]:
    import numpy as np
    from stable_baselines3.common.noise import NormalActionNoise

    noise = NormalActionNoise(np.zeros(1), np.full(1, 0.1))  # of actions in [-1, 1], as rlkit's
    return {**sac(work), "action_noise": noise}


def dqn(work: Work) -> dict[str, Any]:
    return {
        **replay(work),
        "target_update_interval": work["algo.sync_every"],
        "exploration_fraction": work["algo.epsilon_decay"],
        "exploration_final_eps": work["algo.epsilon_end"],
    }


def made_vector(work: Work) -> Any:
    """The copies of the environment; those of Atari as its documentation makes them."""
    import gymnasium
    from stable_baselines3.common.env_util import make_atari_env, make_vec_env
    from stable_baselines3.common.vec_env import VecFrameStack

    if work["env"] != "atari":
        return make_vec_env(IDS[work["env"]], work["env.rows"], seed=work["seed"])
    import ale_py

    gymnasium.register_envs(ale_py)
    name = f"{work['env.game'].title().replace('_', '')}NoFrameskip-v4"
    return VecFrameStack(make_atari_env(name, work["env.rows"], seed=work["seed"]), 4)


def main(work: Work) -> None:
    watch = Stopwatch()
    one_thread()
    import stable_baselines3 as sb3
    from stable_baselines3.common.callbacks import BaseCallback
    from stable_baselines3.common.vec_env import VecNormalize

    class Goal(BaseCallback):
        """Evaluates between two iterations; the parameters were updated by then."""

        reached = False

        def _on_rollout_start(self) -> None:
            if self.num_timesteps and self.num_timesteps % work["every"] == 0:
                self.reached = watch.arrived(act, work)

        def _on_step(self) -> bool:
            return not self.reached

    made = vector = made_vector(work)
    watch.watch(vector, "step_wait")
    if work.get("policy.normalize"):
        made = VecNormalize(vector, gamma=work["algo.gamma"])
    own = {"ppo": ppo, "a2c": a2c, "dqn": dqn, "sac": sac, "td3": td3}[work["algo"]](work)
    settings = common(work)
    images = {"policy": "CnnPolicy", "policy_kwargs": {}} if work["env"] == "atari" else {"policy": "MlpPolicy"}
    model = getattr(sb3, work["algo"].upper())(env=made, **settings | own | images)

    def act(observation: Any) -> Any:
        seen = made.normalize_obs(observation) if isinstance(made, VecNormalize) else observation
        return model.predict(seen, deterministic=True)[0]

    goal = Goal() if "until" in work else None
    model.learn(work["env_steps"], callback=goal)
    watch.end()
    watch.report(work, model.num_timesteps, score(act, work["env"]), f"Stable-Baselines3 {sb3.__version__}")


if __name__ == "__main__":
    main(asked())
