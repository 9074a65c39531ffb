"""Files that are dropped into a folder land without a command.

`folder` lists them, `due_files` decides which of them are due, `rows` reads them as the `files` connector does.
"""
