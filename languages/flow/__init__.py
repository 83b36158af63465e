"""The flow language: Metolia Workflow Language v0.1, implemented from its specification."""
