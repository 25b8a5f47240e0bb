"""Programs: readers of their output, makers of their input, and problem sizes, one module a program.

All are pure functions, but for `wrf_fields`, which reads a NetCDF file.
"""
