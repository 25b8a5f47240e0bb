"""Formats of files that people have: each module turns the text of one format into runs (`found`).

The form that `session.measured` reads, with a column for all that the rule needs, is not one of them.
"""
