"""Dynamic programming on a known model, in float64: the reference for learned values.

A policy is a table of actions [S] or of probabilities [S, A]. A terminal state has no transitions: its value is 0.
Sources: Sutton & Barto 2018, chapters 3 and 4; Puterman 1994.
"""

import copy
import itertools
from dataclasses import dataclass, replace

import torch
from torch import Tensor


@dataclass(frozen=True)
class Model:
    """A finite Markov decision process."""

    transition: Tensor  # P(s'|s, a), [S, A, S]
    reward: Tensor  # expected r(s, a), [S, A]
    terminal: Tensor  # [S] bool: True where the episode is over
    start: Tensor  # distribution of the first state, [S]
    outcome_reward: Tensor | None = None  # r(s, a, s'), [S, A, S], if it depends on s'; `reward` is its mean
    goal: Tensor | None = None  # [S] bool: True where reaching the state counts as success

    def copied(self) -> "Model":
        """The same model in memory of its own."""
        return copy.deepcopy(self)


def probabilities(model: Model, policy: Tensor) -> Tensor:
    """π(a|s) [S, A] of a table of actions [S] or of probabilities [S, A]."""
    if policy.dim() == 1:
        return torch.nn.functional.one_hot(policy, model.reward.shape[1]).double()
    return policy.double()


def chain(model: Model, policy: Tensor) -> tuple[Tensor, Tensor]:
    """The Markov chain under π: P_π[s, s'] = Σ_a π(a|s)·P(s'|s, a) and r_π[s] = Σ_a π(a|s)·r(s, a); 0 after the end."""
    pi = probabilities(model, policy) * ~model.terminal[:, None]
    return torch.einsum("sa,sat->st", pi, model.transition), (pi * model.reward).sum(-1)


def policy_values(model: Model, policy: Tensor, gamma: float) -> Tensor:
    """V_π = (I − γ·P_π)⁻¹·r_π, [S].

    With γ = 1, a state from which nothing more is earned has the value 0, whether the episode ends or not. A state that
    never comes to such a state earns forever, and its value does not exist.
    """
    step, reward = chain(model, policy)
    if gamma == 1:
        over = settled(step, reward)
        if not reaches(step, over).all():
            raise ValueError("undiscounted values are infinite: this policy earns rewards forever; use gamma < 1")
        step = step * ~over[:, None]
    values: Tensor = torch.linalg.solve(torch.eye(len(step), dtype=step.dtype) - gamma * step, reward)
    return values


def reaches(step: Tensor, targets: Tensor) -> Tensor:
    """Whether some target state [S] can be reached from each state of the chain [S, S]: [S] bool."""
    reached = targets
    while True:
        more = reached | (step[:, reached].sum(-1) > 0)
        if torch.equal(more, reached):
            return reached
        reached = more


def settled(step: Tensor, reward: Tensor) -> Tensor:
    """From which states of the chain [S, S] nothing is earned any more, such as the terminal ones: [S] bool."""
    return ~reaches(step, reward != 0)


def q_values(model: Model, values: Tensor, gamma: float) -> Tensor:
    """Q(s, a) = r(s, a) + γ·Σ_s' P(s'|s, a)·V(s'), [S, A]; 0 in terminal states."""
    return (model.reward + gamma * model.transition @ values) * ~model.terminal[:, None]


def greedy(model: Model, values: Tensor, gamma: float) -> Tensor:
    """argmax_a Q(s, a), the first among equals: [S]."""
    return q_values(model, values, gamma).argmax(-1)


def epsilon_greedy(q: Tensor, epsilon: float) -> Tensor:
    """π(a|s) = ε/A + (1 − ε)·[a is the first argmax_b Q(s, b)]: how `tables.Table` acts. [..., A] → [..., A].

    A counts the actions that are allowed: a table gives the others -1e30 (`policies.encoders.FORBIDDEN`).
    """
    best = torch.nn.functional.one_hot(q.argmax(-1), q.shape[-1]).to(q.dtype)
    possible = (q > -5e29).to(q.dtype)
    return (1 - epsilon) * best + epsilon * possible / possible.sum(-1, keepdim=True)


def soft_optimal_values(model: Model, gamma: float, epsilon: float) -> Tensor:
    """Values of the best policy that acts at random with probability of at least ε, [S].

    V(s) = (1 − ε)·max_a Q(s, a) + ε·mean_a Q(s, a): what SARSA with a constant ε converges to (Sutton & Barto 2018,
    section 5.4). By policy iteration, or by value iteration from 0 if gamma is 1. Raises: ValueError where gamma is 1
    and rewards can be earned forever, or have to be paid forever.
    """
    values, tried = torch.zeros_like(model.start), set[tuple[int, ...]]()
    for sweep in itertools.count(1):
        q = q_values(model, values, gamma)
        policy = epsilon_greedy(q, epsilon)
        new = policy_values(model, policy, gamma) if gamma < 1 else (policy * q).sum(-1)
        if gamma < 1:  # a policy comes again among equally good ones only, however much a solve near γ = 1 rounds
            actions = tuple(q.argmax(-1).tolist())
            if actions in tried:
                return new
            tried.add(actions)
        # Among equally good policies the rounding decides, and a linear solve rounds more than a sum.
        if (new - values).abs().max() <= (1e-12 if gamma < 1 else 1e-14) * max(1.0, float(new.abs().max())):
            return new
        values = new
        # After so many sweeps, only values without a limit still grow. Where actions tie, they may rest in some sweeps.
        if gamma == 1 and sweep > 1000 and sweep % 1000 < 10:
            step, reward = chain(model, policy)
            lost = ~reaches(step, model.terminal)
            if (reward[lost] > 0).any():
                raise ValueError("undiscounted values are infinite: rewards can be earned forever; use gamma < 1")
            if (reward[lost] < 0).any() if epsilon else not ends_or_rests(model).all():
                raise ValueError("undiscounted values are infinite: some states pay forever; use gamma < 1")
    raise AssertionError("counting never ends")


def resting(model: Model, free: Tensor) -> tuple[Tensor, Tensor]:
    """Where one can stay by free actions [S, A] alone: the states [S] bool, and those actions [S, A] bool."""
    leads, rest = model.transition > 0, ~model.terminal
    while True:  # the largest set that an action does not leave
        stays = free & ~(leads & ~(rest | model.terminal)).any(-1)
        if torch.equal(fewer := rest & stays.any(-1), rest):
            return rest, stays
        rest = fewer


def ends_or_rests(model: Model) -> Tensor:
    """From which states [S] some policy surely comes to an end, or to states where it can stay for nothing."""
    leads, best = model.transition > 0, torch.ones_like(model.terminal)
    rest, _ = resting(model, model.reward >= 0)
    while True:  # the largest set from which actions that do not leave it come to the goal
        safe, near = ~(leads & ~best).any(-1), rest | model.terminal
        while not torch.equal(more := near | (safe & (leads & near).any(-1)).any(-1), near):
            near = more
        if torch.equal(near, best):
            return best
        best = near


def optimal_values(model: Model, gamma: float) -> Tensor:
    """V* = max_π V_π, [S]: the best policy among all."""
    return soft_optimal_values(model, gamma, 0.0)


def optimal_actions(model: Model, gamma: float) -> Tensor:
    """Which actions are best in each state, ties included: [S, A] bool."""
    return best_actions(q_values(model, optimal_values(model, gamma), gamma))


def best_actions(q: Tensor) -> Tensor:
    """Where Q(s, a) is the highest of its state, ties included: [S, A] → [S, A] bool."""
    return q >= q.amax(-1, keepdim=True) - 1e-9


def ending_actions(model: Model, q: Tensor) -> Tensor:
    """One of the best actions by Q(s, a) [S, A] in each state: the first that leads nearer to an end, if one does. [S]

    With γ = 1 it is as good to stay for nothing as to go on, and a policy that always stays is worth nothing. Where no
    best action leads to an end, it is the first that leads nearer to states that are worth nothing, and stays there.
    """
    best = best_actions(q)
    rest, stays = resting(model, best & (model.reward == 0) & (q.amax(-1, keepdim=True).abs() <= 1e-9))
    actions, near = torch.where(rest, stays.long().argmax(-1), best.long().argmax(-1)), model.terminal
    for goal in (near, rest):
        near = near | goal
        while True:
            leads = best & (model.transition[..., near].sum(-1) > 0)
            if not (new := leads.any(-1) & ~near).any():
                break
            actions, near = torch.where(new, leads.long().argmax(-1), actions), near | new
    return actions


def reachable(model: Model, policy: Tensor | None = None) -> Tensor:
    """The states that an episode can reach at all, or under a policy: [S] bool."""
    states, actions = model.reward.shape
    step, _ = chain(model, torch.full((states, actions), 1 / actions) if policy is None else policy)
    return reaches(step.T, model.start > 0)


def values_within(model: Model, steps: int, policy: Tensor | None = None) -> Tensor:
    """The expected undiscounted return within `steps` steps, [S].

    V_n(s) = Σ_a π(a|s)·(r(s, a) + Σ_s' P(s'|s, a)·V_{n−1}(s')) from V_0 = 0. Without a policy, the maximum over actions
    replaces the mean: the optimum of policies that know the remaining time (Puterman 1994, chapter 4).
    """
    values = torch.zeros_like(model.start)
    if policy is None:
        for _ in range(steps):
            values = q_values(model, values, 1.0).amax(-1)
        return values
    step, reward = chain(model, policy)
    for _ in range(steps):
        values = reward + step @ values
    return values


def success(model: Model, policy: Tensor, steps: int | None = None) -> float:
    """The probability of reaching `model.goal` at all, or within `steps` steps."""
    model = _reward_goal(model)
    values = policy_values(model, policy, 1.0) if steps is None else values_within(model, steps, policy)
    return float(model.start @ values)


def optimal_success(model: Model, steps: int | None = None) -> float:
    """The highest probability of reaching `model.goal`; with `steps`, for policies that know the remaining time."""
    model = _reward_goal(model)
    return float(model.start @ (optimal_values(model, 1.0) if steps is None else values_within(model, steps)))


def _reward_goal(model: Model) -> Model:
    """The same model with reward 1 for reaching the goal, which ends the episode, and reward 0 otherwise."""
    if model.goal is None:
        raise ValueError("the model has no goal")
    return replace(model, reward=model.transition[..., model.goal].sum(-1), terminal=model.terminal | model.goal)
