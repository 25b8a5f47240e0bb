"""Programs: readers of their output, makers of their input, and problem sizes, one module a program.

All are pure functions, except `wrf_fields`, which reads a netCDF file.
"""
