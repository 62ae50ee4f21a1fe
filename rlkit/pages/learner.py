"""One algorithm on the map: it walks the loop's four rooms, and remembers what the page draws of it."""

from dataclasses import dataclass, field, replace
from typing import TypedDict

import torch
from tensordict import TensorDict
from torch import Tensor

from rlkit.control.tabular import TabularEnv
from rlkit.loop import set_progress, walk
from rlkit.meter import Meter, finished
from rlkit.pages import maps
from rlkit.pages.server import Json
from rlkit.policies import Table
from rlkit.progress import Progress
from rlkit.settings.assemble import Parts

POINTS = 240  # of a curve that is sent
WINDOW = 100  # episodes that the running mean covers


class Update(TypedDict):
    """The last step of a table entry: Q(s, a) += α·(target − Q(s, a))."""

    action: int
    reward: float  # of one of the copies that met there
    after: int  # the state that it came to
    over: bool
    target: float  # the mean over the copies that met there
    copies: int
    before: float
    now: float


@dataclass
class Learner:
    """One algorithm on the world, and what was seen of it so far."""

    parts: Parts
    policy: Table
    env: TabularEnv
    world: maps.World
    optimal: Tensor  # V* there, [S]
    progress: Progress = field(default_factory=Progress)
    change: list[float] = field(default_factory=list)  # max |ΔQ| of each iteration
    distance: list[float] = field(default_factory=list)  # max |V − V*| after each
    returns: list[tuple[int, float]] = field(default_factory=list)  # (iteration, return) of the episodes that ended
    visits: Tensor | None = None  # how often each state was acted in, [S]; nothing where nothing is played
    agents: list[int] = field(default_factory=list)  # the state that each row has come to
    altered: list[int] = field(default_factory=list)  # iterations at which the world was another
    metrics: dict[str, float] = field(default_factory=dict)  # what the algorithm said of the last iteration
    updates: dict[int, Update] = field(default_factory=dict)  # the last one of each state, where it learns by trying

    def step(self) -> None:
        """One iteration of the loop."""
        algo, meter = self.parts.algo, Meter()
        set_progress(algo, self.progress, self.parts.run)
        before = self.policy.q.weight.detach().clone()
        rollout, credited = walk(algo, self.env, meter)
        self.progress.count(int(rollout["mask"].sum()))
        self.metrics = meter.read()
        self.change.append(float((self.policy.q.weight.detach() - before).abs().max()))
        self.distance.append(maps.distance(self.policy, self.optimal, self.env.model()))
        if "next_observation" not in rollout.keys():
            return  # the batch is the model itself
        counts = torch.bincount(rollout["observation"][rollout["mask"]], minlength=len(before))
        self.visits = counts if self.visits is None else self.visits + counts
        self.agents = rollout["next_observation"][:, -1].tolist()
        self.updates |= last_updates(credited, before, self.policy.q.weight.detach())
        self.returns += [(self.progress.iteration, score) for score, _ in finished(rollout)]

    def moved(self, there: "Learner") -> "Learner":
        """This learner in the world of another: it keeps its table, except that terminal states are worth nothing."""
        there.policy.load_state_dict(self.policy.state_dict())
        with torch.no_grad():
            there.policy.q.weight[there.env.model().terminal] = 0.0
        if there.parts.algo.config == self.parts.algo.config:
            there.policy.epsilon = self.policy.epsilon  # shown until the next rollout sets it
        return replace(
            self,
            parts=there.parts,
            policy=there.policy,
            env=there.env,
            world=there.world,
            optimal=there.optimal,
            agents=[],
            updates={},
            altered=[*self.altered, self.progress.iteration],
        )

    def curves(self) -> Json:
        """A few hundred points of each curve; returns are averaged over the iterations between two points."""
        n = len(self.change)
        every = max(1, -(-n // POINTS))
        at = sorted({*range(0, n, every), n - 1} - {-1})
        bins: dict[int, list[float]] = {}
        means: dict[int, float] = {}
        for (iteration, score), mean in zip(self.returns, running_mean(self.returns), strict=True):
            bins.setdefault((iteration - 1) // every, []).append(score)
            means[(iteration - 1) // every] = mean
        return {
            "iteration": [i + 1 for i in at],
            "change": [self.change[i] for i in at],
            "distance": [self.distance[i] for i in at],
            "returns": [[min((b + 1) * every, n), sum(scores) / len(scores)] for b, scores in bins.items()],
            "mean": [[min((b + 1) * every, n), mean] for b, mean in means.items()],
            "altered": self.altered,
        }


def last_updates(credited: TensorDict, before: Tensor, now: Tensor) -> dict[int, Update]:
    """The last update of each state in a batch; copies that met at an entry moved it together."""
    learned = credited["mask"] if "mask" in credited.keys() else torch.ones_like(credited["done"])
    names = ("observation", "action", "reward", "next_observation", "terminated", "return")
    columns = [credited[name][learned].tolist() for name in names]
    targets: dict[tuple[int, int], list[float]] = {}
    found: dict[int, Update] = {}
    for state, action, reward, after, over, target in zip(*columns, strict=True):
        met = targets.setdefault((state, action), [])
        met.append(target)
        found[state] = Update(
            action=action,
            reward=reward,
            after=after,
            over=over,
            target=sum(met) / len(met),
            copies=len(met),
            before=float(before[state, action]),
            now=float(now[state, action]),
        )
    return found


def running_mean(returns: list[tuple[int, float]], window: int = WINDOW) -> list[float]:
    """The mean of each return and those before it, so many at most."""
    total, means = 0.0, []
    for i, (_, score) in enumerate(returns):
        total += score - (returns[i - window][1] if i >= window else 0.0)
        means.append(total / min(i + 1, window))
    return means
