"""Commands of virtqual in the process of the tests."""

from typer.testing import CliRunner

from virtqual.cli import app


def call(*words, code=None, **env):
    """Call `virtqual` with these words and variables; it has to end with the exit code, if one is given."""
    done = CliRunner().invoke(app, list(map(str, words)), env=env)
    assert code in (None, done.exit_code), f"exit code {done.exit_code}\n{done.output}"
    return done
