"""The page: what a person sees of the runtime in a browser, and does to it."""
