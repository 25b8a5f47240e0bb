"""Inputs of programs: texts that checks write (pure functions from sizes), and files that were fetched.

`known` says which files there are to fetch, `kept` which of them are here and unchanged.
"""
