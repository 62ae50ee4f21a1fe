"""YAML files of `KEY: VALUE` lines below the names of sections: a pair's settings, a run's config.yaml, the presets."""

import os
import re
from pathlib import Path
from typing import Any

import yaml

import rlkit
from rlkit.errors import UserError
from rlkit.paths import home
from rlkit.recording.files import read_text
from rlkit.settings import strict_yaml

WRITTEN = "# rlkit "  # how a config.yaml of a run begins, with the version behind it
OLD = tuple(f"{WRITTEN}0.{minor}." for minor in range(5))  # how a config.yaml begins that was written with YAML 1.1

Section = dict[str, Any]  # values as YAML or a command line has them: `schema.build` checks each against its field
Sections = dict[str, Section]

IDLE = {  # keys without effect, which 0.3 had and wrote into config.yaml
    "rloo": ("scale", "std", "std_eps"),
    "reinforce_pp": ("scale",),
    "cispo": ("dual_clip",),
    "gmpo": ("dual_clip",),
    "sapo": ("clip_low", "clip_high", "dual_clip"),
}

WEIGHED = ("bnpo", "cispo", "dapo", "dr_grpo", "gmpo", "grpo", "gspo", "ppo", "reinforce_pp", "rloo", "sapo")
# Keys that came after 0.5, and how runs of these plug-ins, and of policies with layers, were without them.
LATER: Sections = {"gsm8k": {"chat": False}, "gym": {"action_masks": False}}
LATER |= {name: {"sampler_cap": None} for name in WEIGHED}
LAYERS = {"share": "none", "fast": False}


def read(path: Path) -> Sections:
    """The keys of each section; a file that holds anything else is refused with one line."""
    text = read_text(path)
    try:
        values = strict_yaml.load(text, old=text.startswith(OLD)) or {}
    except yaml.YAMLError as error:
        place = ":".join(map(str, (path, *strict_yaml.lines(error))))
        raise UserError(f"{place}: not valid YAML: {strict_yaml.reason(error)}") from None
    if not isinstance(values, dict) or any(not isinstance(v, dict) for v in values.values() if v is not None):
        raise UserError(f"{path}: not sections of keys: write run:, algo:, env: or policy: with KEY: VALUE lines below")
    return {str(section): {str(key): x for key, x in (keys or {}).items()} for section, keys in values.items()}


def presets(algorithm: str) -> Sections:
    """What other systems do under an algorithm's name, from `configs/presets/SYSTEM.yaml`, by system."""
    found: Sections = {}
    for folder in rlkit.__path__:
        for path in Path(folder, "configs", "presets").glob("*.yaml"):
            if keys := read(path).get(algorithm):
                found.setdefault(path.stem, keys)
    return dict(sorted(found.items()))


def instead_of(path: Path) -> str:
    """What to do where config=`path` is not a file: in a run's folder there is one."""
    inside = path / "config.yaml"
    return f"did you mean config={inside}?" if os.path.isfile(home(inside)) else "give one with sections of keys"


def by_run(path: Path) -> bool:
    """Whether a run wrote this file, with all keys that there were then: their absence means something."""
    return re.match(rf"{WRITTEN}\d", read_text(path)) is not None  # "# rlkit settings" is somebody's own comment


def without_folder(path: Path, run: Section) -> Section:
    """The keys of the run in `config=path`, less its folder, which the run that wrote the file has.

    Raises: UserError where somebody else named one: the file may be a stranger's, and you say where rlkit writes.
    """
    if run.get("out") is not None and not by_run(home(path)):
        raise UserError(
            f"config={path} has out={run['out']}, and a file cannot choose the folder of a run: take it out of the "
            "file, and give out=FOLDER beside config="
        )
    return {key: x for key, x in run.items() if key != "out"}


def without_idle(path: Path, algo: Section) -> Section:
    """The keys of the algorithm in a run's config.yaml, less those that had no effect, where 0.3 wrote it."""
    old = read_text(path).startswith(f"{WRITTEN}0.3.")
    gone = IDLE.get(str(algo.get("name")), ()) if old else ()
    return {key: x for key, x in algo.items() if key not in gone}


def with_later(plugin: Section) -> Section:
    """The keys of an algorithm or environment in a run's config.yaml, with those that came after it was written."""
    return {**LATER.get(str(plugin.get("name")), {}), **plugin}


def with_later_layers(policy: Section) -> Section:
    """The keys of a policy in a run's config.yaml, with those that came after it was written."""
    return {**LAYERS, **policy} if "hidden" in policy else policy
