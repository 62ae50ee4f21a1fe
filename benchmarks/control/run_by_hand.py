"""Q-learning as tutorials write it: one Gymnasium environment, a table in NumPy, one update a step: stopwatch.py."""

from stopwatch import IDS, Stopwatch, Work, asked, score


def main(work: Work) -> None:
    watch = Stopwatch()
    import gymnasium
    import numpy as np

    env, rng = gymnasium.make(IDS[work["env"]]), np.random.default_rng(work["seed"])
    gamma, total = work["algo.gamma"], work["env_steps"]
    table = np.full((env.observation_space.n, env.action_space.n), work["algo.initial"])
    state, _ = env.reset(seed=work["seed"])
    watch.step()
    for step in range(total):
        done_so_far = step / total
        decay = min(1.0, done_so_far / work["algo.epsilon_decay"])
        epsilon = 1 + decay * (work["algo.epsilon_end"] - 1)
        rate = work["algo.lr"] * (1 - (1 - work["algo.lr_end"]) * done_so_far)
        action = int(rng.integers(env.action_space.n)) if rng.random() < epsilon else int(table[state].argmax())
        after, reward, terminated, truncated, _ = env.step(action)
        target = reward + gamma * (not terminated) * table[after].max()
        table[state, action] += rate * (target - table[state, action])
        state = env.reset()[0] if terminated or truncated else after
    watch.end()
    found = score(lambda seen: int(table[seen].argmax()), work["env"])
    watch.report(work, total, found, f"by hand, Gymnasium {gymnasium.__version__}")


if __name__ == "__main__":
    main(asked())
