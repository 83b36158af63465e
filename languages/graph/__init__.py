"""The graph language: typed nodes wired as a DAG, by the design document of the Workflow Engine V2."""
