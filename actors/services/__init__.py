"""Services outside that nodes act upon, a module each, over the HTTP helper of the shipped skills; and mail."""
