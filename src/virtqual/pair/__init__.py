"""Any two commands, run in turns and judged: `virtqual pair` (docs/pair.md)."""
