"""Errors that no folder of files can bring about: a test provokes each, and some of those tests are here."""

import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from support.raised import ELSEWHERE, ROOT, raised

from rlkit import against, evaluation
from rlkit.api import Scores, UserError
from rlkit.settings import config, plugins
from rlkit.settings.config import Given
from rlkit.text import sources


@pytest.mark.parametrize(("piece", "test"), ELSEWHERE.items())
def test_what_is_provoked_elsewhere_is(piece: str, test: str) -> None:
    file, _, function = test.partition("::")
    text = (ROOT / "tests" / file).read_text(encoding="utf-8")
    assert f"def {function}(" in text
    assert any(piece in x for _, found in raised() for x in found), "no such error any more"


def test_a_hub_dataset_that_cannot_be_had_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def offline(name: str) -> list[str]:
        raise ConnectionError("no route to the hub\nsecond line")

    monkeypatch.setitem(sys.modules, "datasets", SimpleNamespace(get_dataset_config_names=offline))
    with pytest.raises(UserError, match=r"^env\.source=a/b could not be loaded from the hub .*no route to the hub\); "):
        sources.hub_rows("a/b")


def test_a_hub_dataset_without_a_train_split_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = {"test": [{"question": "2 + 3?", "answer": "#### 5"}]}
    fake = SimpleNamespace(get_dataset_config_names=lambda name: ["main"], load_dataset=lambda name, chosen: rows)
    monkeypatch.setitem(sys.modules, "datasets", fake)
    module = plugins.load("envs", "gsm8k")
    with pytest.raises(UserError, match=r"hub dataset a/b has no split 'train' \(it has: test\)"):
        module.make(module.Config(source="a/b"), 0, "cpu")


def test_a_ray_cluster_that_does_not_answer_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    from rlkit.comparison.on_ray import joined

    def init(**_: object) -> None:
        raise ConnectionError("nobody answers at 10.0.0.1\nmore")

    monkeypatch.setitem(sys.modules, "ray", SimpleNamespace(is_initialized=lambda: False, init=init))
    with pytest.raises(UserError, match=r"^no Ray cluster: nobody answers at 10\.0\.0\.1 more; fix RAY_ADDRESS"):
        joined()


def test_reward_models_that_rank_different_texts_are_not_paired(monkeypatch: pytest.MonkeyPatch) -> None:
    def ranked(model: str) -> SimpleNamespace:
        given = Given(env={"name": "gsm8k"}, policy={"model": model})
        env = SimpleNamespace(kind="text", seed=0, plays=True, scored=lambda policy: "pairs")
        return SimpleNamespace(given=given, env=env, policy=None)

    monkeypatch.setattr(against, "opened", lambda *_: ranked("big"))
    monkeypatch.setattr(config, "from_folder", lambda _: ranked("big").given)
    with pytest.raises(UserError, match=r"ranks what policy\.model=big writes and this run what policy\.model=tiny w"):
        against.rival(ranked("tiny"), evaluation.Evaluate(against="runs/x"), ("runs/x", None))


def test_scores_of_different_length_are_not_paired(monkeypatch: pytest.MonkeyPatch) -> None:
    def subject(folder: str, episodes: int) -> SimpleNamespace:
        scores = Scores(torch.ones(episodes), torch.ones(episodes))
        env = SimpleNamespace(seed=0, metric="return", scores=scores, scored=lambda policy: "episodes")
        return SimpleNamespace(folder=Path(folder), checkpoint="latest", env=env, policy=None)

    monkeypatch.setattr(against, "scored", lambda other, asked: other.env.scores)
    with pytest.raises(UserError, match="b was measured on other episodes: they cannot be paired"):
        against.compared(subject("a", 2), subject("b", 3), Scores(torch.ones(2), torch.ones(2)), evaluation.Evaluate())
