"""Skills: tools with instructions under a name, as lists, as files of a project, and those that ship."""
