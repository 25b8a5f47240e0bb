"""The software that is measured: its manifest, and the stack from package registries."""
