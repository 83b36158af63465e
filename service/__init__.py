"""The operations of Callboard, independent of the surface that offers them."""
