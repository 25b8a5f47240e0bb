"""Files and programs: reviewed data, records, locks, and running other programs."""
