"""External services that nodes act upon, one module each, over the HTTP helper of the shipped skills; and mail."""
