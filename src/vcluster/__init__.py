"""vcluster: a one-machine Slurm cluster with a native and a virtual partition."""
