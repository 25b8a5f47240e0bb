"""The notes that a job writes about itself, and the functions that read them.

Two small shell files are copied into a run's stage directory: ``node.sh`` is sourced by the job script
before and after the program, ``task.sh`` starts every task.  Both use shell builtins only: on emulated
CPUs every process that is started costs tens of milliseconds.
"""
