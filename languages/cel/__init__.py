"""The Common Expression Language, as the `flow` language's expressions are written: an engine of our own.

`program.compile` turns a source text into a `Program`, whose ``evaluate`` gives a JSON value; `errors` has what can go
wrong. The way of an expression: `lexer` and `parser` make `syntax` of the text, and `compiler` makes Python functions
of that, once, out of `closures`, `relations` and `comprehensions`; evaluating only calls them. `values` says what a
CEL value is in Python, `convert` what of it is data. `functions` is the table of all functions; each profile's are in
its own module.
"""
