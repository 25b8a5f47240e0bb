"""Inputs that checks write for their programs: pure functions from sizes to text, nothing to download."""
