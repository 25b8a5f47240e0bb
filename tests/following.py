"""What tests do with a session that runs in the background."""

import subprocess


def until(process: subprocess.Popen[str], text: str) -> str:
    """Read what a process prints until a text is in it; return that."""
    said = []
    for line in process.stdout:
        said.append(line)
        if text in line:
            return "".join(said)
    raise AssertionError("".join(said))


def ended(process: subprocess.Popen[str], timeout: float = 420) -> tuple[int, str]:
    """Return the exit code of a process, and what else it printed in one line."""
    try:
        said = process.communicate(timeout=timeout)[0]
    finally:
        process.kill()
    print(said)
    return process.returncode, " ".join(said.split())
