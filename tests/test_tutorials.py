"""The tutorials in docs/tutorials run from top to bottom, hold what they claim, and are committed without outputs."""

import json
from pathlib import Path
from typing import Any

import pytest
from support.texts import there

ROOT = Path(__file__).resolve().parent.parent
TUTORIALS = {path.stem: path for path in sorted((ROOT / "docs" / "tutorials").glob("*.ipynb"))}


def cells(name: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(TUTORIALS[name].read_text(encoding="utf-8"))["cells"]
    return found


def test_they_are_numbered_without_a_gap() -> None:
    assert [name.partition("_")[0] for name in TUTORIALS] == [f"{i:02}" for i in range(1, len(TUTORIALS) + 1)]
    assert len(TUTORIALS) >= 8


@pytest.mark.parametrize("name", TUTORIALS)
def test_no_output_is_committed(name: str) -> None:
    code = [cell for cell in cells(name) if cell["cell_type"] == "code"]
    assert [cell["id"] for cell in code if cell["outputs"] or cell["execution_count"] is not None] == []
    ids = [cell["id"] for cell in cells(name)]
    assert len(set(ids)) == len(ids)


@pytest.mark.parametrize("name", TUTORIALS)
def test_a_reader_sees_whether_it_worked(name: str) -> None:
    assert "assert " in "".join("".join(cell["source"]) for cell in cells(name) if cell["cell_type"] == "code")


@pytest.mark.slow
@pytest.mark.skipif(not there("nbclient") or not there("ipykernel"), reason="pip install -e '.[docs]'")
@pytest.mark.parametrize("name", TUTORIALS)
def test_it_runs(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import nbformat
    from nbclient import NotebookClient

    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    notebook = nbformat.read(TUTORIALS[name], as_version=4)
    nbformat.validate(notebook)
    client = NotebookClient(notebook, timeout=300, kernel_name="python3", resources={"metadata": {"path": tmp_path}})
    client.execute()  # raises CellExecutionError where an assertion fails
    printed = [part for cell in notebook.cells for part in cell.get("outputs", ()) if part.get("name") == "stderr"]
    assert printed == []
