"""Many sessions together: references to propose, changes over builds, and notices."""
