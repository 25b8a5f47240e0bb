"""The reviewed data by which a build is judged, read from YAML into the models of `virtqual.verdict`."""

from virtqual.references.load import load_references, project_metrics, project_references
from virtqual.references.qualification import CheckSet, RequiredCheck
from virtqual.references.references import NoReferenceError, References

__all__ = [
    "CheckSet",
    "NoReferenceError",
    "References",
    "RequiredCheck",
    "load_references",
    "project_metrics",
    "project_references",
]
