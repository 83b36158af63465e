"""Budgets of tenants and definitions: what all their runs together may use in an hour, a day or a month."""
