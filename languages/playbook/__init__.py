"""The playbook language: PLAYBOOK.md 0.1.0, markdown with numbered steps, directives, branches and questions."""
