"""Files that people review and records that programs write: clear errors, written whole or not at all."""
