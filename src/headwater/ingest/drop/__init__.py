"""Files that are dropped into a folder and land by themselves.

`folder` lists them, `due_files` decides which of them are due, `rows` reads them as the `files` connector does.
"""
