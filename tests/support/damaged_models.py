"""Model folders with one thing wrong with them: a seeded generator of damages, each a change of a folder in place."""

import json
import os
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

Damage = Callable[[Path], None]
Case = tuple[str, Damage]  # what it does in words, and the change

DEEP = "[" * 5_000 + "]" * 5_000
VALUES = (
    "null", "true", "-1", "0", "1", "3", "1.5", "1000000", "10000000", "1" + "0" * 30, '"3"', '""', '"\\ud800"', "[]",
    '["a"]', "{}", '{"content": 3}', "NaN", "Infinity", "1e-300", "1e300", "[1, null]", DEEP,
)  # fmt: skip
JSON_FILES = ("config.json", "tokenizer.json", "tokenizer_config.json", "generation_config.json")
WEIGHTS, INDEX, HEAD = "model.safetensors", "model.safetensors.index.json", "value_head.safetensors"
FILES = (*JSON_FILES, WEIGHTS, HEAD)


def fields(draw: random.Random, count: int) -> Iterator[Case]:
    """One value of a JSON file is another or is gone; `count` of each file, anywhere in it."""
    for file in JSON_FILES:
        for _ in range(count):
            yield field(file, draw.random(), draw.choice((*VALUES, "")))


def every_field(keys: tuple[str, ...]) -> Iterator[Case]:
    """Each key of config.json with each value."""
    for key in keys:
        for value in (*VALUES, ""):

            def damage(folder: Path, key: str = key, value: str = value) -> None:
                content = json.loads((folder / "config.json").read_text())
                (folder / "config.json").write_text(json.dumps({**content, key: None}))
                put(folder / "config.json", (key,), value)

            yield f"config.json {key} = {value[:20] or 'gone'}", damage


def field(file: str, place: float, value: str) -> Case:
    def damage(folder: Path) -> None:
        paths = list(places(json.loads((folder / file).read_text())))
        put(folder / file, paths[int(place * len(paths))], value)

    return f"{file} at {place:.4f} = {value[:20] or 'gone'}", damage


def places(content: Any, start: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The way to each value inside; long lists and mappings are shortened, so that no part is drawn too often."""
    items = list(content.items() if isinstance(content, dict) else enumerate(content))
    for key, inner in items[:4] + items[4:][-4:]:
        yield (*start, key)
        if isinstance(inner, dict | list):
            yield from places(inner, (*start, key))


def put(path: Path, keys: tuple[Any, ...], value: str) -> None:
    """Write a JSON file with another value, given as JSON, at a place; "" takes it out."""
    content = json.loads(path.read_text())
    holder = content
    for key in keys[:-1]:
        holder = holder[key]
    if value:
        holder[keys[-1]] = "HERE"
    else:
        del holder[keys[-1]]
    path.write_text(json.dumps(content).replace('"HERE"', value))


def files() -> Iterator[Case]:
    """A file is something else."""
    kinds: dict[str, Damage] = {
        "missing": lambda path: None,
        "empty": lambda path: path.touch(),
        "a folder": lambda path: path.mkdir(),
        "a pipe": lambda path: os.mkfifo(path),
        "a device without end": lambda path: path.symlink_to("/dev/zero"),
        "a link to itself": lambda path: path.symlink_to(path),
        "a link to nothing": lambda path: path.symlink_to(path.parent / "nothing"),
        "larger than any disk": lambda path: path.touch() or os.truncate(path, 2**42),
        "a list": lambda path: path.write_text("[]") and None,
        "deep": lambda path: path.write_text(DEEP) and None,
    }
    for file in (*FILES, INDEX):
        for kind, make in kinds.items():

            def damage(folder: Path, file: str = file, make: Damage = make) -> None:
                (folder / file).unlink(missing_ok=True)
                make(folder / file)

            yield f"{file} is {kind}", damage


def bits(draw: random.Random, count: int) -> Iterator[Case]:
    """A file is cut short, or a few of its bytes are others."""
    for file in FILES:
        for _ in range(count):
            cut, place, new = draw.random() < 0.4, draw.random() ** 3, draw.randbytes(draw.choice((1, 1, 8)))

            def damage(folder: Path, file: str = file, cut: bool = cut, place: float = place, new: bytes = new) -> None:
                data = bytearray((folder / file).read_bytes())
                at = int(place * len(data))
                data[at : len(data) if cut else at + len(new)] = b"" if cut else new
                (folder / file).write_bytes(data)

            yield f"{file} {'cut' if cut else 'changed to ' + new.hex()} at {place:.6f}", damage


def indices() -> Iterator[Case]:
    """An index that names other files, or is of another form."""
    maps = ['["a"]', "3", '"x"', '{"a": 3}', '{"a": ["b"]}', '{"a": null}', '{"a": "../outside.safetensors"}']
    maps += ['{"a": "/etc/passwd"}', '{"a": ".."}', '{"a": "config.json"}', '{"a": "model.safetensors"}', "{}", "null"]
    maps += ['{"a": "there is none.safetensors"}', '{"a": "none.safetensors"}', '{"a": "\\u0000.safetensors"}']
    for text in maps:

        def damage(folder: Path, text: str = text) -> None:
            (folder / INDEX).write_text(f'{{"weight_map": {text}}}')

        yield f"weight_map = {text}", damage


def tensors() -> Iterator[Case]:
    """Weights of another type or size, or with numbers that are none."""
    changes: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
        "NaN": lambda x: torch.full_like(x, torch.nan),
        "one inf": lambda x: x.index_fill(0, torch.tensor([0]), torch.inf),
        "int8": lambda x: x.to(torch.int8),
        "bool": lambda x: x.bool(),
        "complex": lambda x: x.to(torch.complex64),
        "too large for float32": lambda x: torch.full_like(x, 1e300, dtype=torch.float64),
        "large": lambda x: torch.full_like(x, 3e38),
        "one row less": lambda x: x[1:].contiguous(),
        "empty": lambda x: x[:0].contiguous(),
        "of more dimensions": lambda x: x[None].contiguous(),
    }
    for file in (WEIGHTS, HEAD):
        for what, change in changes.items():
            for which in (0, -1):

                def damage(folder: Path, file: str = file, change: Any = change, which: int = which) -> None:
                    found = load_file(folder / file)
                    name = sorted(found)[which]
                    save_file({**found, name: change(found[name])}, folder / file)

                yield f"{file}: tensor {which} is {what}", damage
        for what, some in (("nothing", slice(0, 0)), ("half", slice(None, None, 2)), ("one more", slice(None))):

            def lose(folder: Path, file: str = file, some: slice = some) -> None:
                found = load_file(folder / file)
                extra = {"more": torch.zeros(3)} if some == slice(None) else {}
                save_file({**{name: found[name] for name in sorted(found)[some]}, **extra}, folder / file)

            yield f"{file} holds {what}", lose


def cases(seed: int, count: int) -> list[Case]:
    """All kinds; `count` of each that is drawn."""
    draw = random.Random(seed)
    return [*files(), *indices(), *tensors(), *fields(draw, count), *bits(draw, count)]
