"""Budgets of tenants and definitions: limits for all their runs together per hour, day or month."""
