"""The reviewed data by which a build is judged, read from YAML into the models of `virtqual.verdict`."""

from virtqual.references.load import NoReferenceError, References, load_references, project_references
from virtqual.references.qualification import CheckSet, RequiredCheck

__all__ = [
    "CheckSet",
    "NoReferenceError",
    "References",
    "RequiredCheck",
    "load_references",
    "project_references",
]
