"""Damaged and hostile folders of a comparison and of a search, from a seed: one of their files has gone wrong."""

from random import Random

from support import damage
from support.forked import Stage
from support.hostile import JSON, Case, Cases
from support.lines import least

SMALL = ("algo=q_learning", "env=gridworld", "algo.steps=4", "iterations=2", "evaluations=0",
         "validation_episodes=1", "evaluation_episodes=1", "threads=1", "workers=1")  # fmt: skip
HELD = {  # folder → the words that make it, and that go on with it
    "compared": ("compare", *SMALL, "seed=0,1", "algo.lr=0.1,0.5", "out=compared"),
    "searched": ("tune", *SMALL[:4], *SMALL[5:], "seed=0", "algo.lr=0.1,0.5", "search=algo.lr", "trials=2",
                 "runs=1", "out=searched"),
}  # fmt: skip
GOES_ON = {"compared": HELD["compared"], "searched": (*HELD["searched"][:-3], "trials=3", *HELD["searched"][-2:])}
RUN = {"compared": "compared/runs/*-s0", "searched": "searched/trials/0000-s1000"}
MORE = {
    "compared": {"results.json": JSON, "runs.csv": {}, "index.html": {}, "iqm.png": {}},
    "searched": {"search.yaml": {"says": damage.says_yaml, "aliases": damage.YAML["aliases"]},
                 "best.yaml": damage.YAML, "study.journal": JSON},
}  # fmt: skip
KINDS: dict[str, dict[str, damage.Way]] = {
    **{
        f"{folder}/{name}": {**ways, **damage.BYTES, **damage.PLACES}
        for folder in HELD
        for name, ways in {**MORE[folder], ".lock": {}}.items()
    },
    **{
        f"{run}/{name}": {**ways, **damage.BYTES, **damage.PLACES}
        for run in RUN.values()
        for name, ways in {"config.yaml": damage.YAML, "summary.json": JSON, "metrics.jsonl": JSON}.items()
    },
    **{f"{run}.txt": damage.PLACES for run in RUN.values()},
    **{f"{folder}/{name}": damage.PLACES for folder in HELD for name in (".results.json.new", "citation.bib.new")},
}


class FolderCases(Cases):
    """The cases of a seed about these folders; as in `Cases`, what came least comes first."""

    kinds = KINDS

    def case(self) -> Case:
        draw = Random(f"folders {self.seed} {self.index}")
        (kind,) = least(draw, self.covered["file"], [(kind,) for kind in KINDS])
        _, way = least(draw, self.covered["way"], [(kind, way) for way in KINDS[kind]])
        folder = kind.partition("/")[0]
        asked = {
            "again": GOES_ON[folder],
            "play": ("play", folder, "open=false"),
            "compare": ("compare", folder, "other", "out=report"),
            "evaluate": ("evaluate", folder, "episodes=1"),
        }
        if folder == "searched":
            asked["config"] = ("run", "config=searched/best.yaml", "threads=1")
        _, command = least(draw, self.covered["command"], [(folder, command) for command in asked])
        for counted, key in (("file", (kind,)), ("way", (kind, way)), ("command", (folder, command))):
            self.covered[counted][key] += 1
        stage: Stage = "built" if command in ("again", "compare") and draw.random() < 0.5 else "whole"
        return self._made(folder, kind, kind, way, asked[command], stage)
