"""What results.json holds: the numbers of a comparison, as the figures, the tables and the page read them."""

from typing import TypedDict


class Interval(TypedDict):
    """A 95 % interval over seeds; null where there is none."""

    low: float | None
    high: float | None


class Estimate(Interval):
    """A statistic with its interval."""

    value: float


class Normalized(Interval):
    """Scores on the scale of their reference: 0 is its lower end, 1 its upper one."""

    scores: list[float]
    iqm: float


class Cell(Interval):
    """One algorithm in one environment."""

    runs: int
    seeds: list[int]
    scores: list[float]
    mean: float
    iqm: float
    env_steps: float  # the median
    seconds: float  # the median
    normalized: Normalized | None


class Overall(Interval):
    """One algorithm over all environments that are shared: of normalized scores."""

    iqm: float
    runs: int


class Scale(TypedDict):
    """What counts as 0 and as 1 in an environment."""

    low: float
    high: float
    low_is: str
    high_is: str
    range: bool  # True: no reference is known, so it is the range of these runs


class Band(TypedDict):
    """The ends of a 95 % interval at each point of a line; null where there is none."""

    low: list[float] | None
    high: list[float] | None


class Curve(Band):
    """IQM over the seeds against steps or seconds."""

    x: list[float]
    iqm: list[float]


class Profile(Band):
    """The fraction of runs above each threshold."""

    fraction: list[float]


class Profiles(TypedDict):
    """The performance profile of each algorithm."""

    thresholds: list[float]
    algos: dict[str, Profile]


class Environment(TypedDict):
    """All algorithms in one environment."""

    metric: str
    unit: str  # what was learned from: steps or tokens
    reference: Scale | None
    algos: dict[str, Cell]
    curve: str | None  # what the curves are of: evaluation or training
    curves: dict[str, dict[str, Curve]]  # algorithm → env_steps or seconds → curve


class Pair(Interval):
    """P(x > y), and what may be said of it."""

    x: str
    y: str
    envs: dict[str, float]
    value: float | None
    chance: float | None
    verdict: str


class Run(TypedDict):
    """One run, as it is listed."""

    algo: str
    env: str
    seed: int
    score: float
    low: float
    high: float
    before: float | None
    episodes: int
    env_steps: int
    seconds: float
    folder: str
    command: str
    metric: str
    measure: str  # latest or best: whose score it is
    candidates: int  # of best: among how many evaluations it was chosen
    alarms: list[str]
    versions: dict[str, str]


class Names(TypedDict):
    """What rows and columns are called where people read: PPO for ppo."""

    algos: dict[str, str]
    envs: dict[str, str]


class Results(TypedDict):
    """All numbers of a comparison."""

    names: Names
    algos: list[str]  # the rows: best first, where there is a number over all environments
    rows: str  # what the rows are: algorithms, or settings where one algorithm has several
    shared: list[str]  # the environments that this number is over
    overall: dict[str, Overall]
    envs: dict[str, Environment]
    improvement: list[Pair]
    profiles: Profiles | None
    missing: list[str]
    runs: list[Run]
    measured: str  # by which rule, in a sentence
    caveats: list[str]
    commands: list[str]  # what repeats the comparison, and each of its runs
    rlkit: str
