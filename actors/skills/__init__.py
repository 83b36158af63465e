"""Handlers of the shipped skills: plain Python tools, one module per service, on top of one small HTTP helper.

The part that a model sees (names, schemas and configuration) is data: `callboard.languages.skills.shipped`.
"""
