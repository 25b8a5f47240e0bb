"""Programs of this machine: every way to fail ends in the error that the caller names, with the reason."""

from __future__ import annotations

from pathlib import Path

import pytest

from vcluster import kernel
from vcluster.command import read_output, run
from vcluster.errors import BootError, OptionError, RequirementError


def test_input_and_environment_reach_the_program(tmp_path: Path) -> None:
    assert run(["cat"], data=b"\xff\0") == b"\xff\0"
    assert run(["pwd"], folder=tmp_path) == f"{tmp_path}\n".encode()
    assert read_output(["/bin/sh", "-c", 'printf "$A\\377"'], environment={"A": "b"}) == "b�"


def test_every_failure_names_the_program_and_the_reason(tmp_path: Path) -> None:
    with pytest.raises(BootError, match=r"sh -c .* failed: no such bridge$"):
        run(["sh", "-c", "echo no such bridge >&2; exit 3"], BootError)
    with pytest.raises(RequirementError, match=r"^sinfo failed: exit code 4$"):
        read_output(["sh", "-c", "exit 4"], name="sinfo")
    with pytest.raises(OptionError, match="none failed to start: No such file"):
        run([tmp_path / "none"], OptionError)
    with pytest.raises(RequirementError, match=r"sleep 60 did not end within 0\.1 s"):
        run(["sleep", "60"], seconds=0.1)


def test_data_that_a_program_could_not_unpack_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel, "program", lambda _: Path("/bin/false"))
    with pytest.raises(RequirementError, match="false -dc failed"):
        kernel.decompress(b"\x28\xb5\x2f\xfd a module")
