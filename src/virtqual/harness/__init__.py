"""Starting, guarding, ordering and recording ReFrame, and the list of its checks."""
