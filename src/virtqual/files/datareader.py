"""Read many data files, and report the mistakes of all of them at once."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Generic

from virtqual.files.datafile import DataError, DataModelT, Document, Problem, parse
from virtqual.files.wording import Key, suggest


@dataclass
class DataReader:
    """Reads files; keeps their mistakes, and the places of what may be stated only once."""

    problems: list[Problem] = field(default_factory=list)
    places: dict[Hashable, str] = field(default_factory=dict)

    def find_files(self, directory: Path, *, optional: bool = False) -> list[Path]:
        """Return the YAML files of a directory; none, with a problem unless `optional`, if there is none."""
        if not (directory.is_dir() or (optional and not directory.exists())):
            self.problems.append(Problem(str(directory), None, "", "is not a directory."))
        return sorted(directory.glob("*.yaml"))

    def read(self, paths: Iterable[Path], model: type[DataModelT]) -> Iterator[DataFile[DataModelT]]:
        """Yield each file that is free of mistakes by itself."""
        for path in paths:
            try:
                document = parse(path)
                content = document.read(model)
            except DataError as error:
                self.problems += error.problems
            else:
                yield DataFile(document, content, self)

    def raise_problems(self) -> None:
        """Raise `DataError` if any file has a mistake."""
        if self.problems:
            raise DataError(self.problems)


@dataclass(frozen=True)
class DataFile(Generic[DataModelT]):
    """A file that was read into its model, whose entries can still be reported."""

    document: Document
    content: DataModelT
    reader: DataReader

    def report(self, key: Key, message: str) -> None:
        """Report a mistake at a key."""
        self.reader.problems.append(self.document.problem(key, message))

    def has_name(self, key: Key, kind: str, name: str, names: Collection[str]) -> bool:
        """Return whether a name exists; report one that does not, with similar names."""
        if name not in names:
            self.report(key, f"unknown {kind} {name!r}: {suggest(name, names)}")
        return name in names

    def is_first(self, key: Key, identity: Hashable, message: str) -> bool:
        """Return whether an identity occurs for the first time; else report the message with its place."""
        place = self.document.where(key)
        first_place = self.reader.places.setdefault(identity, place)
        if first_place is not place:
            self.report(key, f"{message} {first_place}.")
        return first_place is place
