"""The sandbox: where code of a definition's author is run, in processes that can do nothing but compute."""
