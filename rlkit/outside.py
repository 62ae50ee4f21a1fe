"""Code from outside rlkit runs as its files say: what Python has cached beside a file may be something else."""

import importlib
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, SourceFileLoader
from types import CodeType, ModuleType


class Fresh(SourceFileLoader):
    """Compiles a file each time: whoever wrote its folder may have written a .pyc that seems to be made of it."""

    def get_code(self, fullname: str) -> CodeType:
        path = self.get_filename(fullname)
        code: CodeType = self.source_to_code(self.get_data(path), path)
        return code


class Finder(MetaPathFinder):
    """Finds the modules of some packages where Python does, and has them compiled each time."""

    def __init__(self) -> None:
        self.packages: set[str] = set()

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname.partition(".")[0] not in self.packages:
            return None
        found = (finder.find_spec(fullname, path, target) for finder in sys.meta_path if finder is not self)
        spec = next((spec for spec in found if spec is not None), None)
        if spec is not None and spec.origin is not None and type(spec.loader) is SourceFileLoader:
            spec.loader, spec.cached = Fresh(fullname, spec.origin), None
        return spec


DEEPEST = 100  # packages inside each other; Python looks for them recursively, and ends in a RecursionError
FINDER = Finder()
sys.meta_path.insert(0, FINDER)


def compiled(package: str) -> None:
    """Have what is imported of a package from now on compiled each time."""
    FINDER.packages.add(package)


def import_module(name: str) -> ModuleType:
    """A module from outside rlkit, by its dotted name."""
    if name.count(".") > DEEPEST:
        raise ModuleNotFoundError(f"No module named '{name}'", name=name)
    compiled(name.partition(".")[0])
    return importlib.import_module(name)
