"""Files to download for programs: `known` says which there are, `kept` which are here and unchanged."""
