"""Skills: named sets of tools with instructions, from lists, from files of a project, and shipped with Callboard."""
