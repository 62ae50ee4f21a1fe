"""Which commas and semicolons part the values of a key."""

import pytest

from rlkit import compare
from rlkit.comparison.rows import alternatives


@pytest.mark.parametrize(
    ("key", "text", "values"),
    [
        ("algo.lr", "1e-3,3e-3", {"0.001": "1e-3", "0.003": "3e-3"}),
        ("algo.lr", "1e-3, 3e-3,", {"0.001": "1e-3", "0.003": "3e-3"}),
        ("algo.horizon", "none,64", {"none": "none", "64": "64"}),
        ("algo.normalize_reward", "true,false", {"true": "true", "false": "false"}),
        ("algo.schedule", "constant,linear", {"constant": "constant", "linear": "linear"}),
        ("env_steps", "1e3,2000", {"1000": "1e3", "2000": "2000"}),
        ("policy.hidden", "64,64", {"64,64": "64,64"}),
        ("policy.hidden", "64,64;256", {"64,64": "64,64", "256": "256"}),
        ("policy.hidden", "[64,64];[]", {"64,64": "[64,64]", "[]": "[]"}),
        ("env.id", "CartPole-v1,ALE/Pong-v5", {"CartPole-v1": "CartPole-v1", "ALE/Pong-v5": "ALE/Pong-v5"}),
        ("env.kwargs", "{a: 1, b: 2};{}", {"{'a': 1, 'b': 2}": "{a: 1, b: 2}", "{}": "{}"}),
        ("env.kwargs.size", "3,4", {"3,4": "3,4"}),
        ("env.kwargs.size", "3;4", {"3": "3", "4": "4"}),
        ("algo.nothing", "1,2", {"1,2": "1,2"}),  # the run says that there is no such key
    ],
)
def test_a_comma_makes_rows_of_numbers_and_words_and_a_semicolon_of_the_rest(key, text, values) -> None:
    assert alternatives(key, text, ["ppo"], ["gym"]) == values


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("env.kwargs.size=3,4", "env.kwargs.size=3,4 is one value; for a column of each, write 'env.kwargs.size=3;4'"),
        ("env.kwargs.size=3;4", ""),
        ("env.kwargs.size=[3,4]", ""),
        ("env.kwargs.size=left, then right", ""),
    ],
)
def test_a_value_with_commas_within_a_mapping_is_told(given: str, said: str, capsys) -> None:
    assert compare.main(["algo=ppo", "env=gym", "env.id=CartPole-v1", given]) == 2  # CartPole knows no size
    assert ([line for line in capsys.readouterr().err.splitlines() if "is one value" in line] or [""]) == [said]


@pytest.mark.parametrize("text", ["What is {question}, please; answer!", "a,b", "a;b"])
def test_a_text_for_a_model_is_one_value(text: str) -> None:
    assert alternatives("env.prompt", text, ["grpo"], ["gsm8k"]) == {text: text}


def test_a_field_of_several_names_is_parted_by_a_semicolon() -> None:
    assert list(alternatives("env.reward", "flexible,strict;strict", ["grpo"], ["gsm8k"])) == [
        "flexible,strict",
        "strict",
    ]
    assert list(alternatives("policy.lora_targets", "q_proj,v_proj", ["grpo"], ["gsm8k"])) == ["q_proj,v_proj"]
