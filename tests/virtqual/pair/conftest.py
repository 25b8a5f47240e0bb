"""An empty directory with a program whose values are planted."""

import pytest

from planted_commands import PROGRAM, write_program


@pytest.fixture
def plant(tmp_path, monkeypatch):
    """Go to an empty directory; return a function that plants values and returns a command."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    write_program(tmp_path / "program", PROGRAM)

    def write(name, *values):
        (tmp_path / name).write_text("".join(f"{value}\n" for value in values))
        return f"./program {name}"

    return write
