"""The worker: a process that performs runs, and the services that it provides to them."""
