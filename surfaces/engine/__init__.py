"""The HTTP interface of Workflow Engine V2, by its design document: the same runs and definitions, in its terms."""
