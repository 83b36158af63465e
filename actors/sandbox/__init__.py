"""The sandbox: runs the code of definitions, in processes that can do nothing but compute."""
