"""The notes that a job writes about itself, and the functions that read them.

Shell files are copied into the stage directory of a run: the job script sources ``node.sh`` before and after
the program, and ``task.sh`` starts every task.  Both use shell builtins only: on emulated CPUs a process
takes tens of milliseconds to start.
"""
