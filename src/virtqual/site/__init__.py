"""What this centre is: its system file, its nodes and hosts, and what Slurm says of them."""
