"""JSON Schema, for what strangers write: our own engine, which counts its steps and never fetches anything.

`checking` is the door: is this a schema, and does this value fit it. `dialects` says which keywords a version of the
specification has: `assertions` look at a value by itself, `applicators` apply schemas to it and its parts, `evaluated`
knows what they have looked at. `application` is one application of a schema, with its budget. `telling` has the words.

It stands on this floor because tools (actors) and interpreters (languages) both need it, and runs where interpreters
do: whatever a schema and a value ask of it, it ends after so many steps, the same on every machine.
"""
