"""What can be wrong with a file: its bytes, what lies in its place, what it says. Each way has a name."""

import json
import os
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import torch
import yaml
from safetensors import safe_open
from safetensors.torch import save_file

from rlkit.recording import checkpoint

Way = Callable[[Path, Random, Path], None]  # a file, the draws, and a folder outside that none may write to
DEEP = 100_000
BOMB = "".join(f"x{n}: &x{n} [{', '.join([f'*x{n - 1}'] * 10)}]\n" if n else "x0: &x0 [lol]\n" for n in range(12))
RUNS = "!!python/object/apply:os.mkdir [{}/ran]"
VALUES: list[Any] = [
    None, True, "", "x", [], {}, [1], {"a": 1}, [[]], 0, -1, 1.5, "1", 10**30, -(10**30), 10**9, 1e308,
        float("nan"), float("inf"),
    "\x1b[31mred", "\u202egnp", "a\nb", "nul\x00l", "x" * 100_000, "../../outside/canary.txt", "/dev/zero",
        "!!python/name:os.system",
    "é", 2**63, -(2**63), 1e-320, [None] * 1000, {"": None}, "none", "null", "~", "=", "&a",
]  # fmt: skip


def torn(path: Path, draw: Random, outside: Path) -> None:
    content = path.read_bytes()
    path.write_bytes(content[: draw.randrange(len(content) + 1)])


def flipped(path: Path, draw: Random, outside: Path) -> None:
    content = bytearray(path.read_bytes())
    for _ in range(draw.choice([1, 1, 8, 64])):
        if content:
            content[draw.randrange(len(content))] ^= 1 << draw.randrange(8)
    path.write_bytes(content)


def _written(make: Callable[[bytes, Random], bytes]) -> Way:
    def way(path: Path, draw: Random, outside: Path) -> None:
        path.write_bytes(make(path.read_bytes(), draw))

    return way


def _in_place(make: Callable[[Path, Path], object]) -> Way:
    def way(path: Path, draw: Random, outside: Path) -> None:
        path.unlink()
        make(path, outside)

    return way


def a_socket(path: Path, outside: Path) -> None:
    here = os.getcwd()
    os.chdir(path.parent)  # the name of a socket is short
    try:
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(path.name)
    finally:
        os.chdir(here)


BYTES: dict[str, Way] = {
    "torn": torn,
    "flipped": flipped,
    "empty": _written(lambda old, draw: b""),
    "zeros": _written(lambda old, draw: bytes(len(old))),
    "noise": _written(lambda old, draw: draw.randbytes(draw.choice([1, 9, 1000, 100_000]))),
    "twice": _written(lambda old, draw: old + old),
    "tail": _written(lambda old, draw: old + draw.randbytes(20)),
    "not UTF-8": _written(lambda old, draw: old[: len(old) // 2] + b"\xff\xfe\xed\xa0\x80" + old[len(old) // 2 :]),
    "a byte order mark": _written(lambda old, draw: b"\xef\xbb\xbf" + old),
    "UTF-16": _written(lambda old, draw: old.decode("latin-1").encode("utf-16")),
    "a long line": _written(lambda old, draw: old + b"x" * 5_000_000 + b"\n"),
    "blank lines": _written(lambda old, draw: b"\n\n \n" + old.replace(b"\n", b"\r\n\r\n")),
    "deep": _written(lambda old, draw: draw.choice([b"[", b'{"a":', b"- ", b"[{a: "]) * DEEP),
    "deep and closed": _written(lambda old, draw: b'{"a":' * DEEP + b"1" + b"}" * DEEP + b"\n"),
    "a number": _written(lambda old, draw: draw.choice([b"1", b"-1e999", b"NaN", b"9" * 5000, b"0x1", b'"x"',
        b"null", b"true"])),
    "a list": _written(lambda old, draw: draw.choice([b"[]", b"[1, 2]", b"- a\n- b\n", b"[null]", b"{}",
        b'{"a": {}}'])),
    "a lone surrogate": _written(lambda old, draw: old.replace(b'": "', b'": "\\ud800', 1)),
}  # fmt: skip
PLACES: dict[str, Way] = {
    "missing": _in_place(lambda path, outside: None),
    "a folder": _in_place(lambda path, outside: path.mkdir()),
    "a FIFO": _in_place(lambda path, outside: os.mkfifo(path)),
    "a socket": _in_place(a_socket),
    "a link outside": _in_place(lambda path, outside: path.symlink_to(outside / "canary.txt")),
    "a link to a folder": _in_place(lambda path, outside: path.symlink_to(outside / "folder")),
    "a link to nothing": _in_place(lambda path, outside: path.symlink_to(outside / "nothing")),
    "a link to itself": _in_place(lambda path, outside: path.symlink_to(path)),
    "a link to zeros": _in_place(lambda path, outside: path.symlink_to("/dev/zero")),
    "a link to a terminal": _in_place(lambda path, outside: path.symlink_to("/dev/tty")),
}


def nodes(tree: Any) -> Iterator[tuple[Any, Any]]:
    """Every place in a tree of lists and dicts, as its holder and its key there."""
    for key in list(tree) if isinstance(tree, dict) else range(len(tree)) if isinstance(tree, list) else ():
        yield tree, key
        yield from nodes(tree[key])


def changed(tree: Any, draw: Random, values: list[Any] = VALUES) -> Any:
    """A tree with a few places changed: another value, none, another key, one key more, all of it something else."""
    for _ in range(draw.choice([1, 1, 1, 2, 5])):
        places = list(nodes(tree))
        if not places or draw.random() < 0.04:
            return draw.choice(values)
        holder, key = draw.choice(places)
        change = draw.choices(["value", "gone", "renamed", "more", "wrapped"], [70, 10, 5, 10, 5])[0]
        if change == "value":
            holder[key] = draw.choice(values)
        elif change == "gone":
            del holder[key]
        elif change == "wrapped":
            holder[key] = [holder[key]]
        elif isinstance(holder, dict):
            holder[draw.choice(["x", "", "name", "__class__", "$tensor", "\x1b[2J", f"{key}x"])] = draw.choice(values)
            if change == "renamed":
                del holder[key]
    return tree


def says_json(path: Path, draw: Random, outside: Path) -> None:
    """Another value somewhere in a JSON file, or in a line of one."""
    lines = path.read_text("utf-8").splitlines() if path.suffix in (".jsonl", ".journal") else [path.read_text("utf-8")]
    for _ in range(draw.choice([1, 1, 3])):
        at = draw.randrange(len(lines)) if lines else 0
        lines[at : at + 1] = [json.dumps(changed(json.loads(lines[at]) if lines else {}, draw))]
    path.write_text("\n".join(lines) + "\n", "utf-8")


def says_yaml(path: Path, draw: Random, outside: Path) -> None:
    """Another value somewhere in a YAML file."""
    text = path.read_text("utf-8")
    first = text.partition("\n")[0] if text.startswith("#") else ""
    path.write_text(f"{first}\n{yaml.safe_dump(changed(yaml.safe_load(text), draw), sort_keys=False)}", "utf-8")


def _yaml(make: Callable[[str, Path], str]) -> Way:
    def way(path: Path, draw: Random, outside: Path) -> None:
        path.write_text(make(path.read_text("utf-8"), outside), "utf-8")

    return way


def _set(section: str, key: str, make: Callable[[Path, Path], object]) -> Way:
    """Let a config.yaml name something."""

    def way(path: Path, draw: Random, outside: Path) -> None:
        tree = yaml.safe_load(path.read_text("utf-8"))
        tree.setdefault(section, {})[key] = make(path, outside)
        if key in ("entry", "id"):
            tree[section]["name"] = "gym"
        path.write_text(yaml.safe_dump(tree, sort_keys=False), "utf-8")

    return way


def named_code(section: str, key: str, ending: str = "") -> dict[str, Way]:
    """Three ways to name a stranger's code: by a path, by a path from there, as a module."""
    return {
        f"{section}.{key} a file": _set(section, key, lambda path, outside: f"{path.parent / 'evil.py'}{ending}"),
        f"{section}.{key} a near file": _set(section, key, lambda path, outside: f"./evil.py{ending}"),
        f"{section}.{key} a module": _set(section, key, lambda path, outside: f"evil{ending}"),
        f"{section}.{key} a submodule": _set(section, key, lambda path, outside: f"evil.inner{ending}"),
    }


YAML: dict[str, Way] = {
    "says": says_yaml,
    "aliases": _yaml(lambda old, outside: BOMB),
    "aliases below a key": _yaml(lambda old, outside: f"{old}more:\n  {BOMB[:-1].replace(chr(10), chr(10) + '  ')}\n"),
    "a circle": _yaml(lambda old, outside: old.replace("algo:\n", "algo:\n  kwargs: &a [*a]\n")),
    "a merge": _yaml(lambda old, outside: "x: &x {seed: 1}\n" + old.replace("run:\n", "run:\n  <<: *x\n")),
    "a tag that runs": _yaml(lambda old, outside: f"{old}x: {RUNS.format(outside)}\n"),
    "a tag at a key": _yaml(lambda old, outside: old.replace("seed: ", f"seed: {RUNS.format(outside)} #", 1)),
    "a tag that is unknown": _yaml(lambda old, outside: old.replace("name: ", "name: !x ", 1)),
    "keys twice": _yaml(lambda old, outside: old + old),
    "two documents": _yaml(lambda old, outside: f"{old}---\n{old}"),
    "a number as a section": _yaml(lambda old, outside: f"{old}1: {{a: 1}}\n"),
    "a list as a key": _yaml(lambda old, outside: f"{old}? [1, 2]\n: {{a: 1}}\n"),
    "a foreign section of code": _set("code", "evil", lambda path, outside: "0" * 16),
    "a fingerprint that is a list": _set("code", "algo", lambda path, outside: ["0" * 16]),
    "a folder elsewhere": _set("run", "out", lambda path, outside: str(outside / "folder")),
    "a source that is endless": _set("env", "source", lambda path, outside: "/dev/zero"),
    "a model that is elsewhere": _set("policy", "model", lambda path, outside: str(outside)),
    "a dotted key": _set("algo", "lr.x", lambda path, outside: 1),
    **named_code("algo", "name"), **named_code("env", "name"), **named_code("env", "reward", ":f"),
    **named_code("env", "entry", ":f"), **named_code("env", "id", ":X-v0"),
}  # fmt: skip


def raw(path: Path) -> tuple[dict[str, str], dict[str, torch.Tensor]]:
    with safe_open(path, framework="pt") as file:
        return dict(file.metadata() or {}), {key: file.get_tensor(key).clone() for key in file.keys()}


def signed(path: Path, metadata: dict[str, str], tensors: dict[str, torch.Tensor]) -> None:
    """Write a checkpoint whose checksum is right, whatever it says."""
    metadata.pop("checksum", None)
    save_file(tensors, path, metadata | {"checksum": checkpoint._checksum(metadata, tensors)})


def says_checkpoint(path: Path, draw: Random, outside: Path) -> None:
    """Another structure with the right checksum."""
    metadata, tensors = raw(path)
    structure = changed(json.loads(metadata["structure"]), draw, [*VALUES, *({"$tensor": name} for name in tensors)])
    signed(path, metadata | {"structure": json.dumps(structure)}, tensors)


def other_tensors(path: Path, draw: Random, outside: Path) -> None:
    """Tensors of another shape, type or content, with the right checksum."""
    metadata, tensors = raw(path)
    name = draw.choice([*tensors])
    x = tensors[name]
    others = [
        x.flatten()[:0].clone(),
        x.flatten()[:1].clone(),
        x.double(),
        x.to(torch.int8),
        torch.zeros(3, 5),
        x.unsqueeze(0).clone(),
        torch.tensor(1),
    ]
    others += [torch.full_like(x.double(), float(value)).to(x.dtype) for value in ("nan", "inf", "-1")]
    others += [
        torch.randint(0, 255, x.shape, dtype=torch.uint8, generator=torch.Generator().manual_seed(1)),
        x.to(torch.complex64),
    ]
    tensors[name] = draw.choice(others)
    signed(path, metadata, tensors)


def _structure(make: Callable[[str], str]) -> Way:
    def way(path: Path, draw: Random, outside: Path) -> None:
        metadata, tensors = raw(path)
        signed(path, metadata | {"structure": make(metadata["structure"])}, tensors)

    return way


def big_header(path: Path, draw: Random, outside: Path) -> None:
    """A header that claims more than there is, or more than fits."""
    header = json.dumps({"x": {"dtype": "F32", "shape": [10**12], "data_offsets": [0, 4 * 10**12]}}).encode()
    size = draw.choice([len(header), 2**40, 2**63 + 7, 0])
    path.write_bytes(size.to_bytes(8, "little") + header + bytes(100))


CHECKPOINT: dict[str, Way] = {
    "says": says_checkpoint,
    "other tensors": other_tensors,
    "a big header": big_header,
    "a deep structure": _structure(lambda old: '{"a":' * DEEP + "1" + "}" * DEEP),
    "a structure that is text": _structure(lambda old: "x"),
    "a structure of nothing": _structure(lambda old: "{}"),
    "parts that are none": _structure(lambda old: '{"parts": null}'),
    "no parts": _structure(lambda old: '{"parts": {}}'),
    "unknown parts": _structure(lambda old: old.replace('"parts": {', '"parts": {"rollout": 1, "__class__": 2, ', 1)),
    "another's parts": _structure(lambda old: old.replace('"parts": {', '"parts": {"config": {}, "numbers": {}, ', 1)),
    "a tensor that is not there": _structure(lambda old: old.replace('{"$tensor": "', '{"$tensor": "x')),
}  # fmt: skip
