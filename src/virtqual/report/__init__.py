"""The reports that people and machines read at the end of a session."""
