"""config=FILE: the keys of a file stand between the YAML of a pair and the command line."""

from pathlib import Path

import pytest

import rlkit
from rlkit.comparison import plan
from rlkit.errors import UserError
from rlkit.settings import config
from rlkit.settings.assemble import assemble
from rlkit.tuning.problem import Problem, Tune

KEYS = """
run: {env_steps: 3000}
algo: {name: ppo, lr: 0.002, horizon: none}
env: {name: cartpole, rows: 4}
policy: {hidden: [32]}
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "mine.yaml"
    path.write_text(KEYS)
    return path


def sections(*words: str) -> dict[str, dict[str, object]]:
    given = config.read(words)
    return {name: given.section(name) for name in config.SECTIONS}


def test_a_file_stands_above_the_yaml_of_the_pair_and_below_the_command_line(file: Path) -> None:
    found = sections(f"config={file}", "algo.lr=0.5", "seed=3")
    assert found["algo"]["lr"] == "0.5"
    assert (found["algo"]["name"], found["algo"]["horizon"], found["algo"]["epochs"]) == ("ppo", "none", 20)
    assert found["env"] == {"name": "cartpole", "rows": 4} and found["policy"] == {"hidden": [32]}
    assert found["run"] == {"env_steps": 3000, "seed": "3"}
    assert sections(f"config={file}", "iterations=2")["run"] == {"iterations": "2"}  # one length takes another's place


def test_the_names_may_be_in_either_place_and_must_agree(file: Path) -> None:
    file.write_text("algo: {lr: 0.1}\n")
    found = sections(f"config={file}", "algo=dqn", "env=cartpole")
    assert found["algo"]["lr"] == 0.1 and found["env"]["name"] == "cartpole"
    with pytest.raises(UserError, match="which environment"):
        config.read([f"config={file}", "algo=dqn"])
    file.write_text(KEYS)
    assert sections(f"config={file}", "algo=ppo")["algo"]["lr"] == 0.002
    with pytest.raises(UserError, match="is for algo=ppo, not algo=dqn"):
        config.read([f"config={file}", "algo=dqn"])


def test_the_config_of_a_run_repeats_it(file: Path, tmp_path: Path) -> None:
    parts = assemble(config.read([f"config={file}", f"out={tmp_path / 'a'}", "seed=7", "policy.activation=relu"]))
    held = tmp_path / "config.yaml"
    held.write_text(parts.text)
    again = assemble(config.read([f"config={held}"])).text
    assert again.partition("\n")[2].replace("out: null", f"out: {tmp_path / 'a'}") == parts.text.partition("\n")[2]
    assert f"config={held}" in again.partition("\n")[0]


def test_the_config_of_a_run_from_before_a_key_says_what_that_run_did(tmp_path: Path) -> None:
    path, mine = tmp_path / "config.yaml", tmp_path / "mine.yaml"
    text = "{}algo: {{name: ppo}}\nenv: {{name: gsm8k}}\npolicy: {{hidden: [32]}}\n"
    path.write_text(text.format("# rlkit 0.5.0; to repeat: python -m rlkit.run algo=ppo env=gsm8k\n"))
    mine.write_text(text.format(""))
    then = sections(f"config={path}")
    assert then["env"]["chat"] is False and then["policy"]["share"] == "none"
    assert sections(f"config={path}", "env.chat=true")["env"]["chat"] == "true"  # the command line stands above
    assert "chat" not in sections(f"config={mine}")["env"], "a file of a user's own leaves a key to its default"


def test_a_preset_in_the_file_stands_below_its_keys(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text("algo: {name: grpo, preset: trl, epochs: 3}\nenv: {name: gsm8k}\n")
    by_word, by_file = sections("algo=grpo", "env=gsm8k", "algo.preset=trl"), sections(f"config={path}")
    assert by_file["algo"] == by_word["algo"] | {"epochs": 3} and "preset" not in by_file["algo"]
    assert sections(f"config={path}", "algo.preset=trl")["algo"]["epochs"] == by_word["algo"].get("epochs", 3)


def test_a_preset_on_the_command_line_takes_the_place_of_that_in_the_file(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text("algo: {name: grpo, preset: openrlhf}\nenv: {name: gsm8k}\n")
    by_word = sections("algo=grpo", "env=gsm8k", "algo.preset=trl")
    assert sections(f"config={path}", "algo.preset=trl")["algo"] == by_word["algo"]
    without = sections("algo=grpo", "env=gsm8k")["algo"]
    assert sections(f"config={path}", "algo.preset=none")["algo"] == without, "as --help shows it"
    assert sections("algo=grpo", "env=gsm8k", "algo.preset=none")["algo"] == without


def test_code_that_only_the_file_names_needs_trust(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine.py").write_text("raise SystemExit('ran')\n")
    path = tmp_path / "theirs.yaml"
    path.write_text(f"algo: {{name: {tmp_path / 'mine.py'}}}\nenv: {{name: cartpole}}\n")
    with pytest.raises(UserError, match="would run code from outside rlkit: algo="):
        config.read([f"config={path}"])
    assert config.read([f"config={path}", "trust=true"]).algo["name"] == str(tmp_path / "mine.py")
    assert config.read([f"config={path}", f"algo={tmp_path / 'mine.py'}"]).algo["name"] == str(tmp_path / "mine.py")
    with pytest.raises(UserError, match="would run code from outside rlkit: algo="):
        config.read([f"config={path}", "sede=1"])  # a mistake on the command line imports nothing, either
    for reward in ("'./mine.py:f'", "[strict, './mine.py:f']"):
        path.write_text(f"algo: {{name: grpo}}\nenv: {{name: gsm8k, reward: {reward}}}\n")
        with pytest.raises(UserError, match=r"would run code from outside rlkit: env\.reward=\./mine"):
            config.read([f"config={path}"])
    ours, theirs = "algo: {name: ppo}", f"algo: {{name: {tmp_path / 'mine.py'}, preset: trl}}"
    for text, *words in (
        (f"{theirs}\nenv: {{name: cartpole}}\n",),
        (f"{theirs.replace(', preset: trl', '')}\nenv: {{name: cartpole}}\n", "algo.preset=trl"),
    ):
        path.write_text(text)
        with pytest.raises(UserError, match="no preset 'trl' of"):
            config.read([f"config={path}", *words])
    path.write_text(f"{ours}\nenv: {{name: minigrid, id: 'mine:MiniGrid-Empty-8x8-v0'}}\n")
    pytest.importorskip("minigrid")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(UserError, match="is not a world of MiniGrid"):
        assemble(config.read([f"config={path}"]))
    with pytest.raises(UserError, match="trust= is for"):
        config.read(["algo=ppo", "env=cartpole", "trust=true"])


def test_code_for_a_key_of_a_plug_in_of_the_line_needs_trust_too(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "from dataclasses import dataclass\nfrom rlkit.api import Code\n\n\n@dataclass(frozen=True)\nclass Config:\n"
        "    maker: Code = 'none'\n\n\ndef make(config, seed, device): ...\n"
    )
    path, line = tmp_path / "theirs.yaml", f"env={tmp_path / 'mine.py'}"
    path.write_text("algo: {name: ppo}\nenv: {maker: './theirs.py:f'}\n")
    with pytest.raises(UserError, match=r"would run code from outside rlkit: env\.maker=\./theirs\.py:f; give it"):
        config.read([f"config={path}", line])
    for word in ("trust=true", "env.maker=./theirs.py:f"):
        assert config.read([f"config={path}", line, word]).env["maker"] == "./theirs.py:f"


@pytest.mark.parametrize("given", ["makers: {a: './theirs.py:f'}", "makers.a: './theirs.py:f'"])
def test_code_in_a_mapping_needs_trust_too(tmp_path: Path, given: str) -> None:
    (tmp_path / "mine.py").write_text(
        "from dataclasses import dataclass, field\nfrom rlkit.api import Code\n\n\n@dataclass(frozen=True)\n"
        "class Config:\n    makers: dict[str, Code] = field(default_factory=dict)\n"
        "\n\ndef make(config, seed, device): ...\n"
    )
    path = tmp_path / "theirs.yaml"
    path.write_text(f"algo: {{name: ppo}}\nenv: {{{given}}}\n")
    with pytest.raises(UserError, match=r"would run code from outside rlkit: env\.makers=\./theirs\.py:f; give it"):
        config.read([f"config={path}", f"env={tmp_path / 'mine.py'}"])


def test_help_needs_neither_name(tmp_path: Path) -> None:
    path = tmp_path / "seed.yaml"
    path.write_text("run: {seed: 1}\n")
    assert config.read([f"config={path}", "--help"]).run["seed"] == 1
    assert config.read([f"config={path}", "algo=ppo", "--help"]).algo["name"] == "ppo"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("run: [1]", "not sections of keys"),
        ("runs: {a: 1}", "no section 'runs'"),
        ("run: {", "not valid YAML"),
        ("algo: {name: 5}", "algo.name=5 is not a text"),
        ("env: {name: null}", "env.name=none is not a text"),
        ("algo: {preset: [trl]}", r"no preset '\['trl'\]' of ppo"),
    ],
)
def test_a_file_of_anything_else_is_one_line(file: Path, text: str, says: str) -> None:
    file.write_text(text)
    with pytest.raises(UserError, match=says) as error:
        config.read([f"config={file}", "algo=ppo", "env=cartpole"])
    assert "\n" not in str(error.value)


def test_a_row_of_a_comparison_may_be_a_file(file: Path) -> None:
    words = ["algo=default:ppo,mine:ppo", "env=cartpole", "seeds=1", f"mine:config={file}"]
    jobs, _ = plan.plan(plan.parse(words))
    assert [job.config["algo"]["lr"] for job in jobs] == [1e-3, 2e-3]
    assert f"config={file}" in jobs[1].words and not any(word.startswith("config=") for word in jobs[0].words)


def test_a_comment_about_rlkit_does_not_make_a_file_that_of_an_older_run(file: Path) -> None:
    plain = sections(f"config={file}")
    file.write_text(f"# rlkit settings of ours{KEYS}")
    assert sections(f"config={file}") == plain and "share" not in plain["policy"]
    file.write_text(f"# rlkit 0.5.0{KEYS}")
    assert sections(f"config={file}")["policy"]["share"] == "none"


def test_a_replay_of_a_place_that_cannot_be_is_not_looked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each folder of the path is a place where it may lie: 16,000 of them took two minutes."""
    asked: list[str] = []
    monkeypatch.setattr("os.path.isfile", lambda path: asked.append(str(path)))
    for longest, looked in ((4096, True), (4098, False)):
        given, storage = config.Given(), "/a" * (longest // 2)
        given.algo["storage"] = storage
        config.with_own_replay(given, tmp_path)
        assert given.algo["storage"] == storage and bool(asked) is looked
        asked.clear()


def test_a_file_that_no_run_wrote_cannot_choose_the_folder(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Such a file may be a stranger's; that of a run has the folder of that run, which is taken."""
    file.write_text(KEYS.replace("env_steps: 3000", "env_steps: 3000, out: r/y2"))
    monkeypatch.chdir(file.parent)
    says = r"config=mine\.yaml has out=r/y2, and a file cannot choose the folder of a run: take it out"
    for words in ([], ["out=r/mine"]):
        with pytest.raises(UserError, match=says):
            config.read(["config=mine.yaml", *words])
    with pytest.raises(UserError, match=says):
        plan.plan(plan.parse(["algo=ppo", "env=cartpole", "config=mine.yaml"]))
    with pytest.raises(UserError, match=says):
        rlkit.train("ppo", "cartpole", config="mine.yaml")
    with pytest.raises(UserError, match=says):
        Problem(Tune(algo="ppo", env="cartpole"), {"config": "mine.yaml"})
    file.write_text(f"# rlkit 0.5.0{file.read_text()}")
    assert "out" not in sections("config=mine.yaml")["run"]
    file.write_text(KEYS.replace("env_steps: 3000", "env_steps: 3000, out: null"))
    assert "out" not in sections("config=mine.yaml")["run"]
