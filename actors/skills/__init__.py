"""Handlers of the skills that are shipped: plain Python tools, a module per service, over one small HTTP helper.

What a model sees of them, names, schemas and configuration, is data: `callboard.languages.skills.shipped`.
"""
