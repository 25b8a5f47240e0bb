"""Inputs to download for programs: `declarations` lists them, `fetched` downloads and verifies them."""
