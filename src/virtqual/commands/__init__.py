"""Commands of `virtqual`, one module each; `virtqual.cli` mounts them."""
