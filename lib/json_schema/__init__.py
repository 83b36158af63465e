"""JSON Schema for untrusted schemas and values: our own engine, which counts its steps and never fetches anything.

`check` is the entry point: it checks whether a document is a schema, and whether a value fits one. `dialects` lists the
keywords of each version of the specification. The keywords in `assertions` check a value itself; those in `applicators`
apply schemas to it and its parts, and track which parts they have checked. `application` is one application of a
schema, with its limit on steps. `violation_messages` formats the messages.

The package belongs to this layer because tools (actors) and interpreters (languages) use it. Interpreters must be
deterministic, so the limit is a number of steps, and any schema and value give the same result on every computer.
"""
