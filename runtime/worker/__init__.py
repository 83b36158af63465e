"""The worker: a process that carries runs out, with the services that it offers them."""
