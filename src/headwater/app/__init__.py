"""What a user can do: one typed function per command, values in and values out.

Only here the parts are put together. Interfaces (command line, HTTP, ...) render these answers and add nothing of their
own.
"""
