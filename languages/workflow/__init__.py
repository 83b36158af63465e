"""The `workflow` language: YAML or JSON documents of the SWEny Workflow specification v1."""
