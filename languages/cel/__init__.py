"""An engine for the Common Expression Language (CEL), in which the `flow` language writes expressions.

`program.compile` compiles a source text to a `Program`, whose ``evaluate`` returns a JSON value; `errors` has the
exceptions. `lexer` and `parser` turn the text into a tree of `syntax` nodes. `compiler` turns the tree into Python
functions from `closures` and `comprehensions`, once; an evaluation only calls them. `values` defines the Python types
of CEL values, and `json_data` converts results to JSON. `functions` is the table of all functions; each profile has a
module with its functions.
"""
