"""Access: who somebody is, and what they may do."""
