"""The languages of definitions: one package per language, each pure; `language` is the contract they implement."""
