"""A chat template is the same program wherever a run goes on, and it writes the same text each time."""

from pathlib import Path

import pytest

from rlkit.errors import UserError
from rlkit.language.chat import read_template
from rlkit.language.network import LanguageNetwork
from rlkit.settings import places


def test_a_name_is_the_models_whatever_lies_in_the_current_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = places.marked(LanguageNetwork)["template"]
    monkeypatch.chdir(tmp_path)
    names = [{"name": name, "template": "MODEL'S"} for name in ("mine", "mine.jinja")]
    for name in ("mine", "mine.jinja"):
        Path(name).write_text("FILE")
    texts = {"mine": "MODEL'S", "./mine": "FILE", "mine.jinja": "FILE", str(tmp_path / "mine"): "FILE"}
    for wanted, text in texts.items():
        found = read_template(tmp_path / "model", {"chat_template": names}, wanted)
        assert found is not None and found.text == text, wanted
        path = str(tmp_path / wanted) if text == "FILE" else wanted
        assert places.absolute(wanted, place) == path
        assert list(places.named(wanted, place)) == ([path] if text == "FILE" else [])
    with pytest.raises(
        UserError, match=r"policy\.template='mine': no such chat template; the model has none, or give a"
    ):
        read_template(tmp_path / "model", {}, "mine")
    Path("mine.jinja").unlink()
    with pytest.raises(
        UserError, match=r"policy\.template='mine\.jinja': no such chat template; the model has mine, or"
    ):
        read_template(tmp_path / "model", {"chat_template": names}, "mine.jinja")
