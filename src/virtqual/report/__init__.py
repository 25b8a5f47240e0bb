"""What people and machines read at the end of a session."""
