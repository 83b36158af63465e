"""Approvals: a person decides about single calls of tools before they are made. For every language.

`terms` says which calls need a decision, `question` has the question and its answers, `approvals` asks it and remembers
the approvals for the rest of the run, and `member` reads the member ``approve`` of documents.
"""
