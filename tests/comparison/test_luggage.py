"""What is sent along with a run to a machine that shares no files."""

from dataclasses import replace

import pytest
from support.other_machines import Fails, Machines, carried_out, job

from rlkit.comparison import luggage, on_node
from rlkit.settings import places, sections

pytestmark = pytest.mark.usefixtures("other_machines")


def test_files_and_modules_of_ones_own_are_sent_along(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "own_mod.py").write_text("from .helper import x\n")
    data, model = tmp_path / "train.jsonl", tmp_path / "model"
    data.write_text("{}\n")
    model.mkdir()
    (model / "config.json").write_text("{}")
    names = [str(data), str(tmp_path / "test.jsonl"), str(model), "own_mod", "json.decoder"]
    one = job(tmp_path, **{name: places.mark(name) for name in names})
    one.config["env"] |= {"source": str(data), "reward": f"other,{data}:f", "model": f"model:{model}"}
    sent, needed = luggage.luggage(one)
    assert sent == {str(data): data, str(model): model, "own_mod": tmp_path / "own_mod.py"}
    assert needed == {name: places.mark(name) for name in ("own_mod", "json.decoder")}

    def looked(host: on_node.Host) -> object:
        def start(folder: str, directory: str, config: str, here: bool) -> None:
            assert (host.root / str(tmp_path)[1:] / "own_mod.py").read_text() == "from .helper import x\n"
            (host.folder / "given").write_text(config)
            host.start(folder, directory, config, here)

        return Fails(host, start=start)

    machines = Machines(looked)
    assert carried_out(one, machines) is None
    home = sections.read(one.folder / "config.yaml")
    assert home["env"] == one.config["env"] and home["marks"] == one.config["marks"]


def test_on_the_way_paths_lie_in_the_folder_that_stands_for_the_root(tmp_path):
    found = luggage.moved({"a": ["/x/m.py:f,/x/m.pyx,b", 3], "b": "model:/x/m.py"}, "/tmp/r", ["/x/m.py"])
    assert found == {"a": ["/tmp/r/x/m.py:f,/x/m.pyx,b", 3], "b": "model:/tmp/r/x/m.py"}


def test_what_is_too_large_or_installed_must_be_there(tmp_path, monkeypatch):
    monkeypatch.setattr(luggage, "MOST", 3)
    data = tmp_path / "train.jsonl"
    data.write_text("{}  \n")
    one = job(tmp_path, **{str(data): places.mark(str(data))})
    assert luggage.luggage(one) == ({}, one.config["marks"])
    assert carried_out(one, Machines()) is None  # it lies there under the same path
    other = replace(job(tmp_path, "other"), config={**one.config, "marks": {str(data): "00", "no_such.module": "11"}})
    told = carried_out(other, Machines())
    assert told and told.startswith(f"{data} is not on ") and told.endswith("put it there under the same path")
    other.config["marks"].pop(str(data))
    told = carried_out(other, Machines())
    assert told and told.endswith("as it is here: install it there, or give it as a .py file")
