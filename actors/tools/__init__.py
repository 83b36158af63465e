"""Tools: one port (`tool`), one file per transport, and the toolbox that holds a node's open tools."""
