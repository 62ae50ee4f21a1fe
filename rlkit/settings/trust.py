"""Code from outside rlkit that a run folder names: it runs only with trust, and only as it was when the run began."""

from rlkit.errors import UserError
from rlkit.settings import places, plugins
from rlkit.settings.given import KINDS, Given
from rlkit.settings.sections import Section, Sections


def outside(given: Given) -> list[str]:
    """The keys of a configuration that name code from outside: plug-ins, rewards and environments of one's own."""
    names = {section: str(given.section(section)["name"]) for section in KINDS}
    found = [f"{section}={name}" for section, name in names.items() if name not in plugins.names(KINDS[section])]
    for section, name in names.items():
        if name in plugins.names(KINDS[section]):
            keys = places.marked(plugins.load(KINDS[section], name).Config)
            codes = [key for key, place in keys.items() if place.kind == "code" and not given_in_python(given, key)]
            entries = {key: places.outside(str(given.section(section).get(key) or ""), keys[key]) for key in codes}
            found += [f"{section}.{key}={entry}" for key, named in entries.items() for entry in named]
    return found


def given_in_python(given: Given, key: str) -> bool:
    """Whether a program gave what env.entry names: nothing is imported for it."""
    return key == "entry" and given.factory is not None


def check(given: Given) -> None:
    """Refuse to open a run folder that names code from outside without trust, or anything that has changed since.

    Whoever wrote the folder decides what it names. Nothing of it is imported before.
    """
    if given.folder is None or given.trusted:
        return
    if not given.trust and (found := outside(given)):
        raise UserError(f"{given.folder} would run code from outside rlkit: {', '.join(found)}; trust=true allows it")
    for name, was in given.marks.items() if given.trust != "changed" else ():
        if (now := places.mark(name)) != was:
            happened = "has changed" if now and was else "is new" if now else "is gone"
            remedy = "put it back, or accept the change with trust=changed"
            raise UserError(f"{name} {happened} since the run {given.folder} began: {remedy}")
    given.trusted = True


def marks(names: Section, configs: dict[str, object]) -> Sections:
    """For config.yaml: the marks of all that a configuration names outside rlkit, none where there is nothing."""
    found: list[str] = []
    for section, kind in KINDS.items():
        name = str(names[section])
        found += places.sources(plugins.path_or_module(name)) if name not in plugins.names(kind) else []
    for config in configs.values():
        if config is not None:
            for key, place in places.marked(type(config)).items():
                found += places.named(vars(config)[key], place)
    return {"marks": {name: places.mark(name) for name in dict.fromkeys(found)}} if found else {}
