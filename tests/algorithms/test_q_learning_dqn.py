"""Q-learning on a table, to the last bit."""

import torch
from support.fakes import Walk, algorithm, control, iterate
from tensordict import TensorDict
from torch.testing import assert_close

from rlkit import buffers, loop
from rlkit.meter import Meter


def test_one_step_of_the_loop_is_exactly_the_q_learning_update() -> None:
    env = control(Walk, rows=1, limit=4)
    alpha, gamma = 0.5, 0.5  # powers of two: products are exact, so the comparison can be
    algo = algorithm("q_learning", env, lr=alpha, gamma=gamma, epsilon=1.0, epsilon_end=1.0)
    q, kinds = torch.zeros(6, 2), set()
    for _ in range(300):
        rollout = iterate(algo, env)
        keys = ("observation", "action", "reward", "next_observation", "terminated", "done")
        s, a, r, after, terminated, done = (rollout[key].item() for key in keys)
        target = r + gamma * (0.0 if terminated else q[after].max())
        delta = target - q[s, a]
        q[s, a] += alpha * delta
        assert torch.equal(algo.policy.q.weight.detach(), q)
        kinds.add((terminated, done))
    assert kinds == {(False, False), (False, True), (True, True)}  # ongoing, truncated, terminated
    assert algo.policy.act(torch.arange(1, 5), greedy=True).tolist() == [1, 1, 1, 1]


def test_several_rows_move_their_entries_by_alpha_delta_and_share_the_step_where_they_meet() -> None:
    env = control(Walk, rows=5, limit=4)
    algo = algorithm("q_learning", env, lr=0.5, gamma=0.5, epsilon=1.0, epsilon_end=1.0, steps=2, initial=1.0)
    rollout = iterate(algo, env)
    q, targets = torch.ones(6, 2), {}
    for step in buffers.flatten_steps(rollout):
        target = step["reward"] + 0.5 * (~step["terminated"])  # every Q was 1
        targets.setdefault((int(step["observation"]), int(step["action"])), []).append(float(target))
    assert max(map(len, targets.values())) > 1
    for entry, met in targets.items():
        q[entry] += 0.5 * (sum(met) / len(met) - 1)
    assert_close(algo.policy.q.weight.detach(), q)


def test_entries_meet_where_state_and_action_are_the_same_and_a_step_that_nobody_took_moves_none() -> None:
    algo = algorithm("q_learning", control(Walk, 1, 6), lr=0.5, gamma=0.0)
    steps = [(2, 0, 1.0, True), (0, 1, 2.0, True), (1, 0, 4.0, True), (1, 0, 8.0, True), (4, 1, 16.0, False)]
    columns = zip(("observation", "action", "reward", "mask"), zip(*steps, strict=True), strict=True)
    data = {key: torch.tensor([column]) for key, column in columns}
    data |= {"next_observation": data["observation"], "terminated": ~data["mask"], "done": ~data["mask"]}
    algo.buffer.extend(algo.credit(TensorDict(data, batch_size=[1, 5])).detach())
    loop.learn(algo, Meter())
    expected = torch.zeros(6, 2)
    expected[2, 0], expected[0, 1], expected[1, 0] = 0.5, 1.0, 3.0  # the last of two rows that meet: (4 + 8) / 2
    assert_close(algo.policy.q.weight.detach(), expected)
