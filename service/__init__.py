"""The operations of Callboard, independent of the surface that offers them; and the worker with all its features."""
