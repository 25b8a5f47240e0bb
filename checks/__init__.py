"""ReFrame checks: how each program is run, sized, proved sane and read."""
