"""The cluster: how workers share the partitions, and which process leads."""
