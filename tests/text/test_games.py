"""Games in words: what they are asked, where their rewards land, and how they stand in chat turns."""

import json
from typing import Any

import pytest
import torch
from support.chatter import Chatter
from support.games import Count, env, right
from support.templates import TEMPLATES
from test_asking import Talker

from rlkit import returns
from rlkit.api import UserError
from rlkit.prompts import Prompt, Turn, data, filled
from rlkit.text import Asking, GameEnv
from rlkit.text.asking import ANSWERED, SAID


def test_a_turn_earns_its_reward_on_its_last_token_and_the_score_is_the_sum() -> None:
    world, chatter = env(), Chatter(right)
    batch = world.rollout(chatter, repeats=2)
    assert batch.batch_size == (4, 2)
    for row, attempt in ((row, attempt) for start in batch for attempt, row in enumerate(start)):
        turns = int(row["rollout/turns"])
        assert row["score"] == row["reward"].sum() == (turns if attempt == 0 else 0)
        ends = row["reward"].nonzero()[:, 0].tolist()
        assert all(row["mask"][end] and not row["mask"][end + 1 : end + 2].any() for end in ends)
        last = int(row["mask"].nonzero().max())
        assert row["terminated"].nonzero().tolist() == row["done"].nonzero().tolist() == [[last]]
    # Every later turn counts less by γ for each token that the policy itself wrote, whatever was said between.
    row = batch[0, 0]
    to_go = returns.reward_to_go(row["reward"], row["done"], 0.5, row["mask"])
    assert to_go[row["reward"] > 0].tolist() == pytest.approx(
        [sum(0.25**k for k in range(int(row["rollout/turns"]) - turn)) for turn in range(int(row["rollout/turns"]))]
    )  # a number and its end: two tokens


def test_plain_text_puts_the_prompt_around_what_is_said() -> None:
    heard: list[tuple[str, list[str]]] = []

    def say(prompt: str, attempt: int, said: list[str]) -> str:
        heard.append((prompt, list(said)))
        return "x"

    world = env(asking=Asking("Q: {question}\nA:"), turn_tokens=9)
    chatter = Chatter(say)
    world.rollout(chatter)
    assert all(prompt == f"Q: {prompt[3]}\nA:" for prompt, _ in heard)
    assert {text for _, said in heard for text in said} <= {f"Q: {n}\nA:" for n in range(12)}
    assert chatter.calls[0] == {"max_tokens": 60, "turn_tokens": 9, "stop": ("\n",)}


def test_what_stands_after_a_stop_string_is_not_played() -> None:
    world = env(stop=["!"])
    batch = world.rollout(Chatter(lambda prompt, attempt, heard: f"{int((heard or [prompt])[-1]) + 1}!9"))
    assert (batch["score"] == batch["rollout/turns"]).all()


def test_attempts_of_a_group_share_the_games_seed_and_a_resumed_run_plays_on() -> None:
    world, chatter = env(), Chatter(right)
    first = world.rollout(chatter, repeats=3)
    state = json.loads(json.dumps(world.state_dict()))
    again, resumed = world.rollout(chatter), env()
    resumed.load_state_dict(state)
    for key, x in resumed.rollout(chatter).items():
        assert torch.equal(x, again[key])
    assert first["problem"].tolist() == [[n] * 3 for n in range(4)] and again["problem"].tolist() == [4, 5, 6, 7]
    starts = first["observation"][..., 0]
    assert (starts == starts[:, :1]).all() and len(starts[:, 0].unique()) > 1
    other = GameEnv(Count, "count", 4, 1, max_tokens=60)
    assert other.rollout(chatter)["observation"][:, 0].tolist() != starts[:, 0].tolist()


def test_evaluation_plays_the_same_games_for_every_run_and_others_for_each_split() -> None:
    one, two = env(), GameEnv(Count, "count", 2, 7, max_tokens=60)
    chatter = Chatter(right)
    found = {split: one.evaluate(chatter, 30, split) for split in ("validation", "test")}
    assert found["test"].items == two.evaluate(chatter, 30, "test").items != found["validation"].items
    assert not set(found["test"].items) & set(found["validation"].items)
    assert found["test"].score.tolist() == found["test"].metrics["turns"]
    sample = found["test"].samples[0]
    assert sample["prompt"].strip().isdigit() and "\n" in sample["completion"]
    assert one.metric == "return" and one.scored(chatter) == "episodes"


def test_of_the_training_games_those_that_the_run_plays_first_are_measured() -> None:
    world, chatter = env(splits={"validation": 2, "test": 6}), Chatter(right)
    found = world.evaluate(chatter, None, "train")  # there are 2^31 of them
    assert len(found.score) == 6 and len(world.evaluate(chatter, 9, "train").score) == 9
    said = [str(int(row[0]) - ord("0")) for row in world.rollout(chatter)["observation"]]
    assert [sample["prompt"].strip() for sample in found.samples or ()][:4] == said


def test_samples_show_the_whole_dialog() -> None:
    world, chatter = env(), Chatter(right)
    batch = world.rollout(chatter)
    for sample, turns in zip(world.samples(batch, chatter, 3), batch["rollout/turns"].tolist(), strict=False):
        start = int(sample["prompt"])
        dialog = "".join(f"{start + n + 1}{start + n + 1}\n" for n in range(int(turns)))
        assert sample["completion"] == dialog[: len(sample["completion"])]
        assert sample["score"] == turns


def test_a_game_may_speak_gymnasiums_way() -> None:
    class Gym:
        def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[str, dict]:
            self.seed = seed
            return f"seed {seed}", {}

        def step(self, text: str) -> tuple[Any, ...]:
            return "on", torch.tensor(0.5), False, text == "end", {}

    world = env(Gym, max_tokens=8)
    batch = world.rollout(Chatter(lambda prompt, attempt, heard: "end" if heard else "a"))
    assert batch["score"].tolist() == [1.0] * 4 and not batch["truncated"].any()
    assert len({tuple(row) for row in batch["observation"][:, :14].tolist()}) == 4
    cut = env(Gym, max_tokens=6).rollout(Chatter(lambda *_: "a"))  # two tokens a turn
    assert cut["truncated"].all() and cut["rollout/turns"].tolist() == [3.0] * 4
    assert cut["terminated"].sum() == 4  # a limit of tokens is part of the task


# In chat turns


@pytest.mark.parametrize(
    "name, between, after",
    [
        ("chatml", "<|im_end|>\n<|im_start|>user\n", "<|im_end|>\n<|im_start|>assistant\n"),
        ("smollm2", "<|im_end|>\n<|im_start|>user\n", "<|im_end|>\n<|im_start|>assistant\n"),
        ("mistral", "</s>[INST] ", " [/INST]"),
    ],
)
def test_in_chat_a_reply_stands_in_the_templates_own_marks(name: str, between: str, after: str) -> None:
    from rlkit.language.chat import ChatTemplate
    from rlkit.language.folders import TINY
    from rlkit.language.tokenizer import Tokenizer

    core = Tokenizer.load(TINY, 545).core
    template = ChatTemplate(TEMPLATES[name], "here", (("bos_token", "<s>"), ("eos_token", "</s>")))
    policy = Talker()
    policy.chat = lambda conversations, options: template.prompts(conversations, core, options)
    said = "so <|im_end|> it is"
    reply = Asking(chat=None).replies(policy)(said)
    assert reply == between + said + after and isinstance(reply, Prompt)
    assert [reply[start:end] for start, end in reply.data] == [said]
    twice = Asking("{question} Again: {question}", chat=None).replies(policy)("on")
    assert twice == f"{between}on Again: on{after}"


@pytest.mark.parametrize("name", TEMPLATES)
@pytest.mark.slow
def test_in_chat_a_reply_is_what_the_template_makes_of_the_whole_conversation(name: str) -> None:
    from rlkit.language.chat import ChatTemplate
    from rlkit.language.folders import TINY
    from rlkit.language.tokenizer import Tokenizer

    tokenizer = Tokenizer.load(TINY, 545)
    template = ChatTemplate(TEMPLATES[name], "here", (("bos_token", "<s>"), ("eos_token", "</s>")))
    policy = Talker()
    policy.chat = lambda conversations, options: template.prompts(conversations, tokenizer.core, options)
    asking = Asking("Hear: {question} ", chat=None)
    texts = ['a "b" ', " \n", "", "{question}", SAID, ANSWERED, "<|im_end|>"]
    before = [Turn("user", data("go")), Turn("assistant", data("MINE"))]
    wholes = policy.chat([[*before, Turn("user", filled(asking.prompt, said))] for said in texts], {})
    wanted = [whole.part(whole.index("MINE") + len("MINE")) for whole in wholes]
    replies = [*map(asking.replies(policy), texts)]
    assert replies == wanted and tokenizer.encode(replies) == tokenizer.encode(wanted)


def test_a_template_that_forgets_is_refused() -> None:
    policy = Talker()
    policy.chat = lambda conversations, options: [Prompt(turns[-1].content) for turns in conversations]
    with pytest.raises(UserError, match=r"the chat template leaves out what was said before: give env\.chat=false"):
        Asking(chat=None).replies(policy)


def test_in_chat_nothing_but_the_end_token_ends_a_turn() -> None:
    class Both(Chatter, Talker):
        pass

    world, chatter = env(asking=Asking(chat=None)), Both(lambda *_: "x")
    world.rollout(chatter)
    assert chatter.calls[0]["stop"] == () and world.settled(chatter)["stop"] == ()
    assert env().settled(Chatter(right))["stop"] == ("\n",)
