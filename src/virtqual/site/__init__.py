"""The site: its system files, its nodes and hosts, and their state in Slurm."""
