"""What a configuration names outside the project: made absolute by its type, and marked so that a change shows."""

import hashlib
import os
import sys
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from rlkit.api import Code, File, Folder, Place, UserError
from rlkit.settings import places
from rlkit.text.sources import read_jsonl


@dataclass(frozen=True)
class Config:
    data: File = "none"
    model: Folder | None = None
    reward: Code = "correct"
    several: tuple[File, ...] = ()
    prompt: str = ""
    rows: int = 8
    table: Path = field(default=Path())


def test_the_type_of_a_field_says_what_its_text_is() -> None:
    kinds = {name: place.kind for name, place in places.marked(Config).items()}
    assert kinds == {"data": "file", "model": "folder", "reward": "code", "several": "file", "table": "file"}


@pytest.mark.parametrize(
    ("given", "kind", "found"),
    [
        ("a.jsonl", "file", "{here}/a.jsonl"),
        ("there", "file", "there"),  # a folder is not a file
        ("there", "folder", "{here}/there"),
        ("owner/name", "folder", "owner/name"),
        ("a.jsonl", "folder", "{here}/a.jsonl"),  # a model may be one file
        ("mine.py:f, correct", "code", "{here}/mine.py:f,correct"),
        ("pkg.mod:f,model:there", "code", "pkg.mod:f,model:{here}/there"),
        ("gone.py:f", "code", "gone.py:f"),
        ("a\0b", "file", "a\0b"),
        ("x" * 5000, "file", "x" * 5000),
        (("a.jsonl", "b.jsonl"), "file", ["{here}/a.jsonl", "b.jsonl"]),
        (None, "file", None),
    ],
)
def test_paths_become_absolute_where_something_is_there(
    given: object, kind: str, found: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("a.jsonl", "mine.py"):
        (tmp_path / name).write_text("{}")
    (tmp_path / "there").mkdir()
    here = str(tmp_path.resolve())
    expected = [x.format(here=here) for x in found] if isinstance(found, list) else found and str(found)
    assert places.absolute(given, Place(kind, models=True)) == (
        expected.format(here=here) if isinstance(expected, str) else expected
    )


def test_a_path_and_a_mapping_are_marked_as_texts_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("a.csv", "b.csv"):
        Path(name).write_text("1")
    here, file = str(tmp_path.resolve()), Place("file")
    assert places.absolute((Path("a.csv"), Path("new.csv")), file) == [f"{here}/a.csv", f"{here}/new.csv"]
    assert places.absolute({"x": "a.csv", "y": "word"}, file) == {"x": f"{here}/a.csv", "y": "word"}
    assert list(places.named(Path("a.csv"), file)) == [f"{here}/a.csv"]
    assert list(places.named((Path("a.csv"), Path("b.csv")), file)) == [f"{here}/a.csv", f"{here}/b.csv"]
    assert list(places.named({"x": "a.csv", "y": Path("b.csv")}, file)) == [f"{here}/a.csv", f"{here}/b.csv"]
    assert not list(places.named((Path(), Path("new.csv")), file)), "a folder, and what is not there yet"


def test_a_link_to_a_file_keeps_its_name_and_its_neighbors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "blobs").mkdir()
    (tmp_path / "here").mkdir()
    for name, blob in (("train.jsonl", "0a"), ("test.jsonl", "0b"), ("m.gguf", "0c"), ("mine.py", "0d.py")):
        (tmp_path / "blobs" / blob).write_text(blob)
        (tmp_path / "here" / name).symlink_to(tmp_path / "blobs" / blob)
    (tmp_path / "way").symlink_to("here")
    monkeypatch.chdir(tmp_path)
    here = str(tmp_path.resolve() / "here")
    data = Place("file", beside=("test.jsonl",))
    assert places.absolute("way/train.jsonl", data) == f"{here}/train.jsonl"
    assert list(places.named("way/train.jsonl", data)) == [f"{here}/train.jsonl", f"{here}/test.jsonl"]
    assert places.absolute("way/m.gguf", Place("folder")) == f"{here}/m.gguf"
    assert places.absolute("way", Place("folder")) == here
    assert places.absolute("way/mine.py:f", Place("code")) == f"{tmp_path.resolve()}/blobs/0d.py:f"


def test_a_word_of_the_field_is_no_path_even_where_one_has_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tiny").mkdir()
    assert places.absolute("tiny", Place("folder", words=("tiny",))) == "tiny"
    assert list(places.named("tiny", Place("folder", words=("tiny",)))) == []


def test_code_is_marked_with_the_neighbors_that_it_imports(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("from .helper import f\nfrom . import other, gone\n")
    (tmp_path / "helper.py").write_text("from .deeper import g\nfrom .mine import f\n")
    (tmp_path / "deeper.py").write_text("g = 1\n")
    (tmp_path / "other.py").write_text("")
    (tmp_path / "unrelated.py").write_text("")
    found = list(places.named(f"{tmp_path}/mine.py:f,correct", Place("code")))
    assert sorted(Path(name).name for name in found) == ["deeper.py", "helper.py", "mine.py", "other.py"]


def test_neighbors_that_are_packages_are_marked_too(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("from .helper import f\nfrom . import other\nfrom .deep.inner import g\n")
    for name in ("helper", "other", "deep", "deep/inner"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("from .part import f\n" if name == "helper" else "")
    (tmp_path / "helper" / "part.py").write_text("f = 1\n")
    found = [Path(name).relative_to(tmp_path) for name in places.named(f"{tmp_path}/mine.py:f", Place("code"))]
    wanted = [f"{name}/__init__.py" for name in ("deep", "deep/inner", "helper", "other")]
    assert sorted(map(str, found)) == sorted([*wanted, "helper/part.py", "mine.py"])


def test_modules_that_a_star_may_import_are_marked_too(tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    (tmp_path / "mine.py").write_text("from .deep import *\n")
    (tmp_path / "deep" / "__init__.py").write_text("__all__ = ['part']\n")
    (tmp_path / "deep" / "part.py").write_text("f = 1\n")
    found = [Path(name).name for name in places.named(f"{tmp_path}/mine.py:f", Place("code"))]
    assert found == ["mine.py", "__init__.py", "part.py"], "a resume notices that deep/part.py has changed"


def test_a_module_is_marked_and_not_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    package = tmp_path / "its_package"
    package.mkdir()
    for name in ("__init__.py", "mod.py"):
        (package / name).write_text("raise SystemExit('it was imported')\n")
    assert list(places.named("its_package.mod:f", Place("code"))) == ["its_package.mod", "its_package"]
    assert list(places.named("its_package.gone:f", Place("code"))) == ["its_package.gone", "its_package"]
    before = places.mark("its_package.mod")
    assert len(before) == 16
    (package / "mod.py").write_text("f = 1\n")
    assert places.mark("its_package.mod") != before
    (package / "__init__.py").write_text("from .beside import g\n")
    (package / "beside.py").write_text("g = 1\n")
    found = list(places.named("its_package.mod:f", Place("code")))
    assert found == ["its_package.mod", "its_package", str(package / "beside.py")], "its package runs first"
    assert places.mark("its_package.nothing") == places.mark("nothing.at.all") == ""


def test_a_module_in_packages_without_init_is_located_and_not_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for part in ("one", "two"):
        (tmp_path / part / "its_space" / "sub" / part).mkdir(parents=True)
        monkeypatch.syspath_prepend(str(tmp_path / part))
    for part in ("one", "two"):
        file = tmp_path / part / "its_space" / "sub" / part / "mine.py"
        file.write_text("from .helper import x\n")
        file.with_name("helper.py").write_text("raise SystemExit('it was imported')\n")
        assert places.located(f"its_space.sub.{part}.mine") == file
        assert places.sources(f"its_space.sub.{part}.mine")[1:] == [str(file.with_name("helper.py"))]
        assert places.located(f"its_space.sub.{part}.gone") is None
    assert not any(name.startswith("its_space") for name in sys.modules)


def test_a_neighbor_that_is_read_with_a_file_is_marked_before_it_is_there(tmp_path: Path) -> None:
    data = tmp_path / "train.jsonl"
    data.write_text("{}\n")
    place = Place("file", beside=("test.jsonl", "train.jsonl"))
    assert list(places.named(str(data), place)) == [str(data), str(tmp_path / "test.jsonl")]
    assert places.mark(str(tmp_path / "test.jsonl")) == ""


def test_a_folder_is_marked_by_its_model_and_by_nothing_beside_it(tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text("{}")
    (tmp_path / "model" / "model.safetensors").write_bytes(b"1")
    before = places.mark(str(tmp_path))
    (tmp_path / "metrics.jsonl").write_text("more")
    assert places.mark(str(tmp_path)) == before != ""
    (tmp_path / "model" / "model.safetensors").write_bytes(b"2")
    assert places.mark(str(tmp_path)) != before


def test_a_folder_is_marked_by_the_chat_templates_that_policy_template_can_name(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    digest = hashlib.sha256(b"{}").hexdigest()
    plain = places.mark(str(tmp_path))
    assert plain == hashlib.sha256(f"config.json {digest}\n".encode()).hexdigest()[:16], "as earlier runs wrote it"
    (tmp_path / "additional_chat_templates").mkdir()
    assert places.mark(str(tmp_path)) == plain
    file = tmp_path / "additional_chat_templates" / "rag.jinja"
    file.write_text("R")
    first = places.mark(str(tmp_path))
    file.write_text("S")
    second = places.mark(str(tmp_path))
    file.rename(file.with_name("other.jinja"))
    assert len({plain, first, second, places.mark(str(tmp_path))}) == 4
    file.with_name("other.jinja").rename(tmp_path / "rag.jinja")
    assert places.mark(str(tmp_path)) not in (first, second), "the folder is part of a name"
    [reward] = places.named(f"model:{tmp_path}", Place("code", models=True))
    assert places.mark(reward) == places.mark(str(tmp_path))


def test_a_model_may_be_one_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("m.gguf").write_bytes(b"GGUF")
    place = Place("folder", words=("tiny",))
    assert places.absolute("m.gguf", place) == str(tmp_path / "m.gguf")
    [name] = places.named("m.gguf", place)
    before = places.mark(name)
    Path("m.gguf").write_bytes(b"GGUf")
    assert before and places.mark(name) not in ("", before)


def test_a_large_file_is_marked_by_evenly_spaced_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(places, "WHOLE", 999)
    monkeypatch.setattr(places, "BLOCK", 10)
    monkeypatch.setattr(places, "BLOCKS", 4)
    file = tmp_path / "large"
    file.write_bytes(bytes(1000))
    marks = {places.mark(str(file))}
    for changed in (0, 335, 999):  # blocks begin at 0, 330, 660 and 990
        data = bytearray(1000)
        data[changed] = 1
        file.write_bytes(data)
        marks.add(places.mark(str(file)))
    file.write_bytes(bytes(1001))
    assert len(marks | {places.mark(str(file))}) == 5


@pytest.mark.timeout(20)
@pytest.mark.skipif(not os.path.isfile("/proc/self/pagemap"), reason="Linux has a file that never ends")
def test_a_file_that_never_ends_is_read_as_long_as_it_says(tmp_path: Path) -> None:
    (tmp_path / "mine.py").symlink_to("/proc/self/pagemap")
    assert places.mark("/proc/self/pagemap") == places.mark(str(tmp_path / "mine.py")) != ""
    assert places.sources(str(tmp_path / "mine.py")) == [str(tmp_path / "mine.py")]
    with pytest.raises(UserError, match="/proc/self/pagemap: the file is empty"):
        read_jsonl("/proc/self/pagemap")


def test_what_is_neither_file_nor_folder_has_no_mark(tmp_path: Path) -> None:
    import os

    os.mkfifo(tmp_path / "pipe")
    assert places.mark(str(tmp_path / "pipe")) == ""
