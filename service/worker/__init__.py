"""What a worker is made of: its services, the features that run beside it, and its figures."""
