"""Hosting: code that a worker is given, found, read and imported, so that runs whose definitions name it find it."""
