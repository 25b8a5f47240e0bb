"""What many sessions say: references to propose, changes over builds, and notices."""
