"""How ReFrame is started, guarded, and asked what there is to run."""
