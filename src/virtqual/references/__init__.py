"""The rules of judgement, as reviewed data: budgets by class, noise, waivers, absolute references."""

from virtqual.references.budgets import Budget, BudgetError, Gate, HypervisorClass, Quantity, Reason, Term
from virtqual.references.load import NoReferenceError, References, expiry_problems, load_references
from virtqual.references.noise import Prior
from virtqual.references.qualifications import Asked, CheckSet
from virtqual.references.waivers import Waiver

__all__ = [
    "Asked",
    "Budget",
    "BudgetError",
    "CheckSet",
    "Gate",
    "HypervisorClass",
    "NoReferenceError",
    "Prior",
    "Quantity",
    "Reason",
    "References",
    "Term",
    "Waiver",
    "expiry_problems",
    "load_references",
]
