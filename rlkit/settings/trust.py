"""Which code from outside rlkit a run folder would run."""

from rlkit.errors import UserError
from rlkit.settings import plugins
from rlkit.settings.config import KINDS, Given


def outside(given: Given) -> list[str]:
    """The keys of a configuration that name code from outside: plug-ins, rewards and environments of one's own."""
    found = []
    for section, kind in KINDS.items():
        name = str(given.section(section).get("name", ""))
        found += [] if name in plugins.names(kind) else [f"{section}={name}"]
    for reward in map(str.strip, str(given.env.get("reward") or "correct").split(",")):
        harmless = reward == "correct" or reward.startswith("model:")  # the latter is a folder of weights
        found += [] if harmless else [f"env.reward={reward}"]
    if ":" in str(given.env.get("id") or ""):
        found.append(f"env.id={given.env['id']}")
    entry = str(given.env.get("entry") or "<")  # <...> names nothing that could be imported
    if not entry.startswith("<") and given.factory is None:
        found.append(f"env.entry={entry}")
    return found


def check(given: Given, folder: object) -> None:
    """Refuse a run folder that names code from outside: whoever wrote it decides what is run."""
    if found := outside(given):
        raise UserError(f"{folder} would run code from outside rlkit: {', '.join(found)}; trust=True allows it")
