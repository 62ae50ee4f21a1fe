"""The module names of 0.3.0: each is found under its new name, with a warning."""

import importlib
import sys
import warnings
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

MOVED = {
    "rlkit.batched": "rlkit.control.numpy_env",
    "rlkit.checkpoint": "rlkit.recording.checkpoint",
    "rlkit.comparison.aggregate": "rlkit.statistics.runs",
    "rlkit.config": "rlkit.settings.config",
    "rlkit.copies": "rlkit.control.vector",
    "rlkit.exploration": "rlkit.policies.exploration",
    "rlkit.language.checkpoint": "rlkit.language.folders",
    "rlkit.language.grader": "rlkit.text.grader",
    "rlkit.language.problems": "rlkit.text.problems",
    "rlkit.language.rewards": "rlkit.text.rewards",
    "rlkit.language.shuffle": "rlkit.text.shuffle",
    "rlkit.language.sources": "rlkit.text.sources",
    "rlkit.language.templates": "rlkit.text.templates",
    "rlkit.log": "rlkit.recording.log",
    "rlkit.normalize": "rlkit.policies.normalize",
    "rlkit.outcome": "rlkit.recording.outcome",
    "rlkit.pairs": "rlkit.text.pairs",
    "rlkit.plugins": "rlkit.settings.plugins",
    "rlkit.prioritized": "rlkit.buffers.prioritized",
    "rlkit.schema": "rlkit.settings.schema",
    "rlkit.symptoms": "rlkit.doctor.symptoms",
    "rlkit.tables": "rlkit.policies.tables",
    "rlkit.tabular": "rlkit.control.tabular",
    "rlkit.usage": "rlkit.settings.help",
    "rlkit.video": "rlkit.control.video",
    "rlkit.writers": "rlkit.recording.writers",
}


class Moved(MetaPathFinder, Loader):
    """Consulted only for modules that no other finder finds."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        return ModuleSpec(fullname, self) if fullname in MOVED else None

    def exec_module(self, module: ModuleType) -> None:
        """Replace this empty module by the module of the new name."""
        old, new = module.__name__, MOVED[module.__name__]
        warnings.warn(f"{old} has moved: import {new}", DeprecationWarning, stacklevel=2)
        sys.modules[old] = importlib.import_module(new)


sys.meta_path.append(Moved())
