"""Code from outside rlkit that a run folder names: it runs only with trust, and only as it was when the run began."""

from collections.abc import Collection, Iterator
from pathlib import Path

from rlkit.errors import UserError
from rlkit.fields import Place
from rlkit.outside import changed
from rlkit.settings import places, plugins
from rlkit.settings.given import KINDS, Given
from rlkit.settings.sections import Section, Sections


def outside(given: Given, said: Collection[str] = ()) -> list[str]:
    """The keys of a configuration that name code from outside: plug-ins, rewards, environments, networks.

    said: which of algo and env the user has named, so that their own keys can be looked at.
    """
    names = _names(given)
    found = [f"{section}={name}" for section, name in names.items() if name not in plugins.names(KINDS[section])]
    for section, key, place in _codes(given, said):
        texts = texts_of(given.section(section), key)
        found += [f"{section}.{key}={entry}" for text in texts for entry in places.outside(text, place)]
    return found


def texts_of(section: Section, key: str) -> Iterator[str]:
    """What a key holds, whole or entry by entry: KEY, or KEY.NAME of a mapping."""
    left = [value for name, value in section.items() if name.partition(".")[0] == key]
    while left:
        value = left.pop()
        if isinstance(value, dict | list | tuple):
            left += value.values() if isinstance(value, dict) else value
        elif value:
            yield str(value)


def _names(given: Given) -> dict[str, str]:
    """The algorithm and the environment; where only help is asked for, one of them may not be named."""
    return {x: str(given.section(x)["name"]) for x in KINDS if "name" in given.section(x)}


def _codes(given: Given, said: Collection[str] = ()) -> Iterator[tuple[str, str, Place]]:
    """The keys of rlkit's own plug-ins, of those in `said` and of policies whose texts name code."""
    own = {x for x in said if x in KINDS and given.section(x).keys() > {"name"}}  # imported only if it has keys
    names = {x: name for x, name in _names(given).items() if x in own or name in plugins.names(KINDS[x])}
    known = {x: plugins.load(KINDS[x], name).Config for x, name in names.items()}
    for section, cls in (known | {"policy": policy_keys(given)}).items():
        for key, place in places.marked(cls).items():
            if place.kind == "code" and not given_in_python(given, key):
                yield section, key, place


def policy_keys(given: Given) -> type:
    """The dataclass behind the `policy.` keys of a configuration."""
    return plugins.network_class("text" if "model" in given.policy else "control")


def given_in_python(given: Given, key: str) -> bool:
    """Whether a program gave what env.entry names: nothing is imported for it."""
    return key == "entry" and given.factory is not None


def check(given: Given) -> None:
    """Refuse to open a run folder that names code from outside without trust, or anything that has changed since.

    The author of the folder decides what it names. Nothing of it is imported before.
    """
    if given.folder is None or given.trusted:
        return
    if not given.trust and (found := outside(given)):
        raise UserError(f"{given.folder} would run code from outside rlkit: {', '.join(found)}; trust=true allows it")
    if given.trust != "changed":
        _refuse_changed(given)
    given.trusted = True


def check_file(path: Path, given: Given) -> None:
    """Refuse code from outside that `config=FILE` names and the command line does not: nothing of it was imported."""
    told = {word.partition("=")[0] for word in given.argv}
    if found := [code for code in outside(given, told) if code.partition("=")[0] not in told]:
        raise UserError(
            f"config={path} would run code from outside rlkit: {', '.join(found)}; give it on the command line, too, "
            "or trust=true, which rlkit.run takes"
        )


def _refuse_changed(given: Given) -> None:
    """Refuse a mark that is another now, and code without one, such as a package that takes a neighbor's name."""
    found = [(name, was, places.mark(name)) for name, was in given.marks.items()]
    found += [(name, "", "new") for name in _code(given) if given.marks and name not in given.marks]
    ways = {
        name: "has changed" if now and was else "is new" if now else "is gone" for name, was, now in found if now != was
    }
    for name, way in ways.items():
        remedy = f"{'take it away' if way == 'is new' else 'put it back'}, or accept the change with trust=changed"
        if way == "is gone":
            remedy = (
                f"put it back, give the key that names it beside {given.folder} if it has moved, or accept the "
                "change with trust=changed if nothing needs it any more"
            )
        others = [other for other in ways if ways[other] == way and other != name]
        same = f"; the same holds for {', '.join(others)}" if others else ""
        raise UserError(f"{name} {way} since the run {given.folder} began: {remedy}{same}")


def _code(given: Given) -> list[str]:
    """What `marks` would mark of the code that a configuration names; no code of it is imported."""
    found: list[str] = []
    for section, kind in KINDS.items():
        if (name := str(given.section(section)["name"])) not in plugins.names(kind):
            found += places.sources(plugins.path_or_module(name))
    for section, key, place in _codes(given):
        found += places.named(given.section(section).get(key), place)
    return found


def marks(names: Section, configs: dict[str, object]) -> Sections:
    """For config.yaml: the marks of all that a configuration names outside rlkit, none where there is nothing."""
    found = _named(names, configs)
    return {"marks": {name: places.mark(name) for name in dict.fromkeys(found)}} if found else {}


def check_ran(names: Section, configs: dict[str, object]) -> None:
    """Refuse code that this process imported before its file was changed: the marks would be of what did not run."""
    files = {str(path) for name in _named(names, configs) if (path := places.located(name)) is not None}
    if file := changed(files):
        raise UserError(
            f"{file} has changed since this program imported it: start the program again (in a notebook, the kernel)"
        )


def _named(names: Section, configs: dict[str, object]) -> list[str]:
    """All that a configuration names outside rlkit."""
    found: list[str] = []
    for section, kind in KINDS.items():
        name = str(names[section])
        found += places.sources(plugins.path_or_module(name)) if name not in plugins.names(kind) else []
    for config in configs.values():
        if config is not None:
            for key, place in places.marked(type(config)).items():
                found += places.named(vars(config)[key], place)
    return found
