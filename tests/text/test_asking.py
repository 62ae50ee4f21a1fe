"""How problems are put to a model: plain or in turns, with examples before them, and where answers end."""

import json
import re
import shlex
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from support import templates
from support.parrot import Parrot, told

from rlkit import run
from rlkit.api import UserError
from rlkit.language import folders
from rlkit.language.model import LanguageModel
from rlkit.language.reward_model import LearnedReward, RewardModel
from rlkit.prompts import Prompt, Turn, cut, data, filled, joined
from rlkit.python.keys import line
from rlkit.settings import config, plugins
from rlkit.settings.assemble import assemble
from rlkit.text import Asking, Problem, TextEnv, take_examples

gsm8k = plugins.load("envs", "gsm8k")
SMALL = ["env=gsm8k", "env.train=12", "env.test=3", "env.validation=3", "env.rows=2", "threads=1"]


def adds(count: int) -> list[Problem]:
    return [Problem(f"{n} + 2 =", f"<<{n}+2={n + 2}>>{n + 2}\n#### {n + 2}") for n in range(count)]


class Talker(Parrot):
    """A parrot with a chat template."""

    chats = True

    def chat(self, conversations: Any, options: Any) -> list[Prompt]:
        self.options = options
        return [
            Prompt("".join(f"<{turn.role}>{turn.content}" for turn in turns) + "<assistant>", turns=tuple(turns))
            for turns in conversations
        ]


def world(asking: Asking, **settings: Any) -> TextEnv:
    return TextEnv({"train": adds(5), "validation": adds(3), "test": adds(2)}, 2, 0, prompt=asking, **settings)


def test_a_prompt_knows_which_parts_of_it_are_data() -> None:
    prompt = filled("Q: {question} ({question})", "1 + 1")
    assert prompt == "Q: 1 + 1 (1 + 1)" and prompt.data == ((3, 8), (10, 15))
    both = joined(["a", prompt, data("x"), data("")])
    assert [both[start:end] for start, end in both.data] == ["1 + 1", "1 + 1", "x"]
    assert both.holds(0, 5) and not both.holds(0, 4)
    assert cut("a#b\nc", ["\n", "#"]) == "a" and cut("abc", ["#"]) == cut("abc", []) == "abc"


def test_plain_prompts_are_as_they_were() -> None:
    assert Asking().prompts(adds(1), Parrot()) == ["0 + 2 =\n"]
    assert Asking("Q: {question}\nA:").prompts(adds(1), Talker()) == ["Q: 0 + 2 =\nA:"]
    assert Asking(chat=None).settled(Parrot()) == {"chat": False, "prompt": "{question}\n"}
    assert Asking(chat=None).manner(Parrot()) == ""
    assert "although the model has a chat template" in Asking().manner(Talker())


def test_examples_stand_before_the_question() -> None:
    asking = Asking("Q: {question}\nA: ", shots=tuple(adds(2)))
    (prompt,) = asking.prompts(adds(3)[2:], Parrot())
    first, second = adds(2)
    assert prompt == f"Q: 0 + 2 =\nA: {first.answer}\n\nQ: 1 + 2 =\nA: {second.answer}\n\nQ: 2 + 2 =\nA: "
    assert [prompt[start:end] for start, end in prompt.data] == [
        "0 + 2 =",
        first.answer,
        "1 + 2 =",
        second.answer,
        "2 + 2 =",
    ]
    talker, asking = Talker(), Asking(None, None, "Add.", tuple(adds(1)), options={"a": 1})
    (prompt,) = asking.prompts(adds(2)[1:], talker)
    assert prompt == f"<system>Add.<user>0 + 2 =<assistant>{first.answer}<user>1 + 2 =<assistant>"
    assert talker.options == {"a": 1}
    assert asking.manner(talker) == (
        "chat turns by the model's template (env.chat=true), examples: 1, a system message"
    )


def test_examples_are_drawn_by_the_seed_and_not_trained_on() -> None:
    problems = [*adds(20), *adds(20)]  # each is there twice
    shots, rest = take_examples(problems, 4, 0)
    assert len({problem.question for problem in shots}) == 4 and len(rest) == 32
    assert not {problem.question for problem in shots} & {problem.question for problem in rest}
    assert rest == [problem for problem in problems if problem in rest]  # in their order
    assert take_examples(problems, 4, 0)[0] == shots != take_examples(problems, 4, 1)[0]
    assert take_examples(problems, 0, 0) == ((), problems)
    assert take_examples(problems, 99, 0)[1] == []


def test_the_environments_examples_are_in_no_demonstration() -> None:
    made = gsm8k.make(gsm8k.Config(train=50, test=2, validation=2, shots=3, demonstrations=300), 0, "cpu")
    questions = {problem.question for problem in made.asking.shots}
    assert len(questions) == 3 and made.splits["train"] == 50 - 3
    assert not questions & {problem.question for problem in [*made.problems["train"], *made._demonstrations.make()]}
    plain = gsm8k.make(gsm8k.Config(train=50, test=2, validation=2, demonstrations=300), 0, "cpu")
    assert plain.splits["train"] == 50 and plain.asking.prompts(plain.problems["test"][:1], Parrot())[0].endswith("\n")
    with pytest.raises(UserError, match="no problem is left to train on"):
        gsm8k.make(gsm8k.Config(train=3, shots=5), 0, "cpu")


def test_what_is_graded_ends_before_the_stop_string() -> None:
    parrot = Parrot(lambda prompt, attempt: "#### 2\n\nQ: 9 + 9 =\n#### 18")
    seen: list[str] = []

    def grade(prompts: list[str], completions: list[str], **columns: object) -> list[float]:
        seen.extend(completions)
        return [1.0] * len(completions)

    env = world(Asking(stop=("\n\n", "Q:")), rewards=[grade])
    batch = env.rollout(parrot)
    assert seen == ["#### 2"] * 2
    assert [sample["completion"] for sample in env.samples(batch, parrot, 2)] == ["#### 2"] * 2
    scores = env.evaluate(parrot, 3, "validation")
    assert [sample["completion"] for sample in scores.samples] == ["#### 2"] * 3 and scores.score.tolist() == [1, 0, 0]
    assert told(env, batch)[0]["prompt"] == "".join(
        env.asking.prompts(env.problems["train"], parrot)[int(batch["problem"][0])]
    )


@pytest.mark.parametrize(
    ("given", "policy", "says"),
    [
        ({"system": "Be."}, Talker, "env.system does nothing with env.chat=false: leave it out"),
        ({"system": "Be.", "chat": None}, Parrot, "env.system does nothing because the model has no chat template"),
        ({"options": {"a": 1}, "chat": None}, Parrot, "env.chat_options does nothing because the model has no chat"),
        ({"chat": True}, Parrot, "a Parrot has no chat template; give env.chat=false"),
    ],
)
def test_what_needs_turns_is_refused_without(given: dict[str, Any], policy: type[Parrot], says: str) -> None:
    with pytest.raises(UserError, match=says):
        world(Asking(**given)).check(policy())


def test_texts_that_are_none_are_refused() -> None:
    with pytest.raises(UserError, match=r"env\.stop has an empty text, which would end every answer at once"):
        Asking(stop=("a", ""))
    for given in ({"system": "\ud800"}, {"stop": ("\ud800",)}, {"prompt": "{question}\ud800"}):
        with pytest.raises(UserError, match=rf"env\.{next(iter(given))}='?.*ud800.* is not Unicode text"):
            Asking(**given)


# A model with a template, from the command line


@pytest.fixture(scope="module")
def talking(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """tiny with a chat template."""
    folder = tmp_path_factory.mktemp("models") / "talking"
    shutil.copytree(folders.TINY, folder)
    (folder / "chat_template.jinja").write_text(templates.CHATML)
    return folder


def parts(*keys: str) -> Any:
    return assemble(config.read(["algo=grpo", "algo.group=2", *SMALL, *keys]))


def env_of(made: Any) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(made.text)["env"]
    return found


@pytest.mark.slow
def test_a_model_with_a_template_is_asked_in_turns(talking: Path) -> None:
    made = parts(f"policy.model={talking}", "env.system=Be brief.")
    prompts = made.env.asking.prompts(made.env.problems["test"][:1], made.algo.policy)
    question = made.env.problems["test"][0].question
    assert prompts == [
        f"<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\n{question}<|im_end|>\n<|im_start|>assistant\n"
    ]
    assert env_of(made)["chat"] is True and env_of(made)["prompt"] == "{question}"
    assert made.env.rollout(made.algo.policy, 4, 2)["mask"].any()


def test_tiny_is_asked_as_before(talking: Path) -> None:
    for keys in ([], [f"policy.model={talking}", "env.chat=false"]):
        made = parts(*keys)
        assert env_of(made)["chat"] is False and env_of(made)["prompt"] == "{question}\n"
        question = made.env.problems["test"][0].question
        assert made.env.asking.prompts(made.env.problems["test"][:1], made.algo.policy) == [f"{question}\n"]


@pytest.mark.slow
def test_a_run_in_turns_is_resumed_and_one_from_before_stays_plain(
    talking: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    keys = [f"policy.model={talking}", "iterations=1", "evaluation_episodes=2", "env.max_tokens=4", "env.shots=1"]
    keys += ["env.stop=\\n\\n,####"]
    assert run.main(["algo=grpo", "algo.group=2", *SMALL, *keys, f"out={tmp_path / 'r'}"]) == 0
    assert "prompts: chat turns by the model's template (env.chat=true), examples: 1" in capsys.readouterr().out
    written = (tmp_path / "r" / "model" / "chat_template.jinja").read_text()
    assert written == templates.CHATML
    samples = (tmp_path / "r" / "completions.jsonl").read_text().splitlines()
    assert json.loads(samples[0])["prompt"].count("<|im_start|>") == 4
    made = assemble(config.read([f"resume={tmp_path / 'r'}", "iterations=2", "env.stop=\\n\\n,####"]))
    assert made.env.asking.chat is True and made.env.asking.stop == ("\n\n", "####")
    path = tmp_path / "r" / "config.yaml"
    values = yaml.safe_load(path.read_text())
    for key in ("chat", "system", "shots", "stop", "chat_options"):
        del values["env"][key]
    path.write_text(yaml.safe_dump(values))
    assert assemble(config.read([f"resume={tmp_path / 'r'}"])).env.asking.chat is False


@pytest.mark.slow
def test_a_learned_reward_reads_conversations_by_its_own_template(talking: Path, tmp_path: Path) -> None:
    judge = RewardModel.on(parts(f"policy.model={talking}").algo.policy, writes=False)
    torch.nn.init.normal_(judge.value_head.weight, generator=torch.Generator().manual_seed(0))
    turns = (Turn("user", data("2 + 3?")),)
    other, own = Prompt("[INST] 2 + 3? [/INST]", turns=turns), judge.chat([turns], {})
    judge.save(tmp_path)
    reward = LearnedReward(tmp_path)
    assert (
        reward([other], ["#### 5"])
        == judge.judge(own, ["#### 5"]).tolist()
        != judge.judge(["2 + 3?"], ["#### 5"]).tolist()
    )
    assert reward(["2 + 3?"], ["#### 5"]) == judge.judge(["2 + 3?"], ["#### 5"]).tolist()


@pytest.mark.slow
def test_a_learned_reward_is_asked_with_the_options_of_its_training(tmp_path: Path) -> None:
    folder = tmp_path / "thinks"
    shutil.copytree(folders.TINY, folder)
    (folder / "chat_template.jinja").write_text(templates.QWEN3)
    made = parts(f"policy.model={folder}", "env.chat_options={enable_thinking: false}")
    judge = RewardModel.on(made.algo.policy, writes=False)
    torch.nn.init.normal_(judge.value_head.weight, generator=torch.Generator().manual_seed(0))
    prompts = made.env.asking.prompts(made.env.problems["test"][:1], judge)
    assert prompts[0].endswith("<think>\n\n</think>\n\n")
    judge.save(tmp_path / "saved")
    (plain,) = made.algo.policy.chat([prompts[0].turns], {})  # a policy that is asked to think
    want = judge.judge(prompts, ["#### 5"]).tolist()
    for _ in range(2):
        assert LearnedReward(tmp_path / "saved")([plain], ["#### 5"]) == want


@pytest.mark.slow
def test_a_reward_that_was_trained_on_plain_prompts_judges_no_conversations(
    talking: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    few = ["env.train=12", "env.test=3", "env.validation=3", "env.rows=2", "iterations=1", f"policy.model={talking}"]
    assert run.main(["algo=reward_model", "env=preferences", *few, f"out={tmp_path / 'judge'}"]) == 0
    grpo = ["algo=grpo", "env=gsm8k", *few, "env.max_tokens=8", f"env.reward=model:{tmp_path / 'judge'}"]
    assert run.main([*grpo, f"out={tmp_path / 'turns'}"]) == 2
    assert run.main([*grpo, "env.chat=false", f"out={tmp_path / 'plain'}"]) == 0
    assert "was trained on plain prompts, and the policy is asked in chat turns" in capsys.readouterr().err


def test_a_reward_without_a_chat_template_judges_no_conversations(tmp_path: Path) -> None:
    """It would read the marks of the policy's template, such as <|im_start|>, as words."""
    RewardModel.on(LanguageModel.load("tiny"), writes=False).save(tmp_path)
    reward, turns = LearnedReward(tmp_path), (Turn("user", data("2 + 3?")),)
    reward.prepare(["2 + 3?"], 8, torch.device("cpu"))
    with pytest.raises(UserError, match="was trained on plain prompts, and the policy is asked in chat turns"):
        reward.prepare([Prompt("[INST] 2 + 3? [/INST]", turns=turns)], 8, torch.device("cpu"))


def test_a_reward_model_learns_whose_texts_it_reads(tmp_path: Path) -> None:
    policy = LanguageModel.load("tiny")
    RewardModel.on(policy, writes=False).save(tmp_path)
    reward, told = LearnedReward(tmp_path), []
    reward.read_texts_of = told.append  # type: ignore[method-assign,assignment]
    TextEnv({"train": [Problem("2 + 3?", "5")]}, 1, 0, rewards=[reward]).check(policy)
    assert told == [policy.tokenizer]


def test_a_reward_that_was_trained_on_conversations_and_is_given_plain_prompts_is_told(
    talking: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    judge = RewardModel.on(LanguageModel.load(talking), writes=False)
    (turns,) = judge.chat([[Turn("user", data("2 + 3?"))]], {})
    judge.save(tmp_path)
    for prompt, times in {turns: 0, "2 + 3?": 1}.items():
        for _ in range(2):
            LearnedReward(tmp_path).prepare([prompt], 8, torch.device("cpu"))
        assert capsys.readouterr().err.count("trained on conversations, and the policy is asked in plain text") == times


def test_a_reward_model_that_cannot_read_a_prompt_is_named(talking: Path, tmp_path: Path) -> None:
    """The same line without its name would be about the policy, which can."""
    judge = RewardModel.on(LanguageModel.load(talking), writes=False)
    (turns,) = judge.chat([[Turn("user", data("2 + 3?"))]], {})
    judge.save(tmp_path)
    with pytest.raises(UserError, match=f"^{re.escape(str(tmp_path))}: this reward model.*exceed the model's context"):
        LearnedReward(tmp_path).prepare([turns], judge.decoder.context, torch.device("cpu"))


# What is typed on a command line


def asked(*keys: str) -> Any:
    given = config.read(["algo=grpo", *SMALL, *keys])
    return config.build(gsm8k.Config, given.env, "env")


def test_a_line_break_can_be_typed() -> None:
    assert asked(r"env.prompt=Q: {question}\n\tA:").prompt == "Q: {question}\n\tA:"
    assert asked(r"env.prompt={question} \\n \frac\d").prompt == r"{question} \n \frac\d"
    assert asked("env.prompt={question}\n").prompt == "{question}\n"
    assert asked(r"env.stop=\n\n,Q: ").stop == ("\n\n", "Q: ")
    assert asked(r'env.stop=["\n", "a, \\n"]').stop == ("\n", r"a, \n")  # YAML's own rule
    assert asked("env.stop=").stop == () and asked("env.prompt=none").prompt is None
    assert asked(r"env.source=a\nb").source == r"a\nb"  # no text for a model
    assert asked("env.chat_options.enable_thinking=false").chat_options == {"enable_thinking": False}


@pytest.mark.parametrize("text", ["[END]", "[/INST]", "[", "[ a, b]", "[END],x"])
def test_a_stop_in_brackets_is_no_list_without_a_word(text: str) -> None:
    """YAML would take [END] for a list of END, and the answers would end before the bracket."""
    with pytest.raises(UserError, match=r"is a text, or a list without quotes: write env\.stop='\[\"\["):
        asked(f"env.stop={text}")
    assert asked(f'env.stop=["{text}"]').stop == (text,)
    assert asked("env.stop=[]").stop == ()


def test_a_file_keeps_the_rule_of_yaml(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text(
        "algo: {name: grpo}\nenv: {name: gsm8k, prompt: '{question}\\n', stop: [\"\\n\"]}\n"
    )
    given = config.from_folder(tmp_path)
    built = config.build(gsm8k.Config, given.env, "env")
    assert built.prompt == r"{question}\n" and built.stop == ("\n",)


@pytest.mark.parametrize("prompt", [r"Q: {question}\n", "{question}\n\\\\\t", r"\nabla {question} \\", "{question}'"])
@pytest.mark.parametrize("stop", [["\n\n"], ["a, b", "\\n"], "x\\n"])
def test_the_command_of_a_run_from_python_repeats_it(prompt: str, stop: object) -> None:
    given = line({"algo": "grpo", "env": "gsm8k", "env.prompt": prompt, "env.stop": stop})
    first = config.build(gsm8k.Config, given.env, "env")
    assert first.prompt == prompt
    again = config.parse(shlex.split(shlex.join(given.argv)))
    assert config.build(gsm8k.Config, again.env, "env") == first
