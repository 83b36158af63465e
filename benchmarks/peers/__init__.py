"""Callboard beside other durable runtimes, in one sitting on one machine: ``make bench-peers``."""
