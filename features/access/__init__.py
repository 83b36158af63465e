"""Access: authentication of callers, and what each of them may do."""
